"""Scorecard: scores of methods with intervals, along with those of chance and an oracle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice, suggest
from attnwidgets._selecting import listed
from attnwidgets.evaluate.scorecards.curves import bootstrap
from attnwidgets.explanations.explanation import Explanation, restore_common
from attnwidgets.explanations.results.arrays import Array, as_floats, read_only

if TYPE_CHECKING:
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Self

    from attnwidgets._tables import Columns
    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.explanations.explanation import Outcomes

    Label = int | float | str
    Choice = str | Sequence[str] | None

_AXES = ("example", "metric", "method", "x")
_MOST_RESAMPLES = 100_000
"""Largest number of resamples in a file: ten times the number that intervals need."""
_MOST_DRAWN = 50_000_000
"""Means that are drawn for a file: 400 MB."""
_LABELS = (
    "metrics", "methods", "groups", "baselines", "x", "x_notes", "x_name", "level", "resamples", "seed",
)  # fmt: skip


class Scorecard(Explanation):
    """Scores of methods over a data set: means [metric, method, x] with intervals, along with baselines.

    Args:
        samples: Scores of every example [example, metric, method, x]; NaN if undefined. Copied.
        metrics: Names of the metrics.
        methods: Names of the methods, including the baselines.
        x: Labels of the last axis: layer numbers, shares of tokens removed, tokens.
        x_name: Name of that axis ("layer").
        x_notes: A word for every x ("cue"), or "".
        groups: The group of every method ("trained", "random weights"); "" without groups. A method may
            be in several groups.
        baselines: Which of the methods are baselines, such as chance or an oracle.
        level: Coverage of the confidence intervals.
        resamples: How often examples are resampled for them (percentile bootstrap over examples).
        seed: Seed of the resampling.
        ends: The intervals [low and high, metric, method, x] if a score is not a mean over examples (a loss
            of the data set as a whole, in the only row of `samples`).
        unit: Unit of the features.
        method: The function that scored ("cue_contribution").
        stack: Stack of the features.
        provenance: How the numbers came about.
        trace_id: The trace that they belong to.
        warning: A caution for the reader, or "".
        predictions: The model's predictions.
        dtype: "float32" or "float64".

    Raises:
        ValueError: If shapes and labels do not agree, or names repeat.
    """

    kind = "Scorecard"
    viewed_by = "evaluate.scorecard_view:ScorecardView"
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
    _samples: Float
    _ends: Float | None

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
        stack: str = "self",
        provenance: Mapping[str, Any] | None = None,
        trace_id: str = "",
        warning: str = "",
        predictions: Outcomes | None = None,
        dtype: str | None = None,
    ) -> None:
        array = np.array(samples, dtype=np.float64)
        groups = ("",) * len(methods) if groups is None else groups
        expected = (len(metrics), len(methods), len(x))
        if array.ndim != len(_AXES) or array.shape[1:] != expected or not len(array):
            raise ValueError(
                f"samples has shape {array.shape}; the labels need [example, metric, method, {x_name}] "
                f"with sizes [1 or more, {', '.join(map(str, expected))}]."
            )
        if np.isinf(array).any():
            raise ValueError("samples holds infinite values; an undefined score is NaN.")
        if not 0 < level < 1 or resamples < 1:
            raise ValueError(
                f"level must be between 0 and 1 and resamples at least 1; they are {level} and {resamples}."
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
        intervals = None if ends is None else np.array(ends, dtype=np.float64)
        if intervals is not None and intervals.shape != (2, *expected):
            raise ValueError(f"ends has shape {intervals.shape}; it must be low and high, {(2, *expected)}.")
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
            _samples=array,
            _ends=intervals,
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
        """("metric", "method", "layer"), or another name of the last axis."""
        return ("metric", "method", self.x_name)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes of `.values`."""
        return tuple(self._samples.shape[1:])

    @property
    def samples(self) -> Float:
        """Scores of every example [example, metric, method, x] (read-only); NaN if undefined."""
        return self._samples

    def of(self, method: str, group: str | None = None) -> Float:
        """Return the scores of every example by a method [example, metric, x] (read-only).

        Args:
            method: Its name.
            group: Its group; optional if it is in a single group.

        Raises:
            ValueError: If the method is unknown or in several groups.
        """
        _chosen(method, self.methods, "method")
        rows = [row for row, name in enumerate(self.methods) if name == method]
        if group is not None or len(rows) > 1:
            _chosen(group or "", [self.groups[row] for row in rows], "group")
            rows = [row for row in rows if self.groups[row] == (group or "")]
        return self._samples[:, :, rows[0]]

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return len(self._samples)

    @property
    def examples(self) -> str:
        """The examples in words: "40 examples", or "40 examples as a whole"."""
        count, whole = self.n_scored, self._ends is not None
        return f"{count:,} example{'s' * (count > 1)}{' as a whole' * whole}"

    @property
    def n_scored(self) -> int:
        """Number of examples that a score is of: of a data set scored as a whole, all of them."""
        if self._ends is None:
            return self.n_examples
        return int(self.provenance.get("options", {}).get("examples", 1))

    @property
    def mean(self) -> Float:
        """Mean over the examples that have a score [metric, method, x]; NaN if none has."""
        return mean_of_known(self._samples)

    @property
    def values(self) -> Array:
        """The means [metric, method, x] in float32 (read-only); `.mean` has them in float64."""
        return read_only(as_floats(self.mean, "float32"))

    @property
    def count(self) -> NDArray[np.int64]:
        """Number of examples for which a score is defined [metric, method, x]."""
        scored = (~np.isnan(self._samples)).sum(axis=0)
        return scored if self._ends is None else scored * self.n_scored

    @property
    def interval(self) -> tuple[Float, Float]:
        """Confidence interval of the mean, low and high [metric, method, x]; NaN for a single example.

        From the percentile bootstrap over examples, with the same draws for every method.
        """
        if self._ends is not None:
            return self._ends[0], self._ends[1]
        if "_interval" not in vars(self):
            ends = bootstrap(self._samples, level=self.level, resamples=self.resamples, seed=self.seed)
            self._set(_interval=ends)
        return vars(self)["_interval"]

    @property
    def ends(self) -> Float | None:
        """The intervals [low and high, metric, method, x] that were given; None if they are resampled."""
        return self._ends

    # Verbs

    def select(
        self, *, metric: Choice = None, method: Choice = None, group: Choice = None, x: Any = None
    ) -> Scorecard:
        """Return a scorecard of some metrics, methods, groups and columns; baselines always stay.

        Args:
            metric: A name or several.
            method: A name or several.
            group: A name or several.
            x: A label or several of the last axis (layer numbers).

        Raises:
            ValueError: If the name is unknown; the message lists the names.
        """
        metrics = _chosen(metric, self.metrics, "metric")
        names = _chosen(method, self.methods, "method")
        groups = _chosen(group, self.groups, "group")
        labels = _chosen(x, self.x, self.x_name)
        rows = [
            position
            for position, (name, own_group) in enumerate(zip(self.methods, self.groups, strict=True))
            if name in self.baselines or (name in names and own_group in groups)
        ]
        metric_rows = [self.metrics.index(name) for name in metrics]
        at = [self.x.index(label) for label in self.x if label in labels]

        def chosen(whole: Float) -> Float:
            return whole[:, metric_rows][:, :, rows][:, :, :, at]

        return self.with_samples(
            chosen(self._samples),
            ends=None if self._ends is None else chosen(self._ends),
            metrics=[self.metrics[row] for row in metric_rows],
            methods=[self.methods[row] for row in rows],
            groups=[self.groups[row] for row in rows],
            x=[self.x[column] for column in at],
            x_notes=[self.x_notes[column] for column in at],
        )

    def with_samples(self, samples: Float, step: str = "", **changes: Any) -> Scorecard:
        """Return a scorecard of other samples with the labels of this scorecard.

        Args:
            samples: [example, metric, method, x].
            step: The change to the samples, in words.
            **changes: Labels that differ: methods, groups, ...
        """
        return Scorecard(samples, **(self._labels() | self._common(step) | changes))

    def _labels(self) -> dict[str, Any]:
        labels = {name: getattr(self, name) for name in _LABELS}
        return {name: list(label) if isinstance(label, tuple) else label for name, label in labels.items()}

    # Shown

    def row_name(self, row: int) -> str:
        """Return the name of a method with its group, as tables give it."""
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
            self.x_name: [self.x[column] for column in x],
            "mean": self.mean.reshape(-1),
            "low": low.reshape(-1),
            "high": high.reshape(-1),
            "count": self.count.reshape(-1),
            "baseline": [name in self.baselines for name in methods],
        }

    def figure(
        self,
        kind: Literal["lines", "table"] = "lines",
        *,
        title: str | None = None,
        cmap: str | Colormap | None = None,
        vmax: float | None = None,
        numbers: bool | None = None,
    ) -> Figure:
        """Return a matplotlib figure of the scores.

        Args:
            kind: "lines", a panel per metric, or "table", a row for every method.
            title: Heading; by default the function and the number of examples.
            cmap: For "table": colour map; by default paper to ink.
            vmax: For "table": value of the last colour; by default the largest that a method reaches.
            numbers: For "table": whether cells show their value; by default if there is room.

        Raises:
            ValueError: If the kind is unknown.
            TypeError: If an option for tables is given for lines.
        """
        from attnwidgets.evaluate.scorecards import plots

        require_choice("kind", kind, ("lines", "table"))
        if kind == "table":
            return plots.table(self, title=title, cmap=cmap, vmax=vmax, numbers=numbers)
        for name, value in {"cmap": cmap, "vmax": vmax, "numbers": numbers}.items():
            if value is not None:
                raise TypeError(f"{name} is an option of kind='table', not of kind='lines'.")
        return plots.lines(self, title=title)

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

    # Serialisation

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and the array."""
        arrays: dict[str, Any] = {"samples": self._samples}  # float64: a sum over thousands of examples
        if self._ends is not None:
            arrays["ends"] = self._ends
        return self._describe_common() | self._labels(), arrays

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the scorecard that `to_description` described."""
        labels = {name: described[name] for name in _LABELS}
        samples, ends, common = arrays["samples"], arrays.get("ends"), restore_common(described)
        most = min(_MOST_RESAMPLES, max(1, _MOST_DRAWN // max(1, samples[:1].size)))
        if ends is None and labels["resamples"] > most:
            capped = f"The file asks for {labels['resamples']:,} resamples; intervals are from {most:,}."
            labels["resamples"] = most
            common["warning"] = " ".join(filter(None, (common["warning"], capped)))
        return cls(samples, ends=ends, **labels, **common)


def mean_of_known(samples: Float) -> Float:
    """Return the mean over the first axis, without NaN; NaN if all numbers are NaN."""
    defined = ~np.isnan(samples)
    totals = np.where(defined, samples, 0.0).sum(axis=0)
    counts = defined.sum(axis=0)
    return np.divide(totals, counts, out=np.full(totals.shape, np.nan), where=counts > 0)


def _chosen(names: Any, available: Sequence[Any], argument: str) -> list[Any]:
    """Return the labels of `names`, a label or several; all available labels for None."""
    labels = list(dict.fromkeys(available))
    if names is None:
        return labels
    several = list(names) if isinstance(names, Sequence) and not isinstance(names, str) else [names]
    for name in several:
        if name not in labels or (isinstance(name, float) and math.isnan(name)):
            near = suggest(str(name), map(str, labels))
            raise ValueError(
                f"{argument} {name!r} is unknown; choose from {', '.join(map(repr, labels))}.{near}"
            )
    return several
