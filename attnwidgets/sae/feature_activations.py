"""FeatureActivations: which features of an SAE fire on which tokens, and how much."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed, pick, position
from attnwidgets.explanations.explanation import Explanation, restore_common
from attnwidgets.explanations.results.aggregation import new_unit, regroup
from attnwidgets.explanations.results.arrays import Array, as_floats, read_only, require_finite
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.description import describe_axis, restore_axis
from attnwidgets.tracing.text.units import TokenAxis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Self

    from attnwidgets.explanations.results.aggregation import Spans
    from attnwidgets.explanations.results.tables import Columns
    from attnwidgets.tracing.text.units import Unit

_SHOWN = 5  # features of a picture


class Fired(NamedTuple):
    """A feature and its activation."""

    feature: int
    activation: float


class FeatureActivations(Explanation):
    """Activations [token, feature], of which only those that are not zero are kept.

    Args:
        values: [token, feature]: numpy, torch or lists, or a sparse matrix of scipy. Zeros are left out.
        axis: The axis of the tokens, or their labels.
        error: [token], the length of what the SAE misses of a state, divided by the state's; or None.
        unit: The unit of the axis.
        method, stack, provenance, trace_id, warning, predictions: see `Explanation`.

    Raises:
        ValueError: Where shapes and labels do not agree, or a value is NaN or infinite.
    """

    kind = "FeatureActivations"
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
            raise ValueError(f"unit {unit!r} is not on the axis, which has {listed(axis.units)}.")
        dtype = common.get("dtype") or "float32"
        ends, features, activations, shape = _compressed(values, dtype)
        if shape[0] != len(axis.units[unit]):
            raise ValueError(
                f"values has {shape[0]} rows; the axis has {len(axis.units[unit])} elements, one for each "
                f"{unit}."
            )
        require_finite(activations, "values")
        missed = None if error is None else np.array(as_floats(error, dtype))
        if missed is not None and missed.shape != shape[:1]:
            raise ValueError(
                f"error has shape {missed.shape}; one number is taken for each of {shape[0]} tokens."
            )
        self._set_common(unit=unit, method=method, **common)
        self._set(
            axis=axis,
            d_sae=shape[1],
            error=None if missed is None else read_only(missed),
            _ends=ends,
            _features=features,
            _activations=read_only(activations),
        )

    # What every explanation has.

    @property
    def shape(self) -> tuple[int, ...]:
        """Tokens, features."""
        return (len(self._ends), self.d_sae)

    @property
    def axis_names(self) -> tuple[str, ...]:
        """("token", "feature")."""
        return ("token", "feature")

    @property
    def values(self) -> Array:
        """[token, feature], dense (float32, read-only); made anew when asked for."""
        dense = np.zeros(self.shape, dtype=np.float32)
        dense[self._rows, self._features] = self._activations
        return read_only(dense)

    @property
    def _rows(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self._ends)), self.l0)

    @property
    def source_unit(self) -> Unit:
        """The elements of the axis."""
        return self.axis.units[self.unit]

    @property
    def labels(self) -> tuple[str, ...]:
        """Display strings of the tokens."""
        return self.source_unit.labels

    @property
    def l0(self) -> NDArray[np.int64]:
        """How many features fire on every token [token]."""
        return np.diff(self._ends, prepend=0)

    @property
    def skips_first(self) -> bool:
        """Whether the first token is a decoder's, on whose states no SAE is trained."""
        return bool(self.provenance["options"].get("skip_first"))

    @property
    def features(self) -> tuple[int, ...]:
        """The features that fire on any token, rising."""
        return tuple(int(number) for number in np.unique(self._features))

    # What is asked of features.

    def top(self, token: int | str, k: int = 10) -> tuple[Fired, ...]:
        """Return the features that fire most on a token, the strongest first; as many as fire, up to `k`.

        Args:
            token: Its place in this unit (negative: from the end), or its label where only one has it.
            k: How many.

        Raises:
            IndexError: Where there is no such token.
            ValueError: Where a label is several tokens', or none's, or `k` is below 1.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}.")
        return self._row(self._place(token), k)

    def rows(self, k: int) -> list[tuple[Fired, ...]]:
        """Return `top` of every token: the up to `k` features that fire most on it, the strongest first."""
        return [self._row(place, k) for place in range(len(self.labels))]

    def _row(self, place: int, k: int) -> tuple[Fired, ...]:
        row = slice(int(self._ends[place] - self.l0[place]), int(self._ends[place]))
        return _strongest(self._features[row], self._activations[row], k)

    def _place(self, token: int | str) -> int:
        if not isinstance(token, str):
            return position(token, range(len(self.labels)), self.unit)
        places = [place for place, label in enumerate(self.labels) if label == token]
        places = places or [
            place for place, label in enumerate(self.labels) if label.strip("␣ ") == token.strip()
        ]
        if len(places) != 1:
            found = (
                f"is at {', '.join(map(str, places))}: name one by its place" if places else "is not there"
            )
            near = "" if places else suggest(token, self.labels)
            raise ValueError(f"{self.unit} {token!r} {found}.{near}")
        return places[0]

    def ranked(self, k: int = 10, *, special: bool = False) -> tuple[Fired, ...]:
        """Return the features with the largest activation anywhere in the text, the strongest first.

        Args:
            k: How many.
            special: Whether special tokens, and the first one of a decoder, count: SAEs are rarely trained on
                them, and mean little there.
        """
        counted = np.ones(len(self.labels), dtype=bool)
        if not special:
            counted = ~np.array(self.source_unit.special, bool)
            counted[:1] &= not self.skips_first
        inside = counted[self._rows]
        largest = np.zeros(self.d_sae, dtype=np.float32)
        np.maximum.at(largest, self._features[inside], self._activations[inside])
        numbers = np.flatnonzero(largest)
        return _strongest(numbers, largest[numbers], k)

    def feature(self, feature: int | Iterable[int]) -> Attributions:
        """Return activations of one feature [token], or of several [feature, token], as a strip shows them.

        Raises:
            IndexError: Where there is no such feature.
        """
        many = isinstance(feature, Iterable)
        numbers = pick(feature, range(self.d_sae), "feature")
        rows = np.zeros((len(numbers), len(self.labels)), dtype=np.float32)
        for row, number in zip(rows, numbers, strict=True):
            at = self._features == number
            row[self._rows[at]] = self._activations[at]
        names = [f"feature {number}" for number in numbers]
        common = self._common()
        return Attributions(
            rows if many else rows[0], axis=self.axis, target=names if many else names[0], **common
        )

    def to(self, unit: str | Unit | Spans) -> FeatureActivations:
        """Return activations in a coarser unit: the largest of a feature over the pieces.

        Args:
            unit: A unit's name (see `available_units`), a Unit, or spans of tokens as pairs (start, end), the
                end not included: `.to([(0, 2), (2, 6)])` reads six tokens as two elements.

        Raises:
            TypeError: For spans that are no pairs of numbers.
            ValueError: Where the unit is unknown, finer than the present one, or does not divide the tokens:
                one lies in no span or in several, or a span leaves the axis.
        """
        if not isinstance(unit, str):
            unit = new_unit(unit, self.axis, self.unit, "token")
            axis = dataclasses.replace(self.axis, units={**self.axis.units, unit.name: unit})
            same = FeatureActivations(self._matrix(), axis=axis, error=self.error, **self._common())
            return same.to(unit.name)
        if unit == self.unit:
            return self
        groups = regroup(self.source_unit, self.axis.units[unit]) if unit in self.axis.units else None
        if groups is None:
            offered = self.available_units()
            near = suggest(unit, offered)
            raise ValueError(f"unit {unit!r} is not offered; these can be read by {listed(offered)}.{near}")
        dense = self.values
        zero = np.zeros(self.d_sae, dtype=np.float32)
        rows = np.stack([dense[list(group)].max(axis=0) if group else zero for group in groups])
        common = self._common(f"by {unit} (largest over pieces)") | {"unit": unit}
        return FeatureActivations(rows, axis=self.axis, **common)

    def available_units(self) -> tuple[str, ...]:
        """Return the units that these activations can be read in."""
        return tuple(n for n, unit in self.axis.units.items() if regroup(self.source_unit, unit) is not None)

    def _columns(self) -> Iterator[Columns]:
        """Yield what fires: token_index, token, feature, activation."""
        rows = self._rows
        yield {
            "token_index": rows,
            "token": np.asarray(self.labels, dtype=object)[rows],
            "feature": self._features,
            "activation": self._activations,
        }

    # Files and pictures.

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and the arrays."""
        described = self._describe_common() | {"axis": describe_axis(self.axis), "d_sae": self.d_sae}
        arrays: dict[str, Any] = {
            "ends": self._ends,
            "features": self._features,
            "activations": self._activations,
        }
        return described, arrays if self.error is None else arrays | {"error": self.error}

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the activations that `to_description` described."""
        shape = (len(arrays["ends"]), described["d_sae"])
        return cls(
            _sparse(arrays["ends"], arrays["features"], arrays["activations"], shape),
            axis=restore_axis(described["axis"]),
            error=arrays.get("error"),
            **restore_common(described),
        )

    def _shown(self) -> Attributions:
        """Return the strips of the features that fire most."""
        numbers = [fired.feature for fired in self.ranked(_SHOWN)] or [0]
        return self.feature(numbers if len(numbers) > 1 else numbers[0])

    def plot(self, **options: Any) -> Figure:
        """Return a matplotlib figure of the features that fire most; of others: `.feature(j).plot()`."""
        return self._shown().plot(**options)

    def _matrix(self) -> Any:
        return _sparse(self._ends, self._features, self._activations, self.shape)

    def _png(self) -> dict[str, Any]:
        return self._shown()._png()  # noqa: SLF001 - of one's own kind


def _compressed(
    values: Any, dtype: str
) -> tuple[NDArray[np.int64], NDArray[np.int32], Array, tuple[int, int]]:
    """Return where rows end, the columns and the values of what is not zero, and the shape."""
    if not hasattr(values, "tocsr"):
        array = as_floats(values, dtype)
        if array.ndim != 2:  # noqa: PLR2004 - token and feature
            raise ValueError(f"values has shape {array.shape}; taken is [token, feature].")
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
    """Return a sparse matrix of scipy; ValueError where the parts do not describe one."""
    from scipy.sparse import csr_array

    return csr_array((activations, features, np.concatenate([[0], ends])), shape=tuple(shape))


def _strongest(features: Any, activations: Any, k: int) -> tuple[Fired, ...]:
    order = np.argsort(-np.asarray(activations, dtype=np.float64), kind="stable")[:k]
    return tuple(Fired(int(features[place]), float(activations[place])) for place in order)
