"""What differs between two traces of one input: what is predicted, and where attention moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from attnwidgets.tracing.predictions import spelled
from attnwidgets.tracing.recording.inputs import text_tokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.tracing.trace import Trace


SHOWN = 100
"""How many of the most probable outputs, and of those that moved most, a difference names."""


class Moved(NamedTuple):
    """One possible output before and after.

    Attributes:
        label: The token or class.
        before: Its probability, 0 to 1.
        after: The same in the other trace.
        id: Its number among tokens or classes.
    """

    label: str
    before: float
    after: float
    id: int


@dataclass(frozen=True, repr=False)
class Difference:
    """What `trace.diff(other)` found. Everything is 0, and nothing moved, where the traces are equal.

    Attributes:
        title: What is predicted: "class", "next token", ..., or "".
        predictions: The most probable outputs of both and those that moved most, by how far they moved.
        total_variation: Half the sum of |p - p'| over all outputs at the place of the prediction, 0 to 1;
            NaN without logits.
        largest_logit_change: The largest |difference| of one logit, anywhere; NaN without logits.
        attention: By stack, how far rows of attention moved [layer, head]: half the sum of |a - a'| over a
            row's keys, on average over queries, 0 to 1.
        interventions: What was in force in one trace and not in the other, in words.
    """

    title: str
    predictions: tuple[Moved, ...]
    total_variation: float
    largest_logit_change: float
    attention: dict[str, NDArray[np.float64]]
    interventions: tuple[str, ...]

    @property
    def flipped(self) -> bool:
        """Whether another output is the most probable one now."""
        if not self.predictions:
            return False
        before = max(self.predictions, key=lambda one: one.before)
        after = max(self.predictions, key=lambda one: one.after)
        return before.id != after.id

    def __repr__(self) -> str:
        head = "; ".join(self.interventions) or "the same interventions"
        rows = [f"  {one.label!r}: {one.before:.1%} to {one.after:.1%}" for one in self.predictions[:5]]
        for stack, moved in self.attention.items():
            shares = " ".join(f"{share:.3f}" for share in np.nanmean(moved, axis=1))
            rows.append(f"  {stack} attention, share of a row that moved, by layer: {shares}")
        return "\n".join([f"{self.title or 'no prediction'} ({head}):", *rows])


def difference(first: Trace, other: Trace) -> Difference:
    """Return what differs between two traces of one input.

    Raises:
        ValueError: If they are of other tokens or other stacks.
    """
    for stack in first.stacks:
        same = stack in other.stacks and all(
            one.tokens == two.tokens for one, two in zip(first.axes(stack), other.axes(stack), strict=True)
        )
        if not same:
            raise ValueError(
                f"other is a trace of other tokens (stack {stack!r}); compare with trace.rerun(...), or "
                "with a trace of the same text."
            )
    title = first.predictions_title
    shares = [_shares(one) for one in (first, other)]
    nothing = shares[0] is None or shares[1] is None
    moved: list[Moved] = []
    variation = largest = float("nan")
    if shares[0] is not None and shares[1] is not None:
        gap = shares[1] - shares[0]
        variation = float(np.abs(gap).sum() / 2)
        labels = {one.id: one.label for trace in (first, other) for one in trace.predictions(SHOWN)}
        for number in np.argsort(-np.abs(gap), kind="stable")[:SHOWN].tolist():
            labels.setdefault(number, spelled(text_tokenizer(first.tokenizer), number))
        moved = [
            Moved(label, float(shares[0][number]), float(shares[1][number]), number)
            for number, label in labels.items()
        ]
        moved.sort(key=lambda one: -abs(one.after - one.before))
    if not nothing and first.logits is not None and other.logits is not None:
        largest = float((first.logits.double() - other.logits.double()).abs().max())
    then, now = first.interventions, other.interventions
    return Difference(
        title,
        tuple(moved),
        variation,
        largest,
        {name: _attention(first, other, name) for name in first.stacks},
        tuple(one for one in (*then, *now) if (one in then) != (one in now)),
    )


def _shares(trace: Trace) -> NDArray[np.float64] | None:
    """Return the probability of every output at the place of the prediction."""
    if trace.logits is None or not trace.predictions_title:
        return None
    row = trace.logits.double()
    if row.dim() > 1:
        row = row[_row(trace, row)]
    config = getattr(trace.model, "config", None)
    several = trace.predictions_title == "class" and (
        getattr(config, "problem_type", None) == "multi_label_classification"
    )
    return (row.sigmoid() if several else row.softmax(-1)).numpy()


def _row(trace: Trace, logits: Tensor) -> int:
    """Return the row of the logits that the predictions are of."""
    title = trace.predictions_title
    return int(title.rsplit(" ", 1)[1]) if " at " in title else len(logits) - 1


def _attention(first: Trace, other: Trace, stack: str) -> NDArray[np.float64]:
    """Return how far rows moved [layer, head]; NaN for heads that a layer does not have."""
    found = np.full((first.n_layers(stack), first.n_heads(stack)), np.nan)
    for layer in range(len(found)):
        rows = [
            (weights.double() - other.attention_rows(layer, None, place, stack).double()).abs().sum(-1)
            for place, weights in first.attention_blocks(layer, stack)
        ]
        moved = torch.cat(rows, dim=-1).mean(-1) / 2
        found[layer, : len(moved)] = moved.numpy()
    return found
