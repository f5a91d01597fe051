"""One text of a comparison: what it is, and its scores by all families of metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.evaluate.examples.explained_input import explained, require_single, source_of
from attnwidgets.evaluate.metrics.complexity import BASELINES as FLAT
from attnwidgets.evaluate.metrics.complexity import METRICS as COMPLEXITY
from attnwidgets.evaluate.metrics.complexity import complexity
from attnwidgets.evaluate.metrics.effective_complexity import Needed, needed_questions
from attnwidgets.evaluate.metrics.faithfulness import Example
from attnwidgets.evaluate.metrics.infidelity import SAMPLES, SHARE, infidelity_questions
from attnwidgets.evaluate.metrics.plausibility import METRICS as PLAUSIBILITY
from attnwidgets.evaluate.metrics.plausibility import plausibility
from attnwidgets.evaluate.metrics.single_removals import EPSILON, single_questions
from attnwidgets.evaluate.metrics.single_removals import METRICS as SINGLES
from attnwidgets.evaluate.metrics.stability import METRICS as STABILITY
from attnwidgets.evaluate.metrics.stability import stability
from attnwidgets.evaluate.removals.removal import Answers, removable
from attnwidgets.evaluate.removals.removal_metrics import FIDELITY
from attnwidgets.evaluate.removals.removal_metrics import METRICS as REMOVAL
from attnwidgets.evaluate.removals.shared_batches import Question, answer_all
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM
from attnwidgets.explanations.targets.named import resolve_target

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from attnwidgets.evaluate.examples.explained_input import ExplainedInput
    from attnwidgets.evaluate.metrics.faithfulness import Plan
    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.trace import Trace

    Asking = Generator[NDArray[np.bool_], Answers, Any]

FAMILIES: dict[str, tuple[str, ...]] = {
    "removal": (*REMOVAL, *FIDELITY),
    "single_removals": tuple(SINGLES),
    "infidelity": ("infidelity",),
    "effective_complexity": ("effective_complexity",),
    "stability": STABILITY,
    "plausibility": tuple(PLAUSIBILITY),
    "complexity": tuple(COMPLEXITY),
}
ASKING = ("removal", "single_removals", "infidelity", "effective_complexity")
"""Families that remove something."""
_UNDEFINED = {
    "single_removals": "undefined where one side is constant, or of fewer than two features",
    "infidelity": "undefined where nothing is removed, or nothing left to read",
    "effective_complexity": "undefined where no number of features will do, or nothing is ranked",
}
_DRAWS = 100  # of what costs no pass


@dataclass(frozen=True)
class Asked:
    """What is asked of every text.

    Attributes:
        families: Names of metrics by family.
        target: As `compare` takes it.
        unit: What features are.
    """

    families: Mapping[str, tuple[str, ...]]
    target: Any
    unit: str | None

    @property
    def by_label(self) -> bool:
        """Whether the target is each text's own label."""
        return isinstance(self.target, str) and self.target == "label"


@dataclass(frozen=True)
class Item:
    """One entry of a data set.

    Attributes:
        text: The text, "" for a trace.
        label: Its label, or None.
        rationale: Spans or elements that a person names, or None.
        trace: The trace, where one was given.
    """

    text: str
    label: Any = None
    rationale: Any = None
    trace: Trace | None = None

    @property
    def said(self) -> str:
        """The text."""
        return self.text if self.trace is None else self.trace.text

    def content(self, asked: Asked) -> Any:
        """Return what the scores of this entry follow from: its label and rationale only where they count."""
        label = self.label if asked.by_label else None
        rationale = self.rationale if "plausibility" in asked.families else None
        if rationale is not None:
            rationale = [list(one) if isinstance(one, Sequence) else int(one) for one in rationale]
        if self.trace is None:
            return [self.text, label, rationale]
        inputs = {
            name: value.tolist() for name, value in self.trace.inputs.items() if hasattr(value, "tolist")
        }
        return [inputs, label, rationale]


def item_of(given: Any, number: int, asked: Asked) -> Item:
    """Return an entry of a data set.

    Raises:
        ValueError: Where a text is empty, or lacks the label or rationale that is asked for.
        TypeError: Where it is none.
    """
    place = f"dataset[{number}]"
    if hasattr(given, "stack_table"):
        item = Item("", trace=given)
    elif isinstance(given, str):
        item = Item(given)
    elif isinstance(given, Mapping):
        item = Item(given.get("text", ""), given.get("label"), given.get("rationale"))
    elif hasattr(given, "text"):
        item = Item(given.text, getattr(given, "label", None), getattr(given, "rationale", None))
    elif isinstance(given, Sequence) and len(given) == 2:  # noqa: PLR2004 - text and label
        item = Item(given[0], given[1])
    else:
        kind = type(given).__name__
        raise TypeError(f"{place} is a {kind}, not a text, an object with one, (text, label) or a trace.")
    if item.trace is None and (not isinstance(item.text, str) or not item.text.strip()):
        raise ValueError(f"{place} has an empty text; leave it out.")
    if asked.by_label and item.label is None:
        raise ValueError(f"{place} has no label, and target='label' asks for it.")
    if "plausibility" in asked.families and item.rationale is None:
        raise ValueError(
            f"{place} has no rationale, which {asked.families['plausibility'][0]!r} compares with."
        )
    return item


def traced(model: Any, tokenizer: Any, items: Sequence[Item]) -> list[Trace]:
    """Return a trace of every entry, the texts in shared batches."""
    from attnwidgets.tracing.recording.run import trace

    texts = [item.text for item in items if item.trace is None]
    made = iter(trace(model, tokenizer, texts) if texts else [])
    return [next(made) if item.trace is None else item.trace for item in items]


def scores_of(
    traces: Sequence[Trace],
    items: Sequence[Item],
    keys: Sequence[str],
    names: Sequence[Sequence[str]],
    specs: Mapping[str, Any],
    asked: Asked,
    plan: Plan,
) -> list[dict[str, Any]]:
    """Return the scores of some texts: rows by method or baseline and family [metric, x], and notes."""
    texts = [
        _Text(trace, item, int(key[:8], 16), {name: specs[name] for name in own}, asked, plan)
        for trace, item, key, own in zip(traces, items, keys, names, strict=True)
    ]
    _ask_together([(one, asking) for one in texts for asking in one.askings()], plan)
    return [one.found for one in texts]


def _ask_together(askings: Sequence[tuple[_Text, tuple[str, Asking]]], plan: Plan) -> None:
    """Put the questions of several texts to the model in shared batches, round by round."""
    answers: dict[int, Answers | None] = dict.fromkeys(range(len(askings)))
    while answers:
        pending: dict[int, NDArray[np.bool_]] = {}
        for number, answer in answers.items():
            text, (family, asking) = askings[number]
            try:
                pending[number] = next(asking) if answer is None else asking.send(answer)
            except StopIteration as end:
                text.take(family, np.asarray(end.value, dtype=np.float64))
        new: dict[_Text, list[NDArray[np.bool_]]] = {}
        for number, removed in pending.items():
            new.setdefault(askings[number][0], []).append(removed)
        asked = [text.unknown(np.concatenate(several)) for text, several in new.items()]
        for text, one, found in zip(new, asked, answer_all(asked, plan.batch_size), strict=True):
            text.learn(one.removed, found)
        answers = {number: askings[number][0].known(removed) for number, removed in pending.items()}


class _Text:
    """One text: its explanations, what is asked about it, and its scores."""

    def __init__(
        self, trace: Trace, item: Item, seed: int, specs: Mapping[str, Any], asked: Asked, plan: Plan
    ) -> None:
        self.asked, self.plan, self.seed, self.specs = asked, plan, seed, specs
        wanted = item.label if asked.by_label else asked.target
        self.target: Target = resolve_target(trace, wanted, method="compare")
        self.explanations = {
            name: require_single(source_of(spec, 1, name, self.target)(0, trace), name)
            for name, spec in specs.items()
        }
        self.one: ExplainedInput = explained(trace, self.explanations, self.target, "compare", asked.unit)[0]
        self.item = item
        self.notes: dict[str, None] = {}
        self._answers: dict[bytes, NDArray[np.float64]] = {}
        rows: dict[str, dict[str, Any]] = {name: {} for name in self.one.values}
        self.found: dict[str, Any] = {
            "rows": rows,
            "notes": [],
            "about": {"unit": self.one.unit.name, "model": trace.model_id},
        }
        self._at_once()

    def askings(self) -> list[tuple[str, Asking]]:
        """Return what is asked of the model, by family."""
        found: list[tuple[str, Asking]] = []
        if metrics := self.asked.families.get("removal"):
            every = REMOVAL | FIDELITY
            example = Example(
                self.one,
                self.target,
                self.plan,
                {name: every[name] for name in metrics},
                self.seed,
                self.notes,
            )
            found.append(("removal", example.questions()))
        features = removable(
            self.one.trace, self.one.unit, self.one.stack, self.target, special=self.plan.special
        )
        seed, draws = [self.plan.seed, self.seed], self.plan.draws
        index, score = self.target.index, self.plan.score
        if "infidelity" in self.asked.families:
            sums = infidelity_questions(
                self.one, features, index, SAMPLES, SHARE, score or "number", draws, seed, normalize=False
            )
            found.append(("infidelity", sums))
        if "effective_complexity" in self.asked.families:
            needed = Needed(score=score, oracle=self.plan.oracle or "leave_one_out")
            found.append(
                ("effective_complexity", needed_questions(self.one, features, index, needed, draws, seed))
            )
        if metrics := self.asked.families.get("single_removals"):
            asking = single_questions(
                self.one, features, index, metrics, None, EPSILON, EPSILON, score, _DRAWS, seed
            )
            found.append(("single_removals", asking))
        return found

    def unknown(self, removed: NDArray[np.bool_]) -> Question:
        """Return what of some variants [variant, element] the model was not asked before."""
        rows = {row.tobytes(): row for row in removed}
        left = [row for key, row in rows.items() if key not in self._answers]
        own = np.stack(left) if left else removed[:0]
        one = self.one
        return Question(one.trace, self.plan.operator, self.target, one.unit, one.stack, own)

    def learn(self, removed: NDArray[np.bool_], answers: Answers) -> None:
        """Keep the answers to variants."""
        self._answers |= {row.tobytes(): found for row, found in zip(removed, answers.table().T, strict=True)}

    def known(self, removed: NDArray[np.bool_]) -> Answers:
        """Return the answers to variants that were asked."""
        return Answers.of(np.stack([self._answers[row.tobytes()] for row in removed], axis=1))

    def take(self, family: str, scores: NDArray[np.float64]) -> None:
        """Keep the scores of a family [metric, method, x or none]."""
        scores = scores[None] if scores.ndim == 1 else scores  # of one metric
        scores = scores[..., None] if scores.ndim == 2 else scores  # noqa: PLR2004 - without x
        names = [*self.one.values, *(FLAT if family == "complexity" else (RANDOM, ORACLE))]
        for place in range(scores.shape[1]):
            self.found["rows"].setdefault(names[place], {})[family] = scores[:, place].tolist()
        if family in _UNDEFINED and np.isnan(scores).any():
            self.notes[_UNDEFINED[family]] = None
        self.found["notes"] = list(self.notes)

    def _at_once(self) -> None:
        """Score what nothing is removed for."""
        if metrics := self.asked.families.get("stability"):
            card = stability(self.one.trace, self.specs, self.target, seed=self.plan.seed + self.seed)
            self.notes |= dict.fromkeys(filter(None, [card.warning]))
            self.take("stability", card.select(metric=list(metrics)).samples[0])
        if metrics := self.asked.families.get("complexity"):
            read = {
                name: one if self.asked.unit is None else one.to(self.asked.unit)
                for name, one in self.explanations.items()
            }
            card = complexity(read, metrics=metrics, special=self.plan.special)
            self.notes |= dict.fromkeys(filter(None, [card.warning]))
            self.take("complexity", card.samples[0])
        if metrics := self.asked.families.get("plausibility"):
            card = plausibility(
                self.one.trace, self.explanations, self.item.rationale, self.target, metrics=metrics,
                by="magnitude" if self.plan.by == "magnitude" else "value", special=self.plan.special,
                draws=_DRAWS, seed=self.plan.seed + self.seed, unit=self.asked.unit,
            )  # fmt: skip
            self.notes |= dict.fromkeys(filter(None, [card.warning]))
            self.take("plausibility", card.samples[0])
