"""FeatureStats: how every feature of an SAE fires on a corpus.

The arrays are the state of a `Tally` with statistics of the directions, row by row for the counted features;
`_AXES` names their axes. `feature` assembles the `FeatureSummary` of a feature from its rows. Files are
checked when they are read (`require_whole`), since they may be damaged.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import position
from attnwidgets.explanations.explanation import Explanation, restore_common
from attnwidgets.explanations.results.arrays import Array, read_only
from attnwidgets.sae.corpus_statistics.summary import (
    BINS,
    INTERVALS,
    NONE,
    Companion,
    Example,
    FeatureSummary,
    Interval,
    LogitEffect,
    Neighbour,
)
from attnwidgets.tracing.text.display import display, pieces_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Self

    from attnwidgets._tables import Columns

# Axes of the arrays; axes of the same name have the same length.
_FEATURE = "feature"
_AXES = {
    **dict.fromkeys(("features", "count", "total", "maxima", "exponent", "paired.count"), (_FEATURE,)),
    "histogram": (_FEATURE, "bin"),
    **dict.fromkeys(("near", "near.cosine"), (_FEATURE, "neighbour")),
    **dict.fromkeys(("along", "along.count"), (_FEATURE, "companion")),
    **{f"{kind}{part}": (_FEATURE, kind) for kind in ("promoted", "suppressed") for part in ("", ".effect")},
    **{
        f"{kind}.{name}": (row, kind, *token_axis)
        for kind, row in (("top", _FEATURE), ("drawn", "interval"))
        for name, token_axis in (
            *((name, ()) for name in ("value", "text", "place")),
            *((name, ("token",)) for name in ("ids", "activations")),
        )
    },
}
_IDS = ("top.ids", "drawn.ids", "promoted", "suppressed")


class FeatureStats(Explanation):
    """Statistics of features over a corpus; values are densities [feature]. Made by `aw.feature_stats`.

    Args:
        arrays: The state of a `Tally` (complete, so that statistics can be merged) and statistics of the
            directions; see `_ARRAYS`.
        facts: d_sae, tokens, texts, paired_tokens, before (tokens of a context before its central
            token), pieces (of token ids), special (ids), scheme (by which pieces spell text) and about
            (everything the counts depend on, see `attnwidgets.sae.dependencies`).
        names: The reader's names of features; changed by `rename` and in the table of `aw.FeatureTable`.
        method: Name of the method.
        unit: Name of the unit: "feature".
        stack: Stack the statistics belong to.
        provenance: How the numbers were computed; see `Explanation`.
        trace_id: Not used for corpora.
        warning: A caveat, or "".
        predictions: Not used for corpora.
        dtype: Precision of the numbers: "float32" (default) or "float64".
    """

    kind = "FeatureStats"
    viewed_by = "features.feature_view:FeatureTable"
    axis_names = ("feature",)
    facts: Mapping[str, Any]
    names: dict[int, str]
    _arrays: dict[str, NDArray[Any]]
    _rows: dict[int, int]

    def __init__(
        self,
        arrays: Mapping[str, Any],
        facts: Mapping[str, Any],
        *,
        names: Mapping[int, str] | None = None,
        method: str = "feature_stats",
        unit: str = "feature",
        **common: Any,
    ) -> None:
        if missing := [name for name in _ARRAYS if name not in arrays]:
            raise ValueError(f"arrays lacks {missing[0]!r}; call aw.feature_stats to make statistics.")
        self._set_common(unit=unit, method=method, **common)
        stored = {name: np.asarray(array) for name, array in arrays.items()}
        self._set(
            facts=dict(facts),
            names={int(number): str(name) for number, name in (names or {}).items()},
            _arrays=stored,
            _rows={int(number): row for row, number in enumerate(stored["features"])},
        )

    @classmethod
    def merge(cls, parts: Iterable[FeatureStats | str | Path]) -> FeatureStats:
        """Return the statistics of a corpus from those of its parts.

        Parts are counted anywhere by the same call on different texts and saved, for example by the tasks of
        an array job. The result equals that of a single call bit for bit if each part begins with a shard
        of the whole (every 1,000 texts, or sooner if these exceed 2^20 characters) and torch uses the same
        number of threads. Otherwise activations may differ in the last digits, because batches hold other
        texts. Texts are numbered through the parts in order. Co-occurrence is counted for all pairs of
        features as long as there are fewer than 2^25 pairs.

        Args:
            parts: Statistics or their files, in the order of the corpus. Files are opened one by one, so that
                memory does not grow.

        Raises:
            ValueError: If a part was made with another SAE, model, tokenizer, hook point, features or options
                (the message says which) or by an earlier version, or if parts are empty.
            TypeError: If a part is something else.
        """
        from attnwidgets.sae.corpus_statistics.assembling import merge

        return merge(parts)

    # Required of every explanation.

    @property
    def shape(self) -> tuple[int, ...]:
        """(number of features counted,)."""
        return (len(self._arrays["features"]),)

    @property
    def values(self) -> Array:
        """Densities [feature] (float32): the share of tokens on which each feature fires, 0 to 1."""
        return self.density

    @property
    def features(self) -> tuple[int, ...]:
        """The features counted."""
        return tuple(int(number) for number in self._arrays["features"])

    @property
    def tokens(self) -> int:
        """Number of tokens counted, without special tokens."""
        return int(self.facts["tokens"])

    @property
    def d_sae(self) -> int:
        """Number of features of the SAE."""
        return int(self.facts["d_sae"])

    @property
    def density(self) -> Array:
        """The share of tokens on which each feature fires [feature] (float32), 0 to 1."""
        return read_only((self._arrays["count"] / max(self.tokens, 1)).astype(np.float32))

    @property
    def maxima(self) -> Array:
        """Largest activations [d_sae] (float32); NaN for features that were not counted."""
        maxima = np.full(self.d_sae, np.nan, dtype=np.float32)
        maxima[self._arrays["features"]] = self._arrays["maxima"]
        return read_only(maxima)

    @property
    def dead(self) -> tuple[int, ...]:
        """Features that fired on no token."""
        return tuple(int(number) for number in self._arrays["features"][self._arrays["count"] == 0])

    # A single feature.

    def feature(self, feature: int) -> FeatureSummary:
        """Return all statistics of a feature.

        Raises:
            IndexError: If the feature was not counted.
        """
        number = self.features[position(feature, self.features, "feature")]
        row = self._rows[number]
        a = self._arrays
        count = int(a["count"][row])
        top = 2.0 ** int(a["exponent"][row]) if count else 1.0
        return FeatureSummary(
            feature=number,
            name=self.names.get(number, ""),
            count=count,
            density=count / max(self.tokens, 1),
            maximum=float(a["maxima"][row]),
            mean=float(a["total"][row]) / max(count, 1),
            edges=tuple(top * edge / BINS for edge in range(BINS + 1)),
            histogram=tuple(int(n) for n in a["histogram"][row]),
            top=self._examples("top", row),
            intervals=self._intervals(row, top, count),
            promoted=self._effects("promoted", row),
            suppressed=self._effects("suppressed", row),
            neighbours=tuple(
                Neighbour(int(other), float(cosine))
                for other, cosine in zip(a["near"][row], a["near.cosine"][row], strict=True)
                if other != NONE
            ),
            companions=self._companions(row, count),
        )

    def _intervals(self, row: int, top: float, count: int) -> tuple[Interval, ...]:
        counts = self._arrays["histogram"][row].reshape(INTERVALS, -1).sum(-1)
        return tuple(
            Interval(
                top * part / INTERVALS,
                top * (part + 1) / INTERVALS,
                int(counts[part]),
                int(counts[part]) / count,
                self._examples("drawn", row * INTERVALS + part),
            )
            for part in reversed(range(INTERVALS))
            if counts[part]
        )

    def _examples(self, kind: str, row: int) -> tuple[Example, ...]:
        fields = {name: self._arrays[f"{kind}.{name}"][row] for name in _EXAMPLE}
        slots = np.flatnonzero(fields["text"] != NONE)
        return tuple(self._example({name: field[slot] for name, field in fields.items()}) for slot in slots)

    def _example(self, fields: Mapping[str, Any]) -> Example:
        inside = np.flatnonzero(fields["ids"] != NONE)
        ids = tuple(int(number) for number in fields["ids"][inside])
        return Example(
            activation=float(fields["value"]),
            tokens=self._display_strings(ids),
            activations=tuple(float(value) for value in fields["activations"][inside]),
            at=int(np.flatnonzero(inside == self.facts["before"])[0]),
            ids=ids,
            text=int(fields["text"]),
            place=int(fields["place"]),
        )

    def _display_strings(self, ids: Iterable[int]) -> tuple[str, ...]:
        """Return display strings of consecutive tokens."""
        numbers = list(ids)
        special = set(self.facts["special"])
        pieces = [self.facts["pieces"][str(number)] for number in numbers]
        scheme = self.facts["scheme"]
        return display(pieces_of(pieces, [number in special for number in numbers], scheme), scheme)

    def _effects(self, kind: str, row: int) -> tuple[LogitEffect, ...]:
        if kind not in self._arrays:
            return ()
        ids, effects = self._arrays[kind][row], self._arrays[f"{kind}.effect"][row]
        return tuple(
            LogitEffect(self._display_strings([int(number)])[0], float(effect), int(number))
            for number, effect in zip(ids, effects, strict=True)
        )

    def _companions(self, row: int, count: int) -> tuple[Companion, ...]:
        a = self._arrays
        companions = []
        for other, together in zip(a["along"][row], a["along.count"][row], strict=True):
            if other != NONE:
                fires = int(a["paired.count"][row])
                other_fires = int(a["paired.count"][self._rows[int(other)]])
                both = int(together)
                companions.append(Companion(int(other), both / fires, both / (fires + other_fires - both)))
        return tuple(companions) if count else ()

    # All features.

    def named(self, names: Mapping[int, str]) -> FeatureStats:
        """Return the same statistics with names for features; an empty name removes a name.

        Raises:
            IndexError: If the feature is out of range.
        """
        changed = {self.features[position(n, self.features, "feature")]: name for n, name in names.items()}
        merged = {number: name for number, name in {**self.names, **changed}.items() if name}
        return FeatureStats(self._arrays, self.facts, names=merged, **self._common())

    def rename(self, names: Mapping[int, str]) -> None:
        """Name features in place: in all views of these statistics and in files saved from now on.

        Names are a reader's notes, and the only attribute that can change; `named` returns a copy instead. An
        empty name removes a name.

        Raises:
            IndexError: If the feature is out of range; nothing is changed then.
        """
        changed = self.named(names).names
        self.names.clear()
        self.names.update(changed)

    def loudest(self, k: int) -> tuple[int, ...]:
        """Return the `k` features with the largest activations, largest first, without dead features."""
        maxima = np.where(self._arrays["count"] > 0, self._arrays["maxima"], -np.inf)
        order = np.argsort(-maxima, kind="stable")[:k]
        return tuple(int(self._arrays["features"][row]) for row in order if maxima[row] > -np.inf)

    def strongest_tokens(self) -> list[str | None]:
        """Return for every feature the token on which it fires most; None for dead features."""
        a = self._arrays
        ids = a["top.ids"][:, 0, self.facts["before"]]
        spelled = {
            int(number): self._display_strings([int(number)])[0]
            for number in np.unique(ids)
            if number != NONE
        }
        alive = a["top.text"][:, 0] != NONE
        return [spelled[int(number)] if fires else None for number, fires in zip(ids, alive, strict=True)]

    def called(self, feature: int, k: int = 3) -> str:
        """Return the label of a feature: its name, or up to `k` tokens on which it fires most.

        "" for a feature that fired on no token, or was not counted.
        """
        if feature in self.names or feature not in self._rows:
            return self.names.get(feature, "")
        ids = self._arrays["top.ids"][self._rows[feature], :, self.facts["before"]]
        tokens: dict[str, None] = {}
        for number in dict.fromkeys(ids[ids != NONE].tolist()):
            tokens[self._display_strings([number])[0].strip(" ␣▁")] = None
            if len(tokens) == k:
                break
        return ", ".join(tokens)

    def _columns(self) -> Iterator[Columns]:
        """Yield a row per feature: feature, name, density, count, mean, maximum, token (of its maximum)."""
        a = self._arrays
        counts = np.maximum(a["count"], 1)
        yield {
            "feature": a["features"],
            "name": [self.names.get(number, "") for number in self.features],
            "density": self.density,
            "count": a["count"],
            "mean": a["total"] / counts,
            "maximum": a["maxima"],
            "token": [token or "" for token in self.strongest_tokens()],
        }

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and its arrays."""
        names = {str(number): name for number, name in self.names.items()}
        return self._describe_common() | {"facts": dict(self.facts), "names": names}, dict(self._arrays)

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the statistics described by `to_description`."""
        names = {int(number): name for number, name in described["names"].items()}
        require_whole(arrays, described["facts"])
        return cls(arrays, described["facts"], names=names, **restore_common(described))

    def figure(self, *, title: str | None = None) -> Figure:
        """Return a matplotlib figure: a histogram of log10 densities.

        Args:
            title: Heading; by default the number of features that fired.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 2.5), layout="constrained")
        axes = figure.subplots()
        alive = self.density[self.density > 0]
        axes.hist(np.log10(alive), bins=50)
        axes.set_xlabel("log10 of the share of tokens on which a feature fires")
        axes.set_ylabel("features")
        axes.set_title(title or f"{len(alive)} of {self.shape[0]} features fired on {self.tokens:,} tokens")
        return figure

    def _png(self) -> dict[str, Any]:
        from attnwidgets.figures.drawing import rendered

        return {"image/png": base64.b64encode(rendered(self.figure(), dpi=100)).decode("ascii")}


_EXAMPLE = ("value", "text", "place", "ids", "activations")
_ARRAYS = (
    *("features", "count", "total", "maxima", "exponent", "histogram"),
    *(f"{kind}.{name}" for kind in ("top", "drawn") for name in _EXAMPLE),
    *("near", "near.cosine", "along", "along.count", "paired.count"),
)


def require_whole(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
    """Raise ValueError if arrays are inconsistent or refer to unknown features or tokens."""
    sizes = _sizes(arrays)
    if sizes["interval"] != sizes[_FEATURE] * INTERVALS or facts["before"] not in range(sizes["token"]):
        raise ValueError("the examples do not fit the features")
    features = arrays["features"]
    if not features.size or len(np.unique(features)) != len(features):
        raise ValueError("the features are empty or not unique")
    for name in ("features", "near", "along"):
        # Compared with bounds, not with a list of all features: a damaged file may claim any number of them.
        _require_each(name, arrays[name], lambda numbers: (numbers >= 0) & (numbers < facts["d_sae"]))
    spelled = [int(number) for number in facts["pieces"]]
    for name in _IDS:
        _require_each(name, arrays.get(name, np.zeros(0, int)), lambda numbers: np.isin(numbers, spelled))
    for kind in ("top", "drawn"):
        central = arrays[f"{kind}.ids"][..., facts["before"]]
        if np.any((central == NONE) & (arrays[f"{kind}.text"] != NONE)):
            raise ValueError(f"an example in {kind!r} lacks its central token")


def _require_each(name: str, values: NDArray[Any], is_valid: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    """Raise ValueError for a number that is neither valid nor `NONE`."""
    if values.dtype.kind not in "iu" or not ((values == NONE) | is_valid(values)).all():
        raise ValueError(f"the array {name!r} refers to unknown features or tokens")


def _sizes(arrays: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """Return the length of every axis; raise ValueError if arrays disagree on it."""
    sizes: dict[str, int] = {}
    for name, axes in _AXES.items():
        if name not in arrays:
            if name.removesuffix(".effect") in arrays:
                raise ValueError(f"the array {name!r} is missing")
            continue
        shape = arrays[name].shape
        agrees = [sizes.setdefault(axis, n) == n for axis, n in zip(axes, shape, strict=False)]
        if len(shape) != len(axes) or not all(agrees):
            raise ValueError(f"the array {name!r} has shape {shape}, which does not fit the others")
    return sizes
