"""Several methods by several metrics over a data set: in shared batches, kept on disk, resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets._shards import workers_of
from attnwidgets.evaluate.comparing.compared_text import (
    ASKING,
    FAMILIES,
    Asked,
    Item,
    item_of,
    scores_of,
    traced,
)
from attnwidgets.evaluate.comparing.comparison import Comparison
from attnwidgets.evaluate.corpora.score_cache import ScoreCache
from attnwidgets.evaluate.corpora.scores import Scores
from attnwidgets.evaluate.corpora.scoring import score_shards
from attnwidgets.evaluate.examples.method_specs import labelled
from attnwidgets.evaluate.metrics.complexity import BASELINES as FLAT
from attnwidgets.evaluate.metrics.faithfulness import ERASER, Plan
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM, scored
from attnwidgets.tracing.content import key_of
from attnwidgets.tracing.fingerprint import fingerprint_of
from attnwidgets.tracing.model_parcel import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from concurrent.futures import Executor

    from attnwidgets.evaluate.corpora.scoring import Group, Scored
    from attnwidgets.evaluate.examples.method_specs import Specs
    from attnwidgets.evaluate.removals.ordering import Oracle, Rounding
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.evaluate.removals.removal_metrics import Score
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.tracing.model_parcel import Carried

WINDOW = 16
"""Texts of a shard, at most: their questions share batches, and their scores are kept in one file."""
LONG = 2_000
"""And after how many characters: long texts fill batches by themselves; an interrupt should cost little."""
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


def compare(
    methods: Specs,
    metrics: str | Sequence[str],
    dataset: Iterable[Any],
    model: Any = None,
    tokenizer: Any = None,
    *,
    operator: Operator | None = None,
    target: Any = None,
    thresholds: Sequence[float] = ERASER,
    score: Score | None = None,
    rounding: Rounding = "ceil",
    by: Literal["value", "magnitude"] = "value",
    positive: bool = False,
    special: bool = False,
    oracle: Oracle | None = "leave_one_out",
    draws: int = 10,
    seed: int = 0,
    unit: str | None = None,
    batch_size: int = 64,
    cache: Any = None,
    jobs: int | Executor = 1,
) -> Comparison:
    """What methods score by several metrics over a data set.

    What is removed from a text, for all methods, metrics and shares at once, is asked of the model in batches
    that texts share; equal inputs run once. With `cache` scores are kept on disk under a hash of what they
    follow from: the model's weights, the tokenizer's vocabulary and rules, the text, the method's code and
    options. So a run that was interrupted goes on where it stopped, another method or text costs only
    itself, and several processes or machines may fill one folder.

    Texts are read as they are needed, in shards of at most 16 (fewer where they are long), and not kept;
    memory grows by 8 bytes a text, metric, method and share. Shards do not depend on `jobs`, so that scores
    are equal to the last bit for any number of workers that compute in as many threads each.

    Args:
        methods: Names in `aw.methods()`, (name, options), functions of a trace that return Attributions; or a
            mapping from labels to these.
        metrics: Names: of `faithfulness` ("comprehensiveness", "sufficiency", "log_odds", "deletion",
            "insertion"), "fidelity_plus" and "fidelity_minus" (hard, against the target; `characterization`
            of `["removal"]` weighs the two), of `single_removals`, "infidelity", "effective_complexity", of
            `plausibility` (texts with rationales), `complexity` and `stability` (which computes every method
            anew under noise). All by the defaults of these functions, apart from what is named below.
        dataset: Texts; objects or mappings with `text` and, where there are any, `label` and `rationale`
            (`aw.demo_texts("test")`); pairs (text, label); or traces. A list, a data set of Hugging Face, a
            generator: anything that can be iterated. What has a length is checked before anything runs.
        model: As `aw.trace` takes it; not needed for traces. A name is loaded once, and once in every worker.
        tokenizer: Its tokenizer.
        operator: How features are removed; see `faithfulness`. Needed where something is.
        target: As every method takes it; "label": each text's own label (then fidelity is that of the
            phenomenon). By default what the model predicts.
        thresholds: See `faithfulness`, as for what follows.
        score: What a target's score is.
        rounding: Of how many features a share is.
        by: Rank by "value" or by "magnitude".
        positive: Whether only features above zero are removed.
        special: Whether special tokens are features.
        oracle: The order of the row "oracle"; None: no such row.
        draws: How many random orders the row "random" is the mean of.
        seed: Of all draws. They belong to a text, whatever stands beside it.
        unit: What features are.
        batch_size: Inputs that run together.
        cache: A folder to keep scores in; None: nothing is kept.
        jobs: How many processes share the texts, each with a copy of the model and one thread; or a
            `concurrent.futures.Executor`, such as Dask's `client.get_executor()`. For workers on other
            machines name the model's folder or hub id. See docs/scale.md.

    Returns:
        A Comparison: a Scorecard for every family of metrics, and `.table`.

    Raises:
        ValueError: For an unknown metric, method or operator; an empty text or data set; texts without the
            label or rationale that is asked for; no model; `jobs` other than 1 with traces, or with a model
            whose interventions are in force.
        TypeError: Where a method returns no Attributions.
        RuntimeError: Where the worker of a shard dies again and again; the message names its texts.
    """
    from attnwidgets._version import __version__

    asked = _asked(metrics, operator, target, unit)
    plan = Plan(
        operator or "delete",
        tuple(thresholds),
        score=score,
        rounding=rounding,
        by=by,
        positive=positive,
        special=special,
        oracle=oracle,
        draws=draws,
        seed=seed,
        batch_size=batch_size,
    )
    specs = labelled(methods)
    workers_of(jobs)
    source = _Source(dataset, asked, model, jobs)
    total = source.checked()
    reader = None if model is None else Reader(model, tokenizer)
    prints = () if reader is None else reader.fingerprints
    about = key_of(__version__, prints, vars(asked), plan.options() | {"batch_size": None})
    keys = {name: key_of(spec) for name, spec in specs.items()}
    by_key = {key: (name, specs[name]) for name, key in reversed(keys.items())}
    with nullcontext() if reader is None else reader.carried(jobs) as carried:
        found = score_shards(
            source.shards(),
            _Scorer(carried, by_key, asked, plan),
            list(dict.fromkeys(keys.values())),
            ScoreCache(cache, about),
            jobs,
            desc="comparing",
            total=total,
        )
    if found is None:
        raise ValueError("dataset is empty: give at least one text.")
    cards = {
        family: _card(family, names, found, keys, plan, "-".join(prints))
        for family, names in asked.families.items()
    }
    said = tuple(item.said for item in source.items()) if isinstance(dataset, (list, tuple)) else ()
    return Comparison(cards, said, found.reused)


@dataclass(frozen=True)
class _Scorer:
    """Scores texts, in whatever process."""

    reader: Carried | None
    specs: Mapping[str, tuple[str, Any]]
    asked: Asked
    plan: Plan

    def __call__(self, group: Group[Item]) -> Scores:
        model, tokenizer = (None, None) if self.reader is None else self.reader.open()
        specs = dict(self.specs[key] for key in group.methods)
        names, count = list(specs), len(group.items)
        found = scores_of(
            traced(model, tokenizer, group.items), group.items, group.keys, [names] * count, specs,
            self.asked, self.plan,
        )  # fmt: skip
        values = {
            family: np.array(
                [
                    [one["rows"][row][family] for row in (*names, *_baselines(family, self.plan))]
                    for one in found
                ],
                dtype=np.float64,
            )
            for family in self.asked.families
        }
        notes = tuple(tuple(one["notes"]) for one in found)
        return Scores(group.keys, group.methods, values, notes, found[0]["about"])


class _Source:
    """The entries of a data set, as often as it can be read."""

    def __init__(self, dataset: Any, asked: Asked, model: Any, jobs: int | Executor) -> None:
        if isinstance(dataset, str) or not hasattr(dataset, "__iter__"):
            raise TypeError(f"dataset takes texts, objects with a text, or traces, not {dataset!r:.60}.")
        self._dataset, self._asked, self._model, self._jobs = dataset, asked, model, jobs
        self._prints: dict[int, str] = {}

    def items(self) -> Iterator[Item]:
        """Yield the entries.

        Raises:
            ValueError: Where one is empty, or lacks what is asked for.
            TypeError: Where one is none.
        """
        for number, one in enumerate(self._dataset):
            item = item_of(one, number, self._asked)
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
        for part in _cut(self.items()):
            yield [(self._key(item), item) for item in part]

    def checked(self) -> int | None:
        """Look through what can be read again, and return how many shards it has."""
        return sum(1 for _ in _cut(self.items())) if isinstance(self._dataset, Sized) else None

    def _key(self, item: Item) -> str:
        if item.trace is None:
            return key_of(item.content(self._asked))
        model = item.trace.model
        if id(model) not in self._prints:
            self._prints[id(model)] = fingerprint_of(model)
        return key_of(self._prints[id(model)], item.content(self._asked))


def _cut(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield the texts of every shard: a fixed number, fewer where they are long."""
    part: list[Item] = []
    length = 0
    for item in items:
        if part and (len(part) >= WINDOW or length > LONG):
            yield part
            part, length = [], 0
        part.append(item)
        length += len(item.said)
    if part:
        yield part


def _asked(metrics: str | Sequence[str], operator: Any, target: Any, unit: str | None) -> Asked:
    names = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    if not names:
        raise ValueError(f"metrics is empty; there is {listed(EVERY)}.")
    for name in names:
        if name not in EVERY:
            raise ValueError(f"metrics has {name!r}; there is {listed(EVERY)}.{suggest(name, EVERY)}")
    families = {
        family: tuple(name for name in dict.fromkeys(names) if EVERY[name] == family)
        for family in FAMILIES
        if any(EVERY[name] == family for name in names)
    }
    if operator is None and set(ASKING) & set(families):
        raise ValueError("operator is missing: say how features are removed (see aw.evaluate.OPERATORS).")
    return Asked(families, target, unit)


def _baselines(family: str, plan: Plan) -> tuple[str, ...]:
    """Return what stands beside the methods in a family."""
    if family == "complexity":
        return tuple(FLAT)
    return (RANDOM,) if family == "removal" and plan.oracle is None else (RANDOM, ORACLE)


def _card(
    family: str, names: Sequence[str], found: Scored, keys: Mapping[str, str], plan: Plan, fingerprint: str
) -> Scorecard:
    """Return the scorecard of one family of metrics."""
    baselines = _baselines(family, plan)
    places = list(dict.fromkeys(keys.values()))
    rows = [*map(places.index, keys.values()), *range(len(places), len(places) + len(baselines))]
    samples = found.values[family][:, rows].swapaxes(1, 2)
    curve = family == "removal"
    return scored(
        samples,
        "compare",
        title=f"{family.replace('_', ' ')}{f', {plan.operator}' if family in ASKING else ''}",
        model=found.about["model"],
        paper=PAPER[family],
        fingerprint=fingerprint,
        options=plan.options() | {"examples": len(samples)},
        notes=found.notes,
        metrics=names,
        methods=[*keys, *baselines],
        baselines=baselines,
        x=plan.thresholds if curve else ["score"],
        x_name="share" if curve else "score",
        unit=found.about["unit"],
    )
