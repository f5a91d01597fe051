"""aw.people.fault_lines: items that explain an answer by an edit that turns it, and ask about another edit.

Akula et al. 2022, CX-ToM: Counterfactual Explanations with Theory-of-Mind for Enhancing Human Trust in Image
Recognition Models. Their dialogue shows fault-lines, the smallest changes that turn a prediction; here these
are edits of single words.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets._errors import quoted
from attnwidgets.people.item import Item

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.evaluate.minimal_edits import Edit, MinimalEdits

FAULT_LINE = "fault line"


def fault_lines(edits: Sequence[MinimalEdits], *, lines: int = 1, seed: int = 0) -> list[Item]:
    """Return items of a counterfactual study, one for each text: a turn of a dialogue in counterfactuals.

    A person reads a text and the model's answer. In the condition "fault line" they are also told which edits
    of a word turn the answer (the best flips of the text's edits). Then they say what the model answers to
    another edit, which turns the answer in every second text of each class. Who learns from fault lines how
    the model decides is right more often than who reads the text alone:

        study = aw.people.study("counterfactual", items, ["none", "fault line"])

    Args:
        edits: The result of `aw.evaluate.minimal_edits` for every text.
        lines: How many edits the explanation tells.
        seed: Seed of the other edits.

    Returns:
        An `Item` for each text, in order.

    Raises:
        ValueError: If `lines` is below 1, or a text has too few edits that turn its answer, or none that
            leaves it.

    Source: Akula et al. 2022, CX-ToM, section 3; their concepts are parts of a picture.

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> texts = ["A fine film.", "A dull plot."]
        >>> words = ["fine", "superb", "dull", "boring", "long", "new"]
        >>> edits = [aw.evaluate.minimal_edits(model, tokenizer, text, words) for text in texts]
        >>> items = aw.people.fault_lines(edits)
        >>> [item.changed_prediction == item.prediction for item in items]
        [False, False]
    """
    if lines < 1:
        raise ValueError(f"lines must be at least 1, not {lines}.")
    generator = np.random.default_rng(seed)
    items, met = [], Counter[str]()
    for number, result in enumerate(edits):
        # Of every answer, one is turned and the next is left: no answer is the right one in all items.
        turns_answer = met[result.label] % 2 == 0
        met[result.label] += 1
        shown = result.flips[:lines]
        left = [edit for edit in result.edits if edit.flips == turns_answer and edit not in shown]
        if len(shown) < lines or not left:
            kind = "turn" if turns_answer or len(shown) < lines else "leave"
            raise ValueError(
                f"edits[{number}]: too few edits of {quoted(result.text)} {kind} the answer "
                f"({len(result.flips)} of {len(result)} turn it, and {lines} are told): try more candidates."
            )
        other = left[int(generator.integers(len(left)))]
        items.append(
            Item(
                result.text,
                {FAULT_LINE: " ".join(_told(edit, result.label) for edit in shown)},
                result.label,
                changed=other.text,
                changed_prediction=other.label,
            )
        )
    return items


def _told(edit: Edit, label: str) -> str:
    return f"With {quoted(edit.new)} instead of {quoted(edit.old)} it would be {edit.label}, not {label}."
