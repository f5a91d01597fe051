"""What gives an answer away in a study: explanations, items that tell it, and texts that come twice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets._errors import quoted
from attnwidgets.people.kinds import SIMULATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnwidgets.people.item import Item, Shown

_TOLD = 0.9
"""From this balanced accuracy on, the sum counts as a statement of the class."""
_FEWEST, _ENOUGH = 4, 8


def named(label: str, text: str) -> bool:
    """Return whether a text holds a label as a word of its own, in any case."""
    return bool(re.search(rf"(?<!\w){re.escape(label.casefold())}(?!\w)", text.casefold()))


def refuse_named(
    items: Sequence[Item], condition: str, shown: Sequence[Shown], labels: Sequence[str]
) -> None:
    """Refuse explanations that hold a label which their text does not hold.

    Raises:
        ValueError: The message names item, condition and label.
    """
    for number, (item, one) in enumerate(zip(items, shown, strict=True)):
        said = " ".join((*one.words, one.text))
        texts = item.text if one.words else ""  # a sentence is not a part of the text
        for label in labels:
            if label and named(label, said) and not named(label, texts):
                raise ValueError(
                    f"items[{number}] in condition {condition!r} gives the answer away: what is shown holds "
                    f"the label {label!r}. Leave the label out of the explanation."
                )


def refuse_coloured(items: Sequence[Item], condition: str, shown: Sequence[Shown]) -> None:
    """Refuse signed explanations whose colours state the class.

    They do where the sum of the shown values tells the predictions apart, whatever the words are:
    explanations of one fixed class ("positive" in every item) do, those of each item's own prediction do not.

    Raises:
        ValueError: The message says in how many items, and what to do.
    """
    if not any(one.signed for one in shown):
        return
    sums = np.array([sum(one.values) for one in shown])
    answers = np.array([str(item.prediction) for item in items])
    classes = sorted(set(answers.tolist()))
    if len(classes) < 2 or len(items) < _FEWEST:  # noqa: PLR2004 - there is nothing to tell apart
        return
    # Of a few items, some threshold nearly always tells the classes apart by chance.
    limits = sums if len(items) >= _ENOUGH else np.zeros(1)
    for label in classes:
        own, other = sums[answers == label], sums[answers != label]
        told = [((own >= limit).mean() + (other < limit).mean()) / 2 for limit in limits]
        best = int(np.argmax(told))
        if told[best] >= _TOLD:
            right = int((own >= limits[best]).sum() + (other < limits[best]).sum())
            raise ValueError(
                f"condition {condition!r} gives the answer away: in {right} of {len(items)} items the shown "
                f"values sum to more exactly where the model answers {label!r}, so the colours state the "
                "class. Explain each item's own prediction (target=None), or show amounts: "
                "study(..., signed=False)."
            )


def refuse_told(kind: str, items: Sequence[Item], practice: Sequence[Item]) -> None:
    """Refuse a simulation that asks for an answer which it shows elsewhere.

    Practice items tell theirs, and a counterfactual simulation shows what the model made of every text.

    Raises:
        ValueError: The message names the item, and where its answer is shown.
    """
    if kind not in SIMULATIONS:
        return
    told: dict[str, tuple[str, int]] = {}
    for name, group in (("items", items), ("practice", practice)):
        for number, item in enumerate(group):
            if kind == "counterfactual":
                told.setdefault(_read(item.text), (name, number))
            if name == "practice":
                told.setdefault(_read(_question(kind, item)), (name, number))
    for number, item in enumerate(items):
        question = _question(kind, item)
        name, place = told.get(_read(question), ("", -1))
        if (name, place) == ("items", number):
            raise ValueError(f"items[{number}].changed is its own text, whose answer is shown: change it.")
        if name:
            raise ValueError(
                f"items[{number}] asks what the model answers to {quoted(question)}, and {name}[{place}] "
                "shows it. Leave one of them out."
            )


def repeated(kind: str, items: Sequence[Item], practice: Sequence[Item]) -> Iterator[str]:
    """Yield what is to be said of texts that a person reads twice."""
    places: dict[tuple[str, str], list[str]] = {}
    for name, group in (("items", items), ("practice", practice)):
        for number, item in enumerate(group):
            key = (_read(item.text), _read(item.changed) if kind == "counterfactual" else "")
            places.setdefault(key, []).append(f"{name}[{number}]")
    twice = [(key, names) for key, names in places.items() if len(names) > 1 and "items" in names[0]]
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


def _read(text: str) -> str:
    """Return a text as people tell it from others: without its case and its spaces."""
    return " ".join(text.split()).casefold()
