"""Several methods by several metrics over a data set: in shared batches, kept on disk, resumed."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._progress import progress
from attnwidgets.evaluate.comparing.cache import Cache, key_of
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
from attnwidgets.evaluate.examples.maps import named
from attnwidgets.evaluate.metrics.complexity import BASELINES as FLAT
from attnwidgets.evaluate.metrics.faithfulness import ERASER, Plan
from attnwidgets.evaluate.scorecards.scorecard import Scorecard
from attnwidgets.evaluate.scorecards.scored import ORACLE, RANDOM
from attnwidgets.explanations.selecting import listed
from attnwidgets.tracing.fingerprint import fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnwidgets.evaluate.examples.maps import Specs
    from attnwidgets.evaluate.removals.ordering import Oracle, Rounding
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.evaluate.removals.removal_metrics import Score

WINDOW = 16
"""Texts whose questions share batches, at most, and after which results are kept."""
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
    dataset: Sequence[Any],
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
    jobs: int = 1,
) -> Comparison:
    """What methods score by several metrics over a data set.

    What is removed from a text, for all methods, metrics and shares at once, is asked of the model in batches
    that texts share; equal inputs run once. With `cache` every text's scores are kept on disk under a hash of
    the model's weights, the text, the method and the options, so that a run that was interrupted goes on
    where it stopped, and another method or text costs only itself.

    Args:
        methods: Names in `aw.methods()`, (name, options), functions of a trace that return Attributions; or a
            mapping from labels to these.
        metrics: Names: of `faithfulness` ("comprehensiveness", "sufficiency", "log_odds", "deletion",
            "insertion"), "fidelity_plus" and "fidelity_minus" (hard, against the target; `characterization`
            of `["removal"]` weighs the two), of `single_removals`, "infidelity", "effective_complexity", of
            `plausibility` (texts with rationales), `complexity` and `stability` (which computes every method
            anew under noise). All by the defaults of these functions, apart from what is named below.
        dataset: Texts; objects or mappings with `text` and, where there are any, `label` and `rationale`
            (`aw.demo_texts("test")`); pairs (text, label); or traces.
        model: As `aw.trace` takes it; not needed for traces.
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
        jobs: How many processes share the texts. Each holds a copy of the model, so that more than one pays
            for long runs only; methods must then be names or functions of a module.

    Returns:
        A Comparison: a Scorecard for every family of metrics, and `.table`.

    Raises:
        ValueError: For an unknown metric, method or operator; an empty text or data set; texts without the
            label or rationale that is asked for; no model.
        TypeError: Where a method returns no Attributions.
    """
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
    specs = _specs(methods)
    items = _items(dataset, asked, model)
    if jobs < 1:
        message = f"jobs must be at least 1, not {jobs}."
        raise ValueError(message)
    scorer = Scorer(model, tokenizer, specs, asked, plan)
    keys = _keys(scorer, items)
    kept = Cache(cache)
    entries = {key: kept.get(key) or {"rows": {}, "notes": []} for key in dict.fromkeys(keys)}
    wanted = {name: key_of(spec) for name, spec in specs.items()}
    open_: dict[str, tuple[Item, tuple[str, ...]]] = {}
    reused = 0
    for key, item in zip(keys, items, strict=True):
        missing = tuple(name for name, own in wanted.items() if own not in entries[key]["rows"])
        reused += len(wanted) - len(missing)
        if missing:
            open_[key] = (item, missing)
    for key, found in _scored(scorer, open_, jobs):
        entry = entries[key]
        entry["rows"] |= {wanted[name]: found["rows"].pop(name) for name in open_[key][1]} | found["rows"]
        entry["notes"] = list(dict.fromkeys([*entry["notes"], *found["notes"]]))
        entry["about"] = found["about"]
        kept.put(key, entry)
    cards = {
        family: _card(family, names, [entries[key] for key in keys], wanted, plan)
        for family, names in asked.families.items()
    }
    return Comparison(cards, tuple(item.said for item in items), reused)


@dataclass(frozen=True)
class Scorer:
    """Everything that a process needs to score texts."""

    model: Any
    tokenizer: Any
    specs: Mapping[str, Any]
    asked: Asked
    plan: Plan

    def scores(self, part: Sequence[tuple[str, Item, tuple[str, ...]]]) -> list[tuple[str, dict[str, Any]]]:
        """Return the scores of some texts by some methods each, by key."""
        traces = traced(self.model, self.tokenizer, [item for _, item, _ in part])
        functions = {name: self.specs[name] for _, _, names in part for name in names}
        found = scores_of(
            traces, [item for _, item, _ in part], [key for key, _, _ in part],
            [names for _, _, names in part], functions, self.asked, self.plan,
        )  # fmt: skip
        return [(key, one) for (key, _, _), one in zip(part, found, strict=True)]


_worker: dict[str, Scorer] = {}


def _start(scorer: Scorer) -> None:
    import torch

    torch.set_num_threads(1)
    _worker["scorer"] = scorer


def _work(part: list[tuple[str, Item, tuple[str, ...]]]) -> list[tuple[str, dict[str, Any]]]:
    return _worker["scorer"].scores(part)


def _scored(
    scorer: Scorer, open_: Mapping[str, tuple[Item, tuple[str, ...]]], jobs: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield scores as they are ready, window by window."""
    todo = [(key, item, names) for key, (item, names) in open_.items()]
    size = WINDOW if jobs == 1 else max(1, min(WINDOW, -(-len(todo) // jobs)))
    parts: list[list[tuple[str, Item, tuple[str, ...]]]] = []
    length = 0
    for one in todo:
        if not parts or len(parts[-1]) >= size or length > LONG:
            parts.append([])
            length = 0
        parts[-1].append(one)
        length += len(one[1].said)
    if jobs == 1 or len(parts) < 2:  # noqa: PLR2004 - nothing to share
        for part in progress(parts, "comparing"):
            yield from scorer.scores(part)
        return
    # Forked processes would share locks and threads of torch.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _start, (scorer,)) as pool:
        running = [pool.submit(_work, part) for part in parts]
        try:
            for done in progress(as_completed(running), "comparing", total=len(running)):
                yield from done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _asked(metrics: str | Sequence[str], operator: Any, target: Any, unit: str | None) -> Asked:
    names = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    if not names:
        message = f"metrics is empty; there is {listed(EVERY)}."
        raise ValueError(message)
    for name in names:
        if name not in EVERY:
            message = f"metrics has {name!r}; there is {listed(EVERY)}.{suggest(name, EVERY)}"
            raise ValueError(message)
    families = {
        family: tuple(name for name in dict.fromkeys(names) if EVERY[name] == family)
        for family in FAMILIES
        if any(EVERY[name] == family for name in names)
    }
    if operator is None and set(ASKING) & set(families):
        message = "operator is missing: say how features are removed (see aw.evaluate.OPERATORS)."
        raise ValueError(message)
    return Asked(families, target, unit)


def _specs(methods: Specs) -> dict[str, Any]:
    """Return methods by the names that tables give them, as they were given."""
    if isinstance(methods, Mapping):
        named(methods)
        return {str(name): one for name, one in methods.items()}
    several: list[Any] = list(methods) if isinstance(methods, list) else [methods]
    return dict(zip(named(several), several, strict=True))


def _items(dataset: Any, asked: Asked, model: Any) -> list[Item]:
    if isinstance(dataset, str) or not hasattr(dataset, "__iter__"):
        message = f"dataset takes texts, objects with a text, or traces, not {dataset!r:.60}."
        raise TypeError(message)
    items = [item_of(one, number, asked) for number, one in enumerate(dataset)]
    if not items:
        message = "dataset is empty: give at least one text."
        raise ValueError(message)
    if model is None and any(item.trace is None for item in items):
        message = "model is missing: the data set has texts; pass model and tokenizer."
        raise ValueError(message)
    return items


def _keys(scorer: Scorer, items: Sequence[Item]) -> list[str]:
    """Return what identifies every text's scores: all that they follow from but the methods."""
    from attnwidgets import __version__

    prints: dict[int, str] = {}

    def print_of(model: Any) -> str:
        if id(model) not in prints:
            prints[id(model)] = "" if isinstance(model, str) else fingerprint_of(model)
        return prints[id(model)]

    return [
        key_of(
            __version__,
            scorer.model if isinstance(scorer.model, str) else "",
            print_of(scorer.model if item.trace is None else item.trace.model),
            getattr(scorer.tokenizer, "name_or_path", str(type(scorer.tokenizer))),
            item.content(),
            vars(scorer.asked),
            scorer.plan.options() | {"batch_size": None},
        )
        for item in items
    ]


def _card(
    family: str,
    names: Sequence[str],
    entries: Sequence[Mapping[str, Any]],
    wanted: Mapping[str, str],
    plan: Plan,
) -> Scorecard:
    """Return the scorecard of one family of metrics."""
    baselines = list(FLAT) if family == "complexity" else [RANDOM, ORACLE]
    if family == "removal" and plan.oracle is None:
        baselines = [RANDOM]
    rows = {**wanted, **{name: name for name in baselines}}
    samples = [
        np.stack([np.array(entry["rows"][key][family], dtype=np.float64) for key in rows.values()], axis=1)
        for entry in entries
    ]
    about = next(entry["about"] for entry in entries)
    notes = dict.fromkeys(note for entry in entries for note in entry["notes"])
    curve = family == "removal"
    return Scorecard(
        np.stack(samples),
        metrics=names,
        methods=list(rows),
        baselines=baselines,
        x=plan.thresholds if curve else ["score"],
        x_name="share" if curve else "score",
        unit=about["unit"],
        method="compare",
        warning="; ".join(notes),
        provenance={
            "title": f"{family.replace('_', ' ')}{f', {plan.operator}' if family in ASKING else ''}",
            "model": about["model"],
            "paper": PAPER[family],
            "options": plan.options() | {"examples": len(entries)},
            "steps": [],
        },
    )
