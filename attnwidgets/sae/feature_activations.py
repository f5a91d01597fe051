"""FeatureActivations: which features of an SAE fire on which tokens, and how strongly."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._errors import renamed, suggest
from attnwidgets._selecting import element, listed, pick
from attnwidgets.explanations.explanation import Explanation, restore_common
from attnwidgets.explanations.results.arrays import Array, as_floats, read_only, require_finite
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.description import describe_axis, restore_axis
from attnwidgets.explanations.results.units import new_unit, regroup
from attnwidgets.tracing.text.units import TokenAxis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Self

    from attnwidgets._tables import Columns
    from attnwidgets.explanations.results.units import Spans
    from attnwidgets.tracing.text.units import Unit

_SHOWN = 5  # features in a picture


class Fired(NamedTuple):
    """A feature and its activation."""

    feature: int
    activation: float


class FeatureActivations(Explanation):
    """Activations [token, feature], stored without their zeros.

    Args:
        values: Activations [token, feature]: numpy, torch or lists, or a scipy sparse matrix. Zeros are not
            stored.
        axis: The axis of the tokens, or their labels.
        error: [token], length of the reconstruction error divided by the length of the state; or None.
        unit: The unit of the axis.
        method: Name of the method.
        stack: Stack the tokens belong to: "self", "encoder", "decoder" or "cross".
        provenance: How the numbers were computed; see `Explanation`.
        trace_id: The trace the numbers belong to.
        warning: A caveat, or "".
        predictions: The model's predictions, for the views.
        dtype: Precision of the numbers: "float32" (default) or "float64".

    Raises:
        ValueError: If shapes and labels do not match, or a value is NaN or infinite.
    """

    kind = "FeatureActivations"
    viewed_by = "features.feature_view:FeatureStrip"
    axis_names = ("token", "feature")
    axis: TokenAxis
    d_sae: int
    error: Array | None
    _ends: NDArray[np.int64]
    _features: NDArray[np.int32]
    _activations: Array

    def __init__(
        self,
        values: Any,
        *,
        axis: TokenAxis | Sequence[str],
        error: Any = None,
        unit: str = "token",
        method: str = "given",
        **common: Any,
    ) -> None:
        axis = axis if isinstance(axis, TokenAxis) else TokenAxis.plain(axis, name=unit)
        if unit not in axis.units:
            raise ValueError(f"unit {unit!r} is not on the axis; its units are {listed(axis.units)}.")
        dtype = common.get("dtype") or "float32"
        ends, features, activations, shape = _compress(values, dtype)
        if shape[0] != len(axis.units[unit]):
            raise ValueError(
                f"values has {shape[0]} rows, but the axis has {len(axis.units[unit])} elements by {unit}."
            )
        require_finite(activations, "values")
        relative_error = None if error is None else np.array(as_floats(error, dtype))
        if relative_error is not None and relative_error.shape != shape[:1]:
            raise ValueError(
                f"error has shape {relative_error.shape}; it needs one number per token ({shape[0]})."
            )
        self._set_common(unit=unit, method=method, **common)
        self._set(
            axis=axis,
            d_sae=shape[1],
            error=None if relative_error is None else read_only(relative_error),
            _ends=ends,
            _features=features,
            _activations=read_only(activations),
        )

    # Required of every explanation.

    @property
    def shape(self) -> tuple[int, ...]:
        """Tokens, features."""
        return (len(self._ends), self.d_sae)

    @property
    def values(self) -> Array:
        """[token, feature], dense (float32, read-only); built on each access."""
        dense = np.zeros(self.shape, dtype=np.float32)
        dense[self._rows, self._features] = self._activations
        return read_only(dense)

    @property
    def _rows(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self._ends)), self.l0)

    @property
    def source_unit(self) -> Unit:
        """The tokens, or the elements of another unit."""
        return self.axis.units[self.unit]

    @property
    def labels(self) -> tuple[str, ...]:
        """Display strings of the tokens."""
        return self.source_unit.labels

    @property
    def l0(self) -> NDArray[np.int64]:
        """Number of active features per token [token]."""
        return np.diff(self._ends, prepend=0)

    @property
    def skips_first(self) -> bool:
        """Whether the first token is a decoder's: SAEs are not trained on its states."""
        return bool(self.provenance["options"].get("skip_first"))

    @property
    def features(self) -> tuple[int, ...]:
        """The features that fire on any token, in ascending order."""
        return tuple(int(number) for number in np.unique(self._features))

    # Questions about features.

    def strongest(self, token: int | str, k: int = 10) -> tuple[Fired, ...]:
        """Return the features that fire most strongly on a token, strongest first, at most `k`.

        Args:
            token: Index of the token in this unit (negative: from the end), or its label if that is unique.
            k: Largest number of features.

        Raises:
            IndexError: If the token is out of range.
            ValueError: If no token or several have this label, or `k` is below 1.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}.")
        return self._row(element(token, self.labels, self.unit), k)

    top = renamed("FeatureActivations.top", strongest)

    def rows(self, k: int) -> list[tuple[Fired, ...]]:
        """Return `strongest` for every token: at most `k` features, strongest first."""
        return [self._row(index, k) for index in range(len(self.labels))]

    def _row(self, index: int, k: int) -> tuple[Fired, ...]:
        row = slice(int(self._ends[index] - self.l0[index]), int(self._ends[index]))
        return _strongest(self._features[row], self._activations[row], k)

    def ranked(self, k: int = 10, *, special: bool = False) -> tuple[Fired, ...]:
        """Return the features with the largest activation anywhere in the text, strongest first.

        Args:
            k: Largest number of features.
            special: Whether special tokens and a decoder's first token count. SAEs are rarely trained on
                them, and activations there mean little.
        """
        counted = np.ones(len(self.labels), dtype=bool)
        if not special:
            counted = ~np.array(self.source_unit.special, bool)
            counted[:1] &= not self.skips_first
        on_counted = counted[self._rows]
        largest = np.zeros(self.d_sae, dtype=np.float32)
        np.maximum.at(largest, self._features[on_counted], self._activations[on_counted])
        numbers = np.flatnonzero(largest)
        return _strongest(numbers, largest[numbers], k)

    def feature(self, feature: int | Iterable[int]) -> Attributions:
        """Return the activations of a feature [token] or of several [feature, token].

        Raises:
            IndexError: If the feature is out of range.
        """
        many = isinstance(feature, Iterable)
        numbers = pick(feature, range(self.d_sae), "feature")
        rows = np.zeros((len(numbers), len(self.labels)), dtype=np.float32)
        for row, number in zip(rows, numbers, strict=True):
            stored = self._features == number
            row[self._rows[stored]] = self._activations[stored]
        names = [f"feature {number}" for number in numbers]
        common = self._common()
        return Attributions(
            rows if many else rows[0], axis=self.axis, target=names if many else names[0], **common
        )

    def to(self, unit: str | Unit | Spans) -> FeatureActivations:
        """Return activations in a coarser unit: the maximum of each feature over an element's tokens.

        Args:
            unit: Name of a unit (see `available_units`), a Unit, or spans of tokens as pairs (start, end),
                end excluded: `.to([(0, 2), (2, 6)])` reads six tokens as two elements.

        Raises:
            TypeError: If spans are not pairs of numbers.
            ValueError: If the unit is unknown, finer than the present one, or does not partition the tokens
                (a token lies in no span or in several, or a span leaves the axis).
        """
        if not isinstance(unit, str):
            unit = new_unit(unit, self.axis, self.unit, "token")
            axis = dataclasses.replace(self.axis, units={**self.axis.units, unit.name: unit})
            with_unit = FeatureActivations(self._matrix(), axis=axis, error=self.error, **self._common())
            return with_unit.to(unit.name)
        if unit == self.unit:
            return self
        groups = regroup(self.source_unit, self.axis.units[unit]) if unit in self.axis.units else None
        if groups is None:
            available = self.available_units()
            near = suggest(unit, available)
            raise ValueError(f"unit {unit!r} is not available; available are {listed(available)}.{near}")
        dense = self.values
        zero = np.zeros(self.d_sae, dtype=np.float32)
        rows = np.stack([dense[list(group)].max(axis=0) if group else zero for group in groups])
        common = self._common(f"by {unit} (largest over pieces)") | {"unit": unit}
        return FeatureActivations(rows, axis=self.axis, **common)

    def available_units(self) -> tuple[str, ...]:
        """Return the units these activations can be converted to."""
        return tuple(n for n, unit in self.axis.units.items() if regroup(self.source_unit, unit) is not None)

    def _columns(self) -> Iterator[Columns]:
        """Yield the non-zero activations: token_index, token, feature, activation."""
        rows = self._rows
        yield {
            "token_index": rows,
            "token": np.asarray(self.labels, dtype=object)[rows],
            "feature": self._features,
            "activation": self._activations,
        }

    # Files and figures.

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and its arrays."""
        described = self._describe_common() | {"axis": describe_axis(self.axis), "d_sae": self.d_sae}
        arrays: dict[str, Any] = {"ends": self._ends, "features": self._features}
        arrays |= {"activations": self._activations}
        return described, arrays if self.error is None else arrays | {"error": self.error}

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the activations described by `to_description`."""
        shape = (len(arrays["ends"]), described["d_sae"])
        return cls(
            _sparse(arrays["ends"], arrays["features"], arrays["activations"], shape),
            axis=restore_axis(described["axis"]),
            error=arrays.get("error"),
            **restore_common(described),
        )

    def _strongest_features(self) -> Attributions:
        """Return the activations of the features that fire most."""
        numbers = [fired.feature for fired in self.ranked(_SHOWN)] or [0]
        return self.feature(numbers if len(numbers) > 1 else numbers[0])

    def figure(
        self,
        *,
        target: int | str | None = None,
        ax: Axes | None = None,
        title: str | None = None,
        cmap: str | Colormap | None = None,
        vmin: float | None = None,
        vmax: float | None = None,
    ) -> Figure:
        """Return a matplotlib figure of the features that fire most; for others call `.feature(j).figure()`.

        Args:
            target: Index or label of one of these features; by default all of them.
            ax: Axes to draw into, instead of a new figure.
            title: Heading; by default the name of the method.
            cmap: A matplotlib colour map.
            vmin: Value of the first colour.
            vmax: Value of the last colour.
        """
        return self._strongest_features().figure(
            target=target, ax=ax, title=title, cmap=cmap, vmin=vmin, vmax=vmax
        )

    def _matrix(self) -> Any:
        return _sparse(self._ends, self._features, self._activations, self.shape)

    def _png(self) -> dict[str, Any]:
        return self._strongest_features()._png()  # noqa: SLF001 - also an Explanation


def _compress(values: Any, dtype: str) -> tuple[NDArray[np.int64], NDArray[np.int32], Array, tuple[int, int]]:
    """Return non-zero values as a compressed sparse matrix: ends of rows, columns, values, shape."""
    if not hasattr(values, "tocsr"):
        array = as_floats(values, dtype)
        if array.ndim != 2:  # noqa: PLR2004 - token and feature
            raise ValueError(f"values has shape {array.shape}; expected [token, feature].")
        rows, columns = np.nonzero(array)
        ends = np.cumsum(np.bincount(rows, minlength=len(array)))
        return ends, columns.astype(np.int32), array[rows, columns], (array.shape[0], array.shape[1])
    matrix = values.tocsr(copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    ends, columns = matrix.indptr[1:].astype(np.int64), matrix.indices.astype(np.int32)
    return ends, columns, as_floats(matrix.data, dtype), (int(matrix.shape[0]), int(matrix.shape[1]))


def _sparse(ends: Any, features: Any, activations: Any, shape: Any) -> Any:
    """Return a scipy sparse matrix; raises ValueError if the parts are inconsistent."""
    from scipy.sparse import csr_array

    return csr_array((activations, features, np.concatenate([[0], ends])), shape=tuple(shape))


def _strongest(features: Any, activations: Any, k: int) -> tuple[Fired, ...]:
    order = np.argsort(-np.asarray(activations, dtype=np.float64), kind="stable")[:k]
    return tuple(Fired(int(features[index]), float(activations[index])) for index in order)
