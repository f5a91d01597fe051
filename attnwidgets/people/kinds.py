"""The kinds of studies: what each asks, which answers it takes, and how an answer is scored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.people.item import Item, places_to_remove

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("forced_choice", "trust", "which_model", "forward", "counterfactual", "remove_words")
PAIRS = ("forced_choice", "which_model")
"""Kinds in which two explanations stand side by side."""
SIMULATIONS = ("forward", "counterfactual")
"""Kinds in which a person says what the model will answer."""
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
"""The text of an attention check of `remove_words`, whose last word is to be marked."""

_NEEDED = {
    "forced_choice": ("prediction",),
    "trust": ("prediction",),
    "which_model": (),
    "forward": ("prediction",),
    "counterfactual": ("prediction", "changed", "changed_prediction"),
    "remove_words": (),
}


def require_fields(kind: str, items: Sequence[Item], name: str) -> None:
    """Refuse items that lack what a kind shows or scores.

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


def labels_of(kind: str, items: Sequence[Item], given: Sequence[str] | None) -> tuple[str, ...]:
    """Return what can be answered in a simulation; () in other kinds.

    Raises:
        ValueError: There are fewer than two, one is given twice, or a prediction is not among them.
    """
    if kind not in SIMULATIONS:
        return ()
    found = {str(getattr(item, name)) for item in items for name in _NEEDED[kind] if name != "changed"}
    labels = tuple(sorted(found)) if given is None else tuple(str(label) for label in given)
    if len(labels) < 2 or len(set(labels)) < len(labels):  # noqa: PLR2004 - a choice is of two
        raise ValueError(
            f"labels {list(labels)}: a choice needs two or more labels, each once; give labels=[...], or "
            "items with several predictions."
        )
    if found - set(labels):
        raise ValueError(f"labels {list(labels)} lack the predictions {sorted(found - set(labels))}.")
    return labels


def truth_of(kind: str, item: Item, words: Sequence[str], number: int) -> Any:
    """Return the right answer to an item; None if there is none."""
    if kind == "forward":
        return item.prediction
    if kind == "counterfactual":
        return item.changed_prediction
    if kind == "which_model":
        return item.better
    if kind == "remove_words" and item.remove:
        return places_to_remove(item, words, number)
    return None


def check_answers(kind: str, labels: Sequence[str], count: int, seed: int) -> list[Any]:
    """Return what each attention check asks to answer."""
    if kind == "remove_words":
        return [[len(CHECK_WORDS) - 1]] * count
    options: Sequence[Any] = labels or (SIDES if kind in PAIRS else (2, 4, 1, 5))
    return [options[(number + seed) % len(options)] for number in range(count)]


def is_answer(kind: str, answer: Any, labels: Sequence[str], words: int) -> bool:
    """Return whether something is an answer to a trial of this kind."""
    if kind == "trust":
        return isinstance(answer, int) and not isinstance(answer, bool) and 1 <= answer <= STEPS
    if kind == "remove_words":
        return (
            isinstance(answer, list)
            and all(isinstance(one, int) and 0 <= one < words for one in answer)
            and sorted(set(answer)) == answer
        )
    return answer in (labels or SIDES)


def score(kind: str, truth: Any, answer: Any, side: int) -> float | None:
    """Return an answer as a number.

    Returns:
        forced_choice: 1 where the first condition of the pair was chosen; trust: 1 to 5; remove_words: what
        both sets of words share by what either holds (Jaccard); otherwise 1 where the answer is right. None
        without a right answer.
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
