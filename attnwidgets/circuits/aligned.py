"""Patching between texts of different length: tokens that correspond stand in one column."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets.circuits.set_activations import activations_of, set_activations
from attnwidgets.intervene.preview import pass_options
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.text.alignment import align

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.explanations.targets.target_set import TargetSet
    from attnwidgets.intervene.activation_sites import Site
    from attnwidgets.tracing.interventions import Intervention
    from attnwidgets.tracing.text.alignment import Alignment
    from attnwidgets.tracing.trace import Trace


def scored(trace: Trace, targets: TargetSet, interventions: Sequence[Intervention] = ()) -> float:
    """Return a target, less its foil, in a run of a trace's input under interventions."""
    model = unwrap(trace.model)
    with no_grad(), ExitStack() as exits:
        twin = exits.enter_context(borrowed(model))
        for intervention in interventions:
            exits.enter_context(intervention)
        exits.enter_context(recording(twin))
        options = pass_options(twin) | ({"output_hidden_states": True} if targets.hidden_states else {})
        outputs = trace.call(twin, trace.inputs, options, {})
        return float(targets.scores(outputs)[0].double()[0])


class AlignedTexts:
    """Two traces of different length, column by column.

    Args:
        clean: The trace of the clean text.
        corrupt: The trace of the corrupt one.
        stack: The stack whose activations are patched.

    Attributes:
        columns: The alignment.
    """

    def __init__(self, clean: Trace, corrupt: Trace, stack: str) -> None:
        self.sides, self._stack = (clean, corrupt), stack
        self.columns: Alignment = align(clean.axes(stack)[0], corrupt.axes(stack)[0])

    def tokens(self, side: int) -> tuple[str, ...]:
        """Return what every column reads in the clean text (0) or the corrupt one (1); "" for nothing."""
        return tuple(self.columns.label(column, side) for column in range(len(self.columns)))

    def sweep(
        self, sites: Sequence[Site], base: int, targets: Sequence[TargetSet]
    ) -> tuple[dict[Site, NDArray[np.float64]], tuple[float, float]]:
        """Return m(patched) - m(base) of every place, and m of both runs.

        Args:
            sites: The sites.
            base: The run that is changed: 0 for the clean one, 1 for the corrupt one.
            targets: The target as each run reads it, at its own last token.

        Returns:
            By site [layer, column], of heads [layer, head]; NaN for columns that one text lacks.
        """
        ours, other = self.sides[base], self.sides[1 - base]
        before = [scored(trace, of) for trace, of in zip(self.sides, targets, strict=True)]
        pairs = {
            number: (column.of(base)[0], column.of(1 - base)[0])
            for number, column in enumerate(self.columns.columns)
            if column.first and column.second
        }
        causal = ours.is_causal(self._stack)
        first = self.columns.differing[0] if causal and self.columns.differing else 0
        layers = ours.layers(self._stack)
        raw: dict[Site, NDArray[np.float64]] = {}
        for site in sites:
            known = activations_of(other, site, list(layers), self._stack)
            width = ours.n_heads(self._stack) if site == "head" else len(self.columns)
            raw[site] = np.full((len(layers), width), np.nan)
            for layer in progress(layers, f"patching {site}"):
                for place in self._places(site, layer, list(pairs)):
                    if site != "head" and place < first:
                        raw[site][layer, place] = 0.0  # what stands before the first difference is the same
                        continue
                    change = self._change(site, layer, place, known[layer], pairs, ours)
                    raw[site][layer, place] = scored(ours, targets[base], [change]) - before[base]
        return raw, (before[0], before[1])

    def _places(self, site: Site, layer: int, columns: list[int]) -> list[int]:
        return list(range(self.sides[0].n_heads(self._stack, layer))) if site == "head" else columns

    def _change(
        self, site: Site, layer: int, place: int, known: Any, pairs: dict[int, tuple[int, int]], ours: Trace
    ) -> Intervention:
        """Return what puts the other run's activations into one column, or into all columns of a head."""
        if site == "head":
            own, others = ([pair[side] for pair in pairs.values()] for side in (0, 1))
            numbers, heads = known[:, others], [place]
            return set_activations(ours, site, layer, numbers, tokens=own, heads=heads, stack=self._stack)
        at, from_ = pairs[place]
        return set_activations(ours, site, layer, known[[from_]], tokens=[at], stack=self._stack)
