"""The kinds of studies: their questions, answers and scores, and checks that no item gives its answer away.

`require_fields`, `labels_of`, `truth_of`, `is_answer` and `score` are the definition of a kind. The checks
are for simulations, in which a person predicts the model's answer: `refuse_named` compares explanations with
the labels, `refuse_coloured` their summed values with the predictions, `refuse_told` the texts with those
whose predictions are shown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import quoted
from attnwidgets.people.item import Item, words_to_remove

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnwidgets.people.item import Shown

KINDS = ("forced_choice", "trust", "which_model", "forward", "counterfactual", "remove_words")
PAIRS = ("forced_choice", "which_model")
"""Kinds in which two explanations stand side by side."""

SIMULATIONS = ("forward", "counterfactual")
"""Kinds in which a person predicts the model's answer."""

SIDES = ("first", "second")
STEPS = 5
QUESTIONS = {
    "forced_choice": "Which of the two explanations says better why the model answered as it did?",
    "trust": "How far do you trust this answer of the model?",
    "which_model": "Which of the two models is the more reliable one?",
    "forward": "What does the model answer?",
    "counterfactual": "What does the model answer for the changed text?",
    "remove_words": "Which words should the model not use? Mark them.",
}
CONSENT = (
    "You will read short texts with a model's predictions and explanations, and rate them. "
    "Your answers and how long you took are kept in this page under a random code, without your name, until "
    "you hand them in yourself. You can stop at any time; then nothing is kept."
)
CHECK_WORDS = ("please", "mark", "only", "the", "word", "apple")
"""The text of an attention check of `remove_words`. The right answer marks its last word."""

_NEEDED = {
    "forced_choice": ("prediction",),
    "trust": ("prediction",),
    "which_model": (),
    "forward": ("prediction",),
    "counterfactual": ("prediction", "changed", "changed_prediction"),
    "remove_words": (),
}

_TOLD = 0.9
"""From this balanced accuracy on, the summed values count as a statement of the class."""

_FEWEST, _ENOUGH = 4, 8
"""Items from which on the sums are compared at zero, and at the best threshold."""


def require_fields(kind: str, items: Sequence[Item], name: str) -> None:
    """Refuse items without a field that their kind shows or scores.

    Raises:
        ValueError: The message names item and field.
    """
    for number, item in enumerate(items):
        for field in _NEEDED[kind]:
            if not getattr(item, field):
                raise ValueError(f"{name}[{number}] has no {field}, which {kind!r} needs.")
        if kind == "which_model" and item.better not in (0, 1):
            raise ValueError(
                f"{name}[{number}].better is {item.better!r}: say which model is better, 0 or 1."
            )
        if kind != "which_model" and not isinstance(item.prediction, str):
            raise TypeError(f"{name}[{number}].prediction is not a text: only 'which_model' takes a pair.")


def labels_of(kind: str, items: Sequence[Item], labels: Sequence[str] | None) -> tuple[str, ...]:
    """Return the labels that a person chooses from in a simulation; () in other kinds.

    Args:
        kind: The kind of the study.
        items: The items and practice items.
        labels: The labels of the study; None: the predictions of the items, sorted.

    Raises:
        ValueError: There are fewer than two labels, a label is repeated, or a prediction is not a label.
    """
    if kind not in SIMULATIONS:
        return ()
    predictions = {str(getattr(item, name)) for item in items for name in _NEEDED[kind] if name != "changed"}
    labels = tuple(sorted(predictions)) if labels is None else tuple(str(label) for label in labels)
    if len(labels) < 2 or len(set(labels)) < len(labels):  # noqa: PLR2004 - a choice is of two
        raise ValueError(
            f"labels {list(labels)}: a choice needs two or more labels, each once; give labels=[...], or "
            "items with several predictions."
        )
    if predictions - set(labels):
        raise ValueError(f"labels {list(labels)} lack the predictions {sorted(predictions - set(labels))}.")
    return labels


def truth_of(kind: str, item: Item, words: Sequence[str], number: int) -> Any:
    """Return the right answer to an item, of the type that `is_answer` accepts; None if there is none."""
    if kind == "forward":
        return item.prediction
    if kind == "counterfactual":
        return item.changed_prediction
    if kind == "which_model":
        return item.better
    if kind == "remove_words" and item.remove:
        return words_to_remove(item, words, number)
    return None


def check_answers(kind: str, labels: Sequence[str], count: int, seed: int) -> list[Any]:
    """Return the answer that each of `count` attention checks asks for."""
    if kind == "remove_words":
        return [[len(CHECK_WORDS) - 1]] * count
    options: Sequence[Any] = labels or (SIDES if kind in PAIRS else (2, 4, 1, 5))
    return [options[(number + seed) % len(options)] for number in range(count)]


def is_answer(kind: str, answer: Any, labels: Sequence[str], words: int) -> bool:
    """Return whether a value is a valid answer to a trial of this kind, whose text has `words` words."""
    if kind == "trust":
        return isinstance(answer, int) and not isinstance(answer, bool) and 1 <= answer <= STEPS
    if kind == "remove_words":
        return (
            isinstance(answer, list)
            and all(isinstance(item, int) and 0 <= item < words for item in answer)
            and sorted(set(answer)) == answer
        )
    return answer in (labels or SIDES)


def score(kind: str, truth: Any, answer: Any, side: int) -> float | None:
    """Return the score of an answer.

    Returns:
        forced_choice: 1 where the first condition of the pair was chosen; trust: 1 to 5; remove_words: the
        Jaccard similarity of the marked words and the words to remove; otherwise 1 where the answer is right.
        None without a right answer.
    """
    if kind == "trust":
        return float(answer)
    if kind == "forced_choice":
        return float(SIDES.index(answer) == side)
    if truth is None:
        return None
    if kind == "which_model":
        return float((SIDES.index(answer) ^ side) == truth)
    if kind == "remove_words":
        union = set(answer) | set(truth)
        return len(set(answer) & set(truth)) / len(union)
    return float(answer == truth)


def named(label: str, text: str) -> bool:
    """Return whether a text contains a label as a whole word, in upper or lower case."""
    return bool(re.search(rf"(?<!\w){re.escape(label.casefold())}(?!\w)", text.casefold()))


def refuse_named(
    items: Sequence[Item], condition: str, shown: Sequence[Shown], labels: Sequence[str]
) -> None:
    """Refuse explanations that contain a label which their text does not contain.

    Raises:
        ValueError: The message names item, condition and label.
    """
    for number, (item, entry) in enumerate(zip(items, shown, strict=True)):
        explanation = " ".join((*entry.words, entry.text))
        text = item.text if entry.words else ""  # a sentence is not a part of the text
        for label in labels:
            if label and named(label, explanation) and not named(label, text):
                raise ValueError(
                    f"items[{number}] in condition {condition!r} gives the answer away: what is shown holds "
                    f"the label {label!r}. Leave the label out of the explanation."
                )


def refuse_coloured(items: Sequence[Item], condition: str, shown: Sequence[Shown]) -> None:
    """Refuse signed explanations whose colours state the class.

    The colours state the class where the sum of the shown values separates the predictions, whatever the
    words are. Explanations of a fixed class ("positive" in every item) do so; explanations of each item's
    prediction do not.

    Raises:
        ValueError: The message says in how many items, and how to avoid it.
    """
    if not any(entry.signed for entry in shown):
        return
    sums = np.array([sum(entry.values) for entry in shown])
    answers = np.array([str(item.prediction) for item in items])
    classes = sorted(set(answers.tolist()))
    if len(classes) < 2 or len(items) < _FEWEST:  # noqa: PLR2004 - there is nothing to tell apart
        return
    # With a few items, some threshold nearly always separates the classes by chance.
    limits = sums if len(items) >= _ENOUGH else np.zeros(1)
    for label in classes:
        positive, negative = sums[answers == label], sums[answers != label]
        accuracies = [((positive >= limit).mean() + (negative < limit).mean()) / 2 for limit in limits]
        best = int(np.argmax(accuracies))
        if accuracies[best] >= _TOLD:
            right = int((positive >= limits[best]).sum() + (negative < limits[best]).sum())
            raise ValueError(
                f"condition {condition!r} gives the answer away: in {right} of {len(items)} items the shown "
                f"values sum to more exactly where the model answers {label!r}, so the colours state the "
                "class. Explain each item's own prediction (target=None), or show amounts: "
                "study(..., signed=False)."
            )


def refuse_told(kind: str, items: Sequence[Item], practice: Sequence[Item]) -> None:
    """Refuse a simulation that asks for a model's answer which it shows elsewhere.

    Practice items show their right answer, and a counterfactual simulation shows the prediction for every
    unchanged text.

    Raises:
        ValueError: The message names the item, and where its answer is shown.
    """
    if kind not in SIMULATIONS:
        return
    told: dict[str, tuple[str, int]] = {}
    for name, group in (("items", items), ("practice", practice)):
        for number, item in enumerate(group):
            if kind == "counterfactual":
                told.setdefault(_normalised(item.text), (name, number))
            if name == "practice":
                told.setdefault(_normalised(_question(kind, item)), (name, number))
    for number, item in enumerate(items):
        question = _question(kind, item)
        name, index = told.get(_normalised(question), ("", -1))
        if (name, index) == ("items", number):
            raise ValueError(f"items[{number}].changed is its own text, whose answer is shown: change it.")
        if name:
            raise ValueError(
                f"items[{number}] asks what the model answers to {quoted(question)}, and {name}[{index}] "
                "shows it. Leave one of them out."
            )


def repeated(kind: str, items: Sequence[Item], practice: Sequence[Item]) -> Iterator[str]:
    """Yield a note if a person reads a text twice."""
    names_by_text: dict[tuple[str, str], list[str]] = {}
    for name, group in (("items", items), ("practice", practice)):
        for number, item in enumerate(group):
            changed = _normalised(item.changed) if kind == "counterfactual" else ""
            names_by_text.setdefault((_normalised(item.text), changed), []).append(f"{name}[{number}]")
    twice = [(key, names) for key, names in names_by_text.items() if len(names) > 1 and "items" in names[0]]
    if twice:
        (text, _), names = twice[0]
        more = f" (and so {len(twice) - 1} more)" if len(twice) > 1 else ""
        yield (
            f"{', '.join(names[:-1])} and {names[-1]} have one text, {quoted(text)}{more}: who has met it "
            "does not answer it afresh, and intervals take items for different texts. Keep one of them: "
            "every item is shown in every condition anyway, to different people"
        )


def _question(kind: str, item: Item) -> str:
    return item.changed if kind == "counterfactual" else item.text


def _normalised(text: str) -> str:
    """Return a text in lower case with single spaces, since texts that differ in these read the same."""
    return " ".join(text.split()).casefold()
