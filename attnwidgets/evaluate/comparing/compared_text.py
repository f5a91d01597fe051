"""A text of a comparison: its entry in the data set, and its scores by all families of metrics.

Families that remove features are generators of questions (`ordering.py`). `answer_together` runs those of
several texts in rounds: each round collects the variants that the model has not answered yet, runs them in
shared batches, and sends every family its answers. `ComparedText` stores answers, so that a variant which
several families need runs once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.evaluate.examples.explained_input import explained, require_single, source_of
from attnwidgets.evaluate.metrics import infidelity
from attnwidgets.evaluate.metrics.complexity import EPSILON, UNDEFINED, complexity, needed_questions
from attnwidgets.evaluate.metrics.complexity import METRICS as COMPLEXITY
from attnwidgets.evaluate.metrics.faithfulness import removal_questions
from attnwidgets.evaluate.metrics.plausibility import METRICS as PLAUSIBILITY
from attnwidgets.evaluate.metrics.plausibility import plausibility
from attnwidgets.evaluate.metrics.random_baseline import RandomBaseline
from attnwidgets.evaluate.metrics.stability import METRICS as STABILITY
from attnwidgets.evaluate.metrics.stability import stability
from attnwidgets.evaluate.removals.ordering import FIDELITY
from attnwidgets.evaluate.removals.ordering import METRICS as REMOVAL
from attnwidgets.evaluate.removals.removal import Answers
from attnwidgets.evaluate.removals.shared_batches import answer_all
from attnwidgets.explanations.targets.named import resolve_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.evaluate.arrays import Bools, Float
    from attnwidgets.evaluate.removals.ordering import Questions
    from attnwidgets.evaluate.removals.protocol import RemovalCase, RemovalProtocol
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.trace import Trace

FAMILIES: dict[str, tuple[str, ...]] = {
    "removal": (*REMOVAL, *FIDELITY),
    "single_removals": tuple(infidelity.METRICS),
    "infidelity": ("infidelity",),
    "effective_complexity": ("effective_complexity",),
    "stability": STABILITY,
    "plausibility": tuple(PLAUSIBILITY),
    "complexity": tuple(COMPLEXITY),
}
REMOVING = ("removal", "single_removals", "infidelity", "effective_complexity")
"""Families that remove features."""
_UNDEFINED = {
    "single_removals": infidelity.UNDEFINED_ALONE,
    "infidelity": infidelity.UNDEFINED,
    "effective_complexity": UNDEFINED,
}
_DRAWS = 100  # where draws cost no forward pass


@dataclass(frozen=True)
class MetricSet:
    """The metrics of a comparison, with their target and unit.

    Attributes:
        families: Names of metrics by family.
        target: As `compare` takes it.
        unit: Unit of the features.
    """

    families: Mapping[str, tuple[str, ...]]
    target: Any
    unit: str | None

    @property
    def by_label(self) -> bool:
        """Whether the target is the label of each text."""
        return isinstance(self.target, str) and self.target == "label"


@dataclass(frozen=True)
class Item:
    """An entry of a data set.

    Attributes:
        text: The text; "" for a trace.
        label: Its label, or None.
        rationale: Spans or elements that a person names, or None.
        trace: The trace, if the entry is a trace.
    """

    text: str
    label: Any = None
    rationale: Any = None
    trace: Trace | None = None

    @property
    def whole_text(self) -> str:
        """The text, also of a trace."""
        return self.text if self.trace is None else self.trace.text

    def content(self, metrics: MetricSet) -> Any:
        """Return the content on which the scores depend: label and rationale only if the metrics use them."""
        label = self.label if metrics.by_label else None
        rationale = self.rationale if "plausibility" in metrics.families else None
        if rationale is not None:
            rationale = [list(span) if isinstance(span, Sequence) else int(span) for span in rationale]
        if self.trace is None:
            return [self.text, label, rationale]
        inputs = {
            name: value.tolist() for name, value in self.trace.inputs.items() if hasattr(value, "tolist")
        }
        return [inputs, label, rationale]


def item_of(entry: Any, number: int, metrics: MetricSet) -> Item:
    """Return an entry of a data set.

    Raises:
        ValueError: If a text is empty, or lacks the label or rationale that the metrics need.
        TypeError: If it is not an entry.
    """
    name = f"dataset[{number}]"
    if hasattr(entry, "stack_table"):
        item = Item("", trace=entry)
    elif isinstance(entry, str):
        item = Item(entry)
    elif isinstance(entry, Mapping):
        item = Item(entry.get("text", ""), entry.get("label"), entry.get("rationale"))
    elif hasattr(entry, "text"):
        item = Item(entry.text, getattr(entry, "label", None), getattr(entry, "rationale", None))
    elif isinstance(entry, Sequence) and len(entry) == 2:  # noqa: PLR2004 - text and label
        item = Item(entry[0], entry[1])
    else:
        kind = type(entry).__name__
        raise TypeError(f"{name} is a {kind}, not a text, an object with one, (text, label) or a trace.")
    if item.trace is None and (not isinstance(item.text, str) or not item.text.strip()):
        raise ValueError(f"{name} has an empty text; leave it out.")
    if metrics.by_label and item.label is None:
        raise ValueError(f"{name} has no label, and target='label' needs it.")
    if "plausibility" in metrics.families and item.rationale is None:
        raise ValueError(f"{name} has no rationale, and {metrics.families['plausibility'][0]!r} needs it.")
    return item


def traced(model: Any, tokenizer: Any, items: Sequence[Item]) -> list[Trace]:
    """Return a trace of every entry, the texts in shared batches."""
    from attnwidgets.tracing.recording.run import trace

    texts = [item.text for item in items if item.trace is None]
    new_traces = iter(trace(model, tokenizer, texts) if texts else [])
    return [next(new_traces) if item.trace is None else item.trace for item in items]


def answer_together(texts: Sequence[ComparedText], batch_size: int) -> None:
    """Score the families that remove features, for several texts in shared batches, round by round."""
    asking = [(text, family, questions) for text in texts for family, questions in text.questions()]
    answers: dict[int, Answers | None] = dict.fromkeys(range(len(asking)))
    while answers:
        pending: dict[int, Bools] = {}
        for number, answer in answers.items():
            text, family, questions = asking[number]
            try:
                pending[number] = next(questions) if answer is None else questions.send(answer)
            except StopIteration as end:
                text.store(family, end.value)
        by_text: dict[ComparedText, list[Bools]] = {}
        for number, removed in pending.items():
            by_text.setdefault(asking[number][0], []).append(removed)
        unknown = [text.unknown(np.concatenate(removed)) for text, removed in by_text.items()]
        removals = [(text.case.removal, removed) for text, removed in zip(by_text, unknown, strict=True)]
        for text, removed, new in zip(by_text, unknown, answer_all(removals, batch_size), strict=True):
            text.learn(removed, new)
        answers = {number: asking[number][0].answers_to(removed) for number, removed in pending.items()}


class ComparedText:
    """A text, its explanations, and its scores.

    Attributes:
        scores: By family [metric, method and then baseline, x].
        notes: Notes for the reader.
        case: The explained input under the protocol.

    Args:
        trace: The text's trace.
        item: Its entry in the data set.
        seed: Seed of its draws.
        specs: The methods by name.
        metrics: The metrics.
        protocol: How features are removed.
    """

    def __init__(
        self,
        trace: Trace,
        item: Item,
        seed: int,
        specs: Mapping[str, Any],
        metrics: MetricSet,
        protocol: RemovalProtocol,
    ) -> None:
        self._rationale, self._specs, self._metrics = item.rationale, specs, metrics
        self._target: Target = resolve_target(
            trace, item.label if metrics.by_label else metrics.target, method="compare"
        )
        self._explanations = {
            name: require_single(source_of(spec, 1, name, self._target)(0, trace), name)
            for name, spec in specs.items()
        }
        (explained_input,) = explained(trace, self._explanations, self._target, "compare", metrics.unit)
        self.case = protocol.case(explained_input, self._target, seed)
        self.scores: dict[str, Float] = {}
        self.notes: dict[str, None] = {}
        self._answers: dict[bytes, Float] = {}
        self._score_without_removal()

    def questions(self) -> Iterator[tuple[str, Questions[Any]]]:
        """Yield the questions of every family that removes features."""
        families, case, protocol = self._metrics.families, self.case, self.case.protocol

        def changed(**options: Any) -> RemovalCase:
            return replace(case, protocol=replace(protocol, **options))

        if names := families.get("removal"):
            every = REMOVAL | FIDELITY
            yield "removal", removal_questions(case, {name: every[name] for name in names}, self.notes)
        if "infidelity" in families:
            by_number = changed(score=protocol.score or "number")
            yield "infidelity", infidelity.infidelity_questions(by_number)
        if "effective_complexity" in families:
            by_size = changed(by="magnitude", oracle=protocol.oracle or "leave_one_out")
            epsilon = EPSILON
            yield "effective_complexity", needed_questions(by_size, epsilon)
        if names := families.get("single_removals"):
            yield "single_removals", infidelity.single_questions(changed(draws=_DRAWS), names)

    def unknown(self, removed: Bools) -> Bools:
        """Return the variants that the model has not answered yet [variant, element], each once."""
        rows = {row.tobytes(): row for row in removed}
        left = [row for key, row in rows.items() if key not in self._answers]
        return np.stack(left) if left else removed[:0]

    def learn(self, removed: Bools, answers: Answers) -> None:
        """Store the answers to variants."""
        self._answers |= {row.tobytes(): kinds for row, kinds in zip(removed, answers.table().T, strict=True)}

    def answers_to(self, removed: Bools) -> Answers:
        """Return the stored answers to variants."""
        return Answers.of(np.stack([self._answers[row.tobytes()] for row in removed], axis=1))

    def store(self, family: str, scores: Any) -> None:
        """Store the scores of a family [metric, method, x]; a single metric may lack the first axis."""
        array = np.asarray(scores, dtype=np.float64)
        array = array[None] if array.ndim == 1 else array
        self.scores[family] = array[..., None] if array.ndim == 2 else array  # noqa: PLR2004 - without x
        if family in _UNDEFINED and np.isnan(array).any():
            self.notes[_UNDEFINED[family]] = None

    def _keep_card(self, family: str, card: Scorecard) -> None:
        self.notes |= dict.fromkeys(filter(None, [card.warning]))
        self.store(family, card.samples[0])

    def _score_without_removal(self) -> None:
        """Score the families that remove nothing."""
        families, unit, protocol = self._metrics.families, self._metrics.unit, self.case.protocol
        trace, seed = self.case.removal.trace, protocol.seed + self.case.number
        if names := families.get("stability"):
            card = stability(trace, self._specs, self._target, seed=seed)
            self._keep_card("stability", card.select(metric=list(names)))
        if names := families.get("complexity"):
            read = {
                name: values if unit is None else values.to(unit)
                for name, values in self._explanations.items()
            }
            self._keep_card("complexity", complexity(read, metrics=names, special=protocol.special))
        if names := families.get("plausibility"):
            card = plausibility(
                trace,
                self._explanations,
                self._rationale,
                self._target,
                metrics=names,
                by=protocol.by,
                special=protocol.special,
                baseline=RandomBaseline(draws=_DRAWS, seed=seed),
                unit=unit,
            )
            self._keep_card("plausibility", card)
