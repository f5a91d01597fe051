"""Scorecard: what methods score, with intervals, and what chance and an oracle score beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.evaluate.scorecards.bootstrap import bootstrap
from attnwidgets.explanations.explanation import Explanation, restore_common
from attnwidgets.explanations.results.arrays import Array, as_floats, read_only

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Self

    from attnwidgets.explanations.results.tables import Columns

    Label = int | float | str
    Choice = str | Sequence[str] | None

_AXES = ("example", "metric", "method", "x")


class Scorecard(Explanation):
    """Scores of methods over a data set: means [metric, method, x] with intervals, beside baselines.

    Args:
        samples: [example, metric, method, x]: what every example scores; NaN where that is undefined. Copied.
        metrics: Names of the metrics.
        methods: Names of the methods, the baselines among them.
        x: What a curve runs over: layer numbers, shares of tokens removed, tokens.
        x_name: What that is called ("layer").
        x_notes: A word for every x ("cue"), or "".
        groups: The group of every method ("trained", "random weights"); "" where there is one only. A method
            may stand in several groups.
        baselines: Which of the methods are no methods but what chance or an oracle scores.
        level: Coverage of the confidence intervals.
        resamples: How often examples are drawn for them (percentile bootstrap over examples).
        seed: Of the draws.
        ends: The intervals [low and high, metric, method, x] where a score is no mean over examples (a loss
            of the data set as a whole, in its one row of `samples`).
        method: What was evaluated ("cue_contribution").
        unit, stack, provenance, trace_id, warning, predictions: see `Explanation`.

    Raises:
        ValueError: Where shapes and labels do not agree, or names repeat.
    """

    kind = "Scorecard"
    metrics: tuple[str, ...]
    methods: tuple[str, ...]
    groups: tuple[str, ...]
    baselines: tuple[str, ...]
    x: tuple[Label, ...]
    x_name: str
    x_notes: tuple[str, ...]
    level: float
    resamples: int
    seed: int
    _samples: NDArray[np.float64]
    _ends: NDArray[np.float64] | None

    def __init__(
        self,
        samples: Any,
        *,
        metrics: Sequence[str],
        methods: Sequence[str],
        x: Sequence[Label],
        x_name: str = "layer",
        x_notes: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        baselines: Sequence[str] = (),
        level: float = 0.95,
        resamples: int = 1000,
        seed: int = 0,
        ends: Any = None,
        unit: str = "token",
        method: str = "given",
        **common: Any,
    ) -> None:
        array = np.array(samples, dtype=np.float64)
        groups = ("",) * len(methods) if groups is None else groups
        expected = (len(metrics), len(methods), len(x))
        if array.ndim != len(_AXES) or array.shape[1:] != expected or not len(array):
            raise ValueError(
                f"samples has shape {array.shape}; the labels ask for [example, metric, method, {x_name}] "
                f"with sizes [1 or more, {', '.join(map(str, expected))}]."
            )
        if np.isinf(array).any():
            raise ValueError("samples holds infinite values; an undefined score is NaN.")
        if not 0 < level < 1 or resamples < 1:
            raise ValueError(
                f"level lies between 0 and 1 and resamples from 1: they are {level} and {resamples}."
            )
        rows = list(zip(methods, groups, strict=True))
        for name, labels in (("metrics", metrics), ("methods", rows)):
            if len(set(labels)) < len(labels):
                raise ValueError(f"{name} names one twice: {', '.join(map(repr, labels))}.")
        if missing := [name for name in baselines if name not in methods]:
            raise ValueError(
                f"baselines names {missing[0]!r}, which is not one of methods: {listed(methods)}."
            )
        array.flags.writeable = False
        given = None if ends is None else np.array(ends, dtype=np.float64)
        if given is not None and given.shape != (2, *expected):
            raise ValueError(f"ends has shape {given.shape}; they are low and high, {(2, *expected)}.")
        self._set_common(unit=unit, method=method, **common)
        self._set(
            _samples=array,
            _ends=given,
            metrics=tuple(str(name) for name in metrics),
            methods=tuple(str(name) for name in methods),
            groups=tuple(str(name) for name in groups),
            baselines=tuple(baselines),
            x=tuple(x),
            x_name=x_name,
            x_notes=("",) * len(x) if x_notes is None else tuple(x_notes),
            level=float(level),
            resamples=int(resamples),
            seed=int(seed),
        )

    # Numbers

    @property
    def axis_names(self) -> tuple[str, ...]:
        """("metric", "method", "layer"), or what the last axis is called."""
        return ("metric", "method", self.x_name)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes of `.values`."""
        return tuple(self._samples.shape[1:])

    @property
    def samples(self) -> NDArray[np.float64]:
        """What every example scores [example, metric, method, x] (read-only); NaN where undefined."""
        return self._samples

    def of(self, method: str, group: str | None = None) -> NDArray[np.float64]:
        """Return what every example scores by one method [example, metric, x] (read-only).

        Args:
            method: Its name.
            group: Its group; may be left out where it stands in one.

        Raises:
            ValueError: Where there is no such method, or it stands in several groups.
        """
        _chosen(method, self.methods, "method")
        own = [row for row, name in enumerate(self.methods) if name == method]
        if group is not None or len(own) > 1:
            _chosen("" if group is None else group, [self.groups[row] for row in own], "group")
            own = [row for row in own if self.groups[row] == (group or "")]
        return self._samples[:, :, own[0]]

    @property
    def n_examples(self) -> int:
        """How many examples were scored."""
        return len(self._samples)

    @property
    def examples(self) -> str:
        """Over what the scores are, in words: "40 examples", or "40 examples as a whole"."""
        whole = self._ends is not None
        count = int(self.provenance.get("options", {}).get("examples", 1)) if whole else self.n_examples
        return f"{count:,} example{'s' * (count > 1)}{' as a whole' * whole}"

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean over the examples that have a score [metric, method, x]; NaN where none has."""
        return mean_of_known(self._samples)

    @property
    def values(self) -> Array:
        """The means [metric, method, x] in float32 (read-only); `.mean` has them in float64."""
        return read_only(as_floats(self.mean, "float32"))

    @property
    def count(self) -> NDArray[np.int64]:
        """For how many examples a score is defined [metric, method, x]."""
        return (~np.isnan(self._samples)).sum(axis=0)

    @property
    def interval(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Confidence interval of the mean, low and high [metric, method, x]; NaN for a single example.

        By the percentile bootstrap over examples: the same draws for every method, and for the same `seed`.
        """
        if self._ends is not None:
            return self._ends[0], self._ends[1]
        found: tuple[NDArray[np.float64], NDArray[np.float64]] | None = vars(self).get("_interval")
        if found is None:
            found = bootstrap(self._samples, level=self.level, resamples=self.resamples, seed=self.seed)
            self._set(_interval=found)
        return found

    @property
    def ends(self) -> NDArray[np.float64] | None:
        """The intervals [low and high, metric, method, x] that were given; None where examples are drawn."""
        return self._ends

    # Verbs

    def select(
        self, *, metric: Choice = None, method: Choice = None, group: Choice = None, x: Any = None
    ) -> Scorecard:
        """Return some metrics, methods, groups and places; baselines stay beside whatever is chosen.

        Args:
            metric: One name or several.
            method: One name or several.
            group: One name or several.
            x: One label or several of the last axis (layer numbers).

        Raises:
            ValueError: Where there is no such name; the message lists them.
        """
        metrics = _chosen(metric, self.metrics, "metric")
        names = _chosen(method, self.methods, "method")
        groups = _chosen(group, self.groups, "group")
        places = _chosen(x, self.x, self.x_name)
        rows = [
            place
            for place, (name, own) in enumerate(zip(self.methods, self.groups, strict=True))
            if name in self.baselines or (name in names and own in groups)
        ]
        kept = [self.metrics.index(name) for name in metrics]
        at = [self.x.index(label) for label in self.x if label in places]

        def chosen(whole: NDArray[np.float64]) -> NDArray[np.float64]:
            return whole[:, kept][:, :, rows][:, :, :, at]

        return self.with_samples(
            chosen(self._samples),
            ends=None if self._ends is None else chosen(self._ends),
            metrics=[self.metrics[place] for place in kept],
            methods=[self.methods[place] for place in rows],
            groups=[self.groups[place] for place in rows],
            x=[self.x[place] for place in at],
            x_notes=[self.x_notes[place] for place in at],
        )

    def with_samples(self, samples: NDArray[np.float64], step: str = "", **changes: Any) -> Scorecard:
        """Return other samples under the labels of this one.

        Args:
            samples: [example, metric, method, x].
            step: What was done to the samples, in words.
            **changes: Labels that are others: methods, groups, ...
        """
        return Scorecard(samples, **(self._labels() | self._common(step) | changes))

    def _labels(self) -> dict[str, Any]:
        names = ("metrics", "methods", "groups", "baselines", "x", "x_notes")
        plain = ("x_name", "level", "resamples", "seed")
        return {name: list(getattr(self, name)) for name in names} | {
            name: getattr(self, name) for name in plain
        }

    # Shown

    def row_name(self, row: int) -> str:
        """Return a method with its group, as tables name it."""
        name, group = self.methods[row].replace("_", " "), self.groups[row]
        return f"{name}, {group}" if group else name

    def _columns(self) -> Iterator[Columns]:
        """Yield metric, method, group, layer, mean, low, high, count, baseline."""
        low, high = self.interval
        metric, method, x = (index.reshape(-1) for index in np.indices(self.shape))
        methods = np.asarray(self.methods, dtype=object)[method]
        yield {
            "metric": np.asarray(self.metrics, dtype=object)[metric],
            "method": methods,
            "group": np.asarray(self.groups, dtype=object)[method],
            self.x_name: [self.x[place] for place in x],
            "mean": self.mean.reshape(-1),
            "low": low.reshape(-1),
            "high": high.reshape(-1),
            "count": self.count.reshape(-1),
            "baseline": [name in self.baselines for name in methods],
        }

    def plot(self, kind: str = "lines", **options: Any) -> Figure:
        """Return a matplotlib figure: "lines", one panel a metric, or "table", a row for every method.

        See `attnwidgets.evaluate.scorecards.plots` for the options (`title`, and for tables `cmap`, `vmax`,
        `numbers`).

        Raises:
            ValueError: For another kind.
        """
        from attnwidgets.evaluate.scorecards.plots import KINDS

        if kind not in KINDS:
            raise ValueError(f"kind {kind!r} is not one of {listed(KINDS)}.{suggest(str(kind), KINDS)}")
        return KINDS[kind](self, **options)

    def _repr_html_(self) -> str:
        from attnwidgets.evaluate.scorecards.table import html_of

        return html_of(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {size}" for name, size in zip(self.axis_names, self.shape, strict=True))
        parts = [f"{self.kind} {self.title} [{sizes}] over {self.examples}"]
        if self.provenance.get("model"):
            parts.append(str(self.provenance["model"]))
        if self.warning:
            parts.append(self.warning)
        return f"<{'; '.join(parts)}>"

    # Kept

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and the array."""
        arrays: dict[str, Any] = {"samples": self._samples}  # float64: a sum over thousands of examples
        if self._ends is not None:
            arrays["ends"] = self._ends
        return self._describe_common() | self._labels(), arrays

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the scorecard that `to_description` described."""
        names = (
            "metrics", "methods", "groups", "baselines", "x", "x_notes",
            "x_name", "level", "resamples", "seed",
        )  # fmt: skip
        labels = {name: described[name] for name in names}
        ends = arrays.get("ends")
        return cls(arrays["samples"], ends=ends, **labels, **restore_common(described))


def mean_of_known(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over the first axis of what is not NaN; NaN where nothing is known."""
    known = ~np.isnan(samples)
    totals = np.where(known, samples, 0.0).sum(axis=0)
    counts = known.sum(axis=0)
    return np.divide(totals, counts, out=np.full(totals.shape, np.nan), where=counts > 0)


def _chosen(wanted: Any, known: Sequence[Any], what: str) -> list[Any]:
    """Return what is wanted of the labels known; all of them for None."""
    if wanted is None:
        return list(dict.fromkeys(known))
    several = list(wanted) if isinstance(wanted, Sequence) and not isinstance(wanted, str) else [wanted]
    for name in several:
        if name not in known or (isinstance(name, float) and math.isnan(name)):
            offered = list(dict.fromkeys(known))
            message = f"{what} {name!r} is not there; there is {', '.join(map(repr, offered))}."
            raise ValueError(f"{message}{suggest(str(name), [str(label) for label in offered])}")
    return several
