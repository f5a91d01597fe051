"""Agreement: how alike explanations rank, each against every other, as a labelled matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import listed
from attnwidgets.explanations.explanation import Explanation, restore_common
from attnwidgets.explanations.results.arrays import Array, as_floats, read_only
from attnwidgets.figures.html_tables import cell, table, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd
    from matplotlib.figure import Figure
    from typing_extensions import Self

    from attnwidgets._tables import Columns
    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.explanations.explanation import Outcomes

CAVEAT = (
    "Agreement says that methods rank the elements of this text alike. It does not say that any of them is "
    "right: methods that share an ingredient (the attention weights, the size of embeddings, a sink at a "
    "special token, the position) agree for that reason, and may be wrong together. Disagreement does not "
    "say which method to doubt, nor that one is wrong: if several elements carry the same evidence, faithful "
    "methods may choose among them differently. Whether a method is faithful is a question for the model "
    "(remove what it names and see), not for another method. One text says little about others."
)
TITLES = {
    "spearman": "Spearman's rank correlation",
    "kendall": "Kendall's tau-b",
    "top_k": "overlap of the highest",
}
_LABELS = ("names", "measure", "k", "n_elements", "n_rows")


class Agreement(Explanation):
    """How alike explanations rank their elements [item, item]: symmetric, 1 on the diagonal, never NaN.

    Args:
        values: [item, item]; copied.
        names: Names of the items.
        measure: "spearman", "kendall" (-1 to 1, 0 by chance) or "top_k" (0 to 1, see `chance`).
        k: Number of elements that "top_k" compares.
        n_elements: Number of elements ranked, in the longest row.
        n_rows: Number of rankings averaged over.
        unit: Unit of the elements.
        method: Name of the method.
        stack: Stack of the elements.
        provenance: How the numbers were computed; see `Explanation`.
        trace_id: The trace that they belong to.
        warning: A caveat, or "".
        predictions: The model's predictions.
        dtype: "float32" or "float64".

    Raises:
        ValueError: If the matrix does not fit the names.
    """

    kind = "Agreement"
    names: tuple[str, ...]
    measure: str
    k: int | None
    n_elements: int
    n_rows: int
    _exact: Float

    def __init__(
        self,
        values: Any,
        *,
        names: Sequence[str],
        measure: str,
        k: int | None = None,
        n_elements: int,
        n_rows: int = 1,
        unit: str = "token",
        method: str = "agreement",
        stack: str = "self",
        provenance: Mapping[str, Any] | None = None,
        trace_id: str = "",
        warning: str = "",
        predictions: Outcomes | None = None,
        dtype: str | None = None,
    ) -> None:
        array = np.array(values, dtype=np.float64)
        if array.shape != (len(names), len(names)) or not np.isfinite(array).all():
            raise ValueError(
                f"values has shape {array.shape}; it must be finite numbers [item, item] of {listed(names)}."
            )
        array.flags.writeable = False
        self._set_common(
            unit=unit,
            method=method,
            stack=stack,
            provenance=provenance,
            trace_id=trace_id,
            warning=warning,
            predictions=predictions,
            dtype=dtype,
        )
        self._set(
            names=tuple(names),
            measure=measure,
            k=k,
            n_elements=int(n_elements),
            n_rows=int(n_rows),
            _exact=array,
        )

    @property
    def axis_names(self) -> tuple[str, ...]:
        """("item", "item")."""
        return ("item", "item")

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(self._exact.shape)

    @property
    def values(self) -> Array:
        """[item, item] in float32 (read-only); `.matrix` has float64."""
        return read_only(as_floats(self._exact, "float32"))

    @property
    def matrix(self) -> Float:
        """[item, item] in float64 (read-only)."""
        return self._exact

    @property
    def caveat(self) -> str:
        """The conclusions that agreement does and does not allow."""
        return CAVEAT

    @property
    def chance(self) -> float:
        """Mean score of two unrelated rankings: 0 for a correlation, k/n for the overlap (longest row)."""
        return 0.0 if self.k is None else self.k / self.n_elements

    @property
    def title(self) -> str:
        """The measure and the elements that it covers."""
        measure = TITLES.get(self.measure, self.measure) + (f" {self.k}" if self.k is not None else "")
        rows = f", mean over {self.n_rows} rows" if self.n_rows > 1 else ""
        return f"{measure} of {self.n_elements} {self.unit}s{rows}"

    def between(self, first: str, second: str) -> float:
        """Return the agreement of two items by name.

        Raises:
            KeyError: If the item is unknown; the message lists the items.
        """
        for name in (first, second):
            if name not in self.names:
                raise KeyError(f"{name!r} is not an item; the items are {listed(self.names)}.")
        return float(self._exact[self.names.index(first), self.names.index(second)])

    def _columns(self) -> Iterator[Columns]:
        """Yield the matrix with names on both sides."""
        yield {"": list(self.names), **dict(zip(self.names, self._exact.T, strict=True))}

    def to_dataframe(self) -> pd.DataFrame:
        """Return the matrix as a pandas DataFrame with names on both sides."""
        return super().to_dataframe().set_index("").rename_axis(None)

    def figure(self, title: str | None = None) -> Figure:
        """Return a matplotlib figure of the matrix, with its numbers.

        Args:
            title: Heading; by default the measure and the elements that it covers.
        """
        from attnwidgets.figures.drawing import colour_scale, figure_of, heading, label_axis, put
        from attnwidgets.figures.palettes import ink_on

        n = len(self.names)
        figure = figure_of(None, 2.4 + 0.55 * n, 1.6 + 0.45 * n)
        axes = figure.subplots()
        signed = self.k is None
        colours, scale = colour_scale(self._exact, signed=signed, cmap=None, vmin=None, vmax=1.0)
        image = axes.imshow(self._exact, cmap=colours, norm=scale)
        for (row, column), value in np.ndenumerate(self._exact):
            ink = ink_on(colours(scale(value)))
            put(axes.text, column, row, f"{value:.2f}", ha="center", va="center", color=ink, fontsize=7)
        label_axis(axes.set_xticks, self.names, rotation=45, ha="right", fontsize=7)
        label_axis(axes.set_yticks, self.names, fontsize=7)
        figure.colorbar(image, ax=axes, fraction=0.05)
        heading(axes, title or self.title)
        return figure

    def _repr_html_(self) -> str:
        rows = (
            [cell(name, header=True, limit=60)]
            + [cell(f"{value:.2f}", tint=value, title=f"{value:.4f}") for value in values]
            for name, values in zip(self.names, self._exact, strict=True)
        )
        chance = f" (by chance {self.chance:.2f})" if self.k is not None else ""
        names = [text(name, 60) for name in self.names]
        return table(["", *names], rows, [f"{self.title}{chance}", self.warning, self.caveat])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and the array."""
        labels = {name: getattr(self, name) for name in _LABELS}
        arrays: dict[str, Any] = {"values": self._exact}
        return self._describe_common() | labels | {"names": list(self.names)}, arrays

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the agreement that `to_description` described."""
        labels = {name: described[name] for name in _LABELS}
        return cls(arrays["values"], **labels, **restore_common(described))
