"""Compare several methods by several metrics over a data set: in shared batches, cached, resumed."""

from __future__ import annotations

from collections.abc import Sized
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import listed
from attnwidgets._shards import workers_of
from attnwidgets.evaluate.comparing.compared_text import (
    FAMILIES,
    REMOVING,
    ComparedText,
    Item,
    MetricSet,
    answer_together,
    item_of,
    traced,
)
from attnwidgets.evaluate.comparing.comparison import Comparison
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import labelled
from attnwidgets.evaluate.metrics.complexity import BASELINES as FLAT
from attnwidgets.evaluate.removals.protocol import RemovalOptions, RemovalProtocol
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM, metric_names, scored
from attnwidgets.evaluate.scoring import MethodKeys, ScoreCache, Scores, score_shards
from attnwidgets.tracing.content import fingerprint_of, key_of
from attnwidgets.tracing.model_parcel import Reader
from attnwidgets.tracing.text.given_texts import require_no_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from concurrent.futures import Executor

    from attnwidgets.evaluate.examples.explained_input import Specs
    from attnwidgets.evaluate.removals.protocol import Removal
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.evaluate.scoring import Group, Scored
    from attnwidgets.tracing.model_parcel import Carried

WINDOW = 16
"""Texts per shard, at most: their variants share batches, and their scores are stored in a file."""
LONG = 2_000
"""Characters after which a shard ends: long texts fill batches alone, and an interrupt should cost little."""
EVERY = {name: family for family, names in FAMILIES.items() for name in names}
PAPER = {
    "removal": "DeYoung et al. 2020, ERASER; Shrikumar et al. 2017; Petsiuk et al. 2018; Amara et al. 2022",
    "single_removals": "Nguyen and Martinez 2020; Jain and Wallace 2019",
    "infidelity": "Yeh et al. 2019",
    "effective_complexity": "Nguyen and Martinez 2020",
    "stability": "Yeh et al. 2019; Alvarez-Melis and Jaakkola 2018",
    "plausibility": "DeYoung et al. 2020, ERASER",
    "complexity": "Bhatt et al. 2020; Chalasani et al. 2020",
}


_OPTIONS = RemovalOptions(
    "compare",
    *("thresholds", "score", "rounding", "by", "positive", "oracle", "draws"),
    operator="delete",
    batch_size=64,
)


@documented
@_OPTIONS.former_keywords
def compare(
    methods: Specs,
    metrics: str | Sequence[str],
    dataset: Iterable[Any],
    model: Any = None,
    tokenizer: Any = None,
    *,
    operator: Operator | None = None,
    removal: Removal | None = None,
    target: Any = None,
    unit: str | None = None,
    cache: Any = None,
    jobs: int | Executor = 1,
) -> Comparison:
    """Score several methods by several metrics over a data set; `aw.compare` shows explanations side by side.

    All variants of a text, for all methods, metrics and shares at once, run in batches that texts share;
    equal inputs run once. With `cache` scores are stored on disk under a hash of all they depend on: the
    model's weights, the tokenizer's vocabulary and rules, the text, the method's code and options. So an
    interrupted run continues where it stopped, another method or text costs only itself, and several
    processes or machines may fill one folder.

    Texts are read as they are needed, in shards of at most 16 (fewer if they are long), and then freed;
    memory grows by 8 bytes per text, metric, method and share. Shards do not depend on `jobs`, so that scores
    are equal to the last bit for any number of workers with the same number of threads each.

    Args:
        methods: Names in `aw.methods()`, (name, options), functions of a trace that return Attributions; or a
            mapping from labels to these.
        metrics: Names: of `faithfulness` ("comprehensiveness", "sufficiency", "log_odds", "deletion",
            "insertion"), "fidelity_plus" and "fidelity_minus" (hard, against the target; `characterization`
            of `["removal"]` combines the two), of `single_removals`, "infidelity", "effective_complexity", of
            `plausibility` (texts with rationales), `complexity` and `stability` (which computes every method
            anew under noise). All use the defaults of these functions, except for the options below.
        dataset: Texts; objects or mappings with `text` and, if needed, `label` and `rationale`
            (`aw.demo_texts("test")`); pairs (text, label); or traces. A list, a Hugging Face data set, a
            generator, or any other iterable. A collection with a length is checked before anything runs.
        model: As `aw.trace` takes it; not needed for traces. A name is loaded once, and once in every worker.
        tokenizer: Its tokenizer.
        operator: {operator} Required by metrics that remove features.
        removal: {removal}
        target: As every method takes it; "label" for the label of each text (then fidelity is that of the
            phenomenon). By default the model's prediction.
        unit: {unit}
        cache: A folder to store scores in; None stores nothing.
        jobs: Number of processes that share the texts, each with a copy of the model and one thread; or a
            `concurrent.futures.Executor`, such as Dask's `client.get_executor()`. For workers on other
            machines, name the model's folder or hub id. See docs/scale.md.

    Returns:
        A Comparison: a Scorecard for every family of metrics, and `.table`.

    Raises:
        ValueError: If a metric, method or operator is unknown, a text or the data set is empty, a text lacks
            the label or rationale it needs, the model is missing, or `jobs` is not 1 with traces, or with a
            model that has interventions.
        TypeError: If a method returns no Attributions.
        RuntimeError: If the worker of a shard dies repeatedly; the message names its texts.

    Example:
        >>> methods = {"gradient": "saliency", "lrp": "lrp"}
        >>> texts = ["A fine film.", "A dull story."]
        >>> comparison = aw.evaluate.compare(methods, "gini", texts, *aw.demo_model("classifier"))
        >>> comparison["complexity"].methods
        ('gradient', 'lrp', 'uniform', 'one element')
    """
    from attnwidgets._version import __version__

    metric_set = _metric_set(metrics, operator or (removal and removal.operator), target, unit)
    protocol = _OPTIONS.protocol(operator, removal)
    keys = MethodKeys(labelled(methods))
    workers_of(jobs)
    source = _Source(dataset, metric_set, model, jobs)
    total = source.checked()
    reader = None if model is None else Reader(model, tokenizer)
    fingerprints = () if reader is None else reader.fingerprints
    about = key_of(__version__, fingerprints, vars(metric_set), protocol.options() | {"batch_size": None})
    with nullcontext() if reader is None else reader.carried(jobs) as carried:
        results = score_shards(
            source.shards(),
            _Scorer(carried, keys, metric_set, protocol),
            keys.distinct,
            ScoreCache(cache, about),
            jobs,
            desc="comparing",
            total=total,
        )
    if results is None:
        raise ValueError("dataset is empty: give at least one text.")
    cards = {
        family: _card(family, names, results, keys, protocol, "-".join(fingerprints))
        for family, names in metric_set.families.items()
    }
    listed_texts = isinstance(dataset, (list, tuple))
    return Comparison(
        cards, tuple(item.whole_text for item in source.items()) if listed_texts else (), results.reused
    )


@dataclass(frozen=True)
class _Scorer:
    """Scores texts, in any process."""

    reader: Carried | None
    keys: MethodKeys
    metrics: MetricSet
    protocol: RemovalProtocol

    def __call__(self, group: Group[Item]) -> Scores:
        model, tokenizer = (None, None) if self.reader is None else self.reader.open()
        specs = self.keys.specs_of(group.methods)
        traces = traced(model, tokenizer, group.items)
        texts = [
            ComparedText(trace, item, int(key[:8], 16), specs, self.metrics, self.protocol)
            for trace, item, key in zip(traces, group.items, group.keys, strict=True)
        ]
        answer_together(texts, self.protocol.batch_size)
        values = {
            family: np.stack([text.scores[family].swapaxes(0, 1) for text in texts])
            for family in self.metrics.families
        }
        first = texts[0].case.removal
        about = {"unit": first.unit.name, "model": first.trace.model_id}
        return Scores(group.keys, group.methods, values, tuple(tuple(text.notes) for text in texts), about)


class _Source:
    """The entries of a data set, checked; a stream can be read once, a collection again."""

    def __init__(self, dataset: Any, metrics: MetricSet, model: Any, jobs: int | Executor) -> None:
        if isinstance(dataset, str) or not hasattr(dataset, "__iter__"):
            raise TypeError(f"dataset takes texts, objects with a text, or traces, not {dataset!r:.60}.")
        require_no_table(dataset, "dataset")
        self._dataset, self._metrics, self._model, self._jobs = dataset, metrics, model, jobs
        self._fingerprints: dict[int, str] = {}

    def items(self) -> Iterator[Item]:
        """Yield the entries.

        Raises:
            ValueError: If an entry is empty, or lacks a label or rationale that the metrics need.
            TypeError: If an item is not an entry.
        """
        for number, entry in enumerate(self._dataset):
            item = item_of(entry, number, self._metrics)
            if item.trace is None and self._model is None:
                raise ValueError("model is missing: the data set has texts; pass model and tokenizer.")
            if item.trace is not None and self._jobs != 1:
                raise ValueError(
                    f"dataset[{number}] is a trace, which stays in this process with its model: use jobs=1, "
                    "or pass texts, model and tokenizer."
                )
            yield item

    def shards(self) -> Iterator[list[tuple[str, Item]]]:
        """Yield entries with the keys of their content, shard by shard."""
        for shard in _cut(self.items()):
            yield [(self._key(item), item) for item in shard]

    def checked(self) -> int | None:
        """Check a data set that can be read again, and return its number of shards; None for a stream."""
        return sum(1 for _ in _cut(self.items())) if isinstance(self._dataset, Sized) else None

    def _key(self, item: Item) -> str:
        if item.trace is None:
            return key_of(item.content(self._metrics))
        model = item.trace.model
        if id(model) not in self._fingerprints:
            self._fingerprints[id(model)] = fingerprint_of(model)
        return key_of(self._fingerprints[id(model)], item.content(self._metrics))


def _cut(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield the texts of every shard: a fixed number, fewer if they are long."""
    shard: list[Item] = []
    length = 0
    for item in items:
        if shard and (len(shard) >= WINDOW or length > LONG):
            yield shard
            shard, length = [], 0
        shard.append(item)
        length += len(item.whole_text)
    if shard:
        yield shard


def _metric_set(metrics: str | Sequence[str], operator: Any, target: Any, unit: str | None) -> MetricSet:
    names = metric_names(metrics, EVERY)
    if not names:
        raise ValueError(f"metrics is empty; choose from {listed(EVERY)}.")
    families = {
        family: tuple(name for name in dict.fromkeys(names) if EVERY[name] == family)
        for family in FAMILIES
        if any(EVERY[name] == family for name in names)
    }
    if operator is None and set(REMOVING) & set(families):
        raise ValueError("operator is missing: say how features are removed (see aw.evaluate.OPERATORS).")
    return MetricSet(families, target, unit)


def _baselines(family: str, protocol: RemovalProtocol) -> tuple[str, ...]:
    """Return the baselines of a family."""
    if family == "complexity":
        return tuple(FLAT)
    return (RANDOM,) if family == "removal" and protocol.oracle is None else (RANDOM, ORACLE)


def _card(
    family: str,
    names: Sequence[str],
    results: Scored,
    keys: MethodKeys,
    protocol: RemovalProtocol,
    fingerprint: str,
) -> Scorecard:
    """Return the scorecard of a family of metrics."""
    baselines = _baselines(family, protocol)
    samples = keys.rows(results.values[family]).swapaxes(1, 2)
    curve: dict[str, Any] = {"x": protocol.thresholds, "x_name": "share"} if family == "removal" else {}
    return scored(
        samples,
        "compare",
        title=f"{family.replace('_', ' ')}{f', {protocol.operator}' if family in REMOVING else ''}",
        model=results.about["model"],
        paper=PAPER[family],
        fingerprint=fingerprint,
        options=protocol.options() | {"examples": len(samples)},
        notes=results.notes,
        metrics=names,
        methods=[*keys.specs, *baselines],
        baselines=baselines,
        unit=results.about["unit"],
        **curve,
    )
