"""aw.statistics.norm_weights: the weights of both norms of every block, and the dimensions that stand out.

Modarressi et al. 2022 (GlobEnc) explain why attention norms with the first layer norm alone correlate less
with saliency: the weights of a few dimensions of the first norm are far from the others, and those of the
second norm undo them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._selecting import at_most
from attnwidgets._tables import Table
from attnwidgets.explanations.results.trace_protocol import require_trace, resolve_stack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from attnwidgets._tables import Columns

    Float = NDArray[np.float64]

NAME = "statistics.norm_weights"
_SHOWN = 4  # dimensions that a figure names


class OutlierDimension(NamedTuple):
    """A dimension whose weights stand out.

    Attributes:
        dim: Its number.
        deviation: The largest distance of a weight from the mean of its norm, in standard deviations, signed.
        places: In how many norms it stands out, over both and all layers.
    """

    dim: int
    deviation: float
    places: int


@dataclass(frozen=True, eq=False, repr=False)
class NormWeights(Table):
    """The weights of the norms of every block.

    Attributes:
        values: Weights [norm, layer, dim] in float64; NaN where a block lacks the norm.
        norms: Names of the norms: "norm 1" of the attention, "norm 2" of the MLP.
        layers: Numbers of the layers.
        times: How many standard deviations from its norm's mean an outlier's weight is, at least.
        model: The model's name.
    """

    values: Float
    norms: tuple[str, ...]
    layers: tuple[int, ...]
    times: float
    model: str = ""

    @property
    def deviations(self) -> Float:
        """Distance of every weight from the mean of its norm, in standard deviations [norm, layer, dim]."""
        spread = self.values.std(axis=2, keepdims=True)
        shifted = self.values - self.values.mean(axis=2, keepdims=True)
        # Rounding leaves weights that are all alike a spread above zero.
        scale = np.abs(self.values).max(axis=2, keepdims=True)
        alike = spread <= np.finfo(np.float32).eps * scale
        return np.divide(shifted, spread, out=np.zeros_like(shifted), where=~alike)

    def top(self, k: int | None = 10) -> list[OutlierDimension]:
        """Return the dimensions whose weights stand out, those of the most norms first.

        Ties are ordered by the largest distance.

        Args:
            k: Largest number of dimensions; None: all.
        """
        distances = np.nan_to_num(self.deviations).reshape(-1, self.values.shape[2])
        counts = (np.abs(distances) >= self.times).sum(axis=0)
        largest = distances[np.abs(distances).argmax(axis=0), np.arange(distances.shape[1])]
        ranked = [
            OutlierDimension(int(dim), float(largest[dim]), int(counts[dim]))
            for dim in np.flatnonzero(counts)
        ]
        return at_most(sorted(ranked, key=lambda each: (-each.places, -abs(each.deviation))), k)

    def _columns(self) -> Iterator[Columns]:
        """Yield norm, layer, dim, weight, deviation; a part for every norm and layer."""
        deviations = self.deviations
        for norm, layer in np.ndindex(self.values.shape[:2]):
            n = self.values.shape[2]
            yield {
                "norm": [self.norms[norm]] * n,
                "layer": [self.layers[layer]] * n,
                "dim": list(range(n)),
                "weight": self.values[norm, layer],
                "deviation": deviations[norm, layer],
            }

    def figure(self, dims: Sequence[int] | None = None, *, columns: int = 2) -> Figure:
        """Return a matplotlib figure: for each norm, the outliers' weights over layers, and all others.

        Args:
            dims: The dimensions that are drawn; by default the four of the most norms.
            columns: How many columns of a page it takes, 1 or 2.

        Raises:
            IndexError: If a dimension is out of range.
        """
        from attnwidgets.figures.parts.lines import Line, Lines
        from attnwidgets.figures.sheet import Sheet

        drawn = [each.dim for each in self.top(_SHOWN)] if dims is None else list(dims)
        out = [dim for dim in drawn if not 0 <= dim < self.values.shape[2]]
        if out:
            raise IndexError(f"dims: {out[0]} is out of range: there are 0 to {self.values.shape[2] - 1}.")
        rest = np.delete(self.values, drawn, axis=2)
        parts = []
        for name, weights, others in zip(self.norms, self.values, rest, strict=True):
            lines = [Line(f"dimension {dim}", weights[:, dim]) for dim in drawn]
            low, high = others.min(axis=1), others.max(axis=1)
            about = "mean of the others, with their range"
            lines.append(Line(about, others.mean(1), dashed=True, low=low, high=high))
            parts.append(Lines(lines, self.layers, "layer", f"weights of {name}", tall=1.5))
        note = f"outliers are {self.times:g} standard deviations from the mean of their norm"
        return Sheet(f"Weights of the norms of {self.model}".removesuffix(" of "), parts, note).figure(
            columns
        )

    def __repr__(self) -> str:
        norms, layers, dims = self.values.shape
        named = ", ".join(f"{each.dim} (in {each.places} of {norms * layers})" for each in self.top(3))
        return f"<NormWeights [norm {norms}, layer {layers}, dim {dims}]: outliers {named or 'none'}>"


def norm_weights(trace: Any, *, times: float = 3.0, stack: str | None = None) -> NormWeights:
    """Return the weights of both norms of every block, and the dimensions whose weights stand out.

    A norm multiplies every dimension of a state by its weight (of RMS norms that add one to it, by the sum).
    Where a few weights are far from the others, the length of a state after the norm is mostly that of these
    dimensions. In BERT, the second norm undoes the effect of the first on them: this is why GlobEnc follows
    both.

    Args:
        trace: Trace returned by `aw.trace`.
        times: How many standard deviations from its norm's mean an outlier's weight is, at least.
        stack: "encoder" or "decoder" of a model with both; its default otherwise.

    Returns:
        `NormWeights` [norm, layer, dim]: `.top()` ranks the outliers, `.figure()` draws them over layers.

    Raises:
        ValueError: If `times` is not above 0, or the stack is unknown.
        UnsupportedModelError: If no description of its blocks fits the model, or no block has a norm with
            weights.
        TypeError: If `trace` is not a trace.

    Source: Modarressi et al. 2022, GlobEnc, section 5 and its figure of outlier weights; three standard
    deviations as in Kovaleva et al. 2021, BERT Busters: Outlier Dimensions that Disrupt Transformers.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat.")
        >>> weights = aw.statistics.norm_weights(trace)
        >>> weights.values.shape
        (2, 6, 384)
        >>> weights.top(1)[0].places > 6
        True
    """
    from attnwidgets.tracing.algebra.block_runs import block_of
    from attnwidgets.tracing.unsupported import UnsupportedModelError

    require_trace(trace, NAME)
    if not times > 0:
        raise ValueError(f"times must be above 0, not {times}.")
    stack = resolve_stack(trace, stack)
    layers = tuple(trace.layers(stack))
    norms = []
    for layer in layers:
        block = block_of(trace, layer, stack, NAME)
        norms.append([None if norm is None else norm.gain for norm in (block.norm1, block.norm2)])
    gains = [gain for pair in norms for gain in pair if gain is not None]
    if not gains:
        raise UnsupportedModelError(f"{NAME}: the blocks of {trace.model_id} have no norms with weights.")
    values = np.full((2, len(layers), len(gains[0])), np.nan)
    for index, pair in enumerate(norms):
        for number, gain in enumerate(pair):
            if gain is not None:
                values[number, index] = gain.detach().double().cpu().numpy()
    return NormWeights(values, ("norm 1", "norm 2"), layers, float(times), str(trace.model_id))
