"""The difference between two traces of one input: in predictions and in attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from attnwidgets.tracing.top_logits import label_of, probabilities

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.tracing.trace import Trace


SHOWN = 100
"""Number of outputs that a difference names, of the most probable ones and of those that moved most."""


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
    """The result of `trace.diff(other)`. For equal traces every number is 0.

    Attributes:
        title: What the model predicts: "class", "next token", ..., or "".
        predictions: The most probable outputs of both and those that moved most, by how far they moved.
        total_variation: Half the sum of |p - p'| over all outputs at the predicted position, 0 to 1; NaN
            without logits.
        largest_logit_change: The largest |difference| of any logit; NaN without logits.
        attention: How far attention rows moved, by stack [layer, head]: half the sum of |a - a'| over a
            row's keys, averaged over queries, 0 to 1.
        interventions: Descriptions of the interventions in force in only one of the traces.
    """

    title: str
    predictions: tuple[Moved, ...]
    total_variation: float
    largest_logit_change: float
    attention: dict[str, NDArray[np.float64]]
    interventions: tuple[str, ...]

    @property
    def flipped(self) -> bool:
        """Whether the most probable output differs."""
        if not self.predictions:
            return False
        before = max(self.predictions, key=lambda output: output.before)
        after = max(self.predictions, key=lambda output: output.after)
        return before.id != after.id

    def __repr__(self) -> str:
        head = "; ".join(self.interventions) or "the same interventions"
        rows = [f"  {out.label!r}: {out.before:.1%} to {out.after:.1%}" for out in self.predictions[:5]]
        for stack, moved in self.attention.items():
            shares = " ".join(f"{share:.3f}" for share in np.nanmean(moved, axis=1))
            rows.append(f"  {stack} attention, share of a row that moved, by layer: {shares}")
        return "\n".join([f"{self.title or 'no prediction'} ({head}):", *rows])


def difference(first: Trace, other: Trace) -> Difference:
    """Return the difference between two traces of one input.

    Raises:
        ValueError: If their tokens or stacks differ.
    """
    for stack in first.stacks:
        tokens = [
            [axis.tokens for axis in trace.axes(stack)] if stack in trace.stacks else None
            for trace in (first, other)
        ]
        if tokens[0] != tokens[1]:
            raise ValueError(
                f"other is a trace of other tokens (stack {stack!r}); compare with trace.rerun(...), or "
                "with a trace of the same text."
            )
    moved: list[Moved] = []
    variation = largest = float("nan")
    predict = first.predictions_title and other.predictions_title
    if predict and first.logits is not None and other.logits is not None:
        before, after = (
            probabilities(trace, logits).numpy()
            for trace, logits in ((first, first.logits), (other, other.logits))
        )
        gap = np.abs(after - before)
        variation = float(gap.sum() / 2)
        largest = float((first.logits.double() - other.logits.double()).abs().max())
        labels = {output.id: output.label for trace in (first, other) for output in trace.predictions(SHOWN)}
        for number in np.argsort(-gap, kind="stable")[:SHOWN].tolist():
            labels.setdefault(number, label_of(first, number))
        moved = [
            Moved(label, float(before[number]), float(after[number]), number)
            for number, label in labels.items()
        ]
        moved.sort(key=lambda output: -abs(output.after - output.before))
    in_force = set(first.interventions) ^ set(other.interventions)
    return Difference(
        first.predictions_title,
        tuple(moved),
        variation,
        largest,
        {name: _attention(first, other, name) for name in first.stacks},
        tuple(said for said in (*first.interventions, *other.interventions) if said in in_force),
    )


def _attention(first: Trace, other: Trace, stack: str) -> NDArray[np.float64]:
    """Return how far rows moved [layer, head]; NaN for heads that a layer does not have."""
    shares = np.full((first.n_layers(stack), first.n_heads(stack)), np.nan)
    for layer in range(len(shares)):
        rows = [
            (weights.double() - other.attention_rows(layer, None, queries, stack).double()).abs().sum(-1)
            for queries, weights in first.attention_blocks(layer, stack)
        ]
        moved = torch.cat(rows, dim=-1).mean(-1) / 2
        shares[layer, : len(moved)] = moved.numpy()
    return shares
