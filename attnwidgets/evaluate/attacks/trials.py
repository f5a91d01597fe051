"""Changes of an input and how far each moves an explanation, as the method itself explains it.

A `Subject` is a method on a text with the prediction that has to stay. `by_embeddings` tries the changes of a
search along a gradient (`search.py`) and random ones, `by_words` replacements of single words; both run the
model on every change and keep the valid one that moved the explanation most.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets.evaluate.attacks.forms import FORMS, STAND_INS
from attnwidgets.evaluate.attacks.result import Attack, Tried
from attnwidgets.evaluate.attacks.search import Ball, Goal, descended, largest_distance, settled
from attnwidgets.evaluate.examples.explained_input import require_single, source_of
from attnwidgets.evaluate.metrics.attention_swaps import is_undefined
from attnwidgets.evaluate.metrics.ranking import spearman
from attnwidgets.evaluate.metrics.robustness import vector_of
from attnwidgets.evaluate.metrics.stability import perturbed, require_one_text
from attnwidgets.evaluate.minimal_edits import single_edits
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import require_trace
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.tracing.retrace import retraced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.attacks.search import AttackSearch
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.tracing.trace import Trace

    Words = Iterable[str] | Callable[[Sequence[str], int], Iterable[str]]


TOP = 3
"""How many of the largest elements are compared."""


LEAST = 5
"""The fewest elements that have an order to lose."""


_HARMLESS = frozenset({"target", "foil", "steps"})
"""Options with which a method reads no other gradients than those that are compared, as SmoothGrad would."""


@dataclass(frozen=True)
class Subject:
    """A method on a text, and the prediction to keep.

    Attributes:
        trace: The trace.
        name: The method's name.
        spec: The method.
        outcome: The column of the prediction.
        row: Its row; None without rows.
        label: Its name.
        tolerance: How far its probability may move.
        source: Explains a trace by the method.
    """

    trace: Trace
    name: str
    spec: Any
    outcome: int
    row: int | None
    label: str
    tolerance: float
    source: Callable[[int, Trace], Any]

    def explained(self, trace: Trace, unit: str | None = None) -> Attributions:
        """Return the explanation of a trace as one value for each element."""
        explanation = self.source(0, trace)
        if isinstance(explanation, MixingMap):
            explanation = vector_of(explanation, "mean", layer=None, how="row", query=None, unit=unit)
        single = require_single(explanation, self.name)
        return single if unit is None else single.to(unit)

    @property
    def registered(self) -> str:
        """The method's name in the registry; "" of a function."""
        if isinstance(self.spec, tuple):
            return str(self.spec[0])
        return self.spec if isinstance(self.spec, str) else ""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options that it was given with."""
        return self.spec[1] if isinstance(self.spec, tuple) else {}

    @cached_property
    def kind(self) -> str:
        """The kind of result: "map" or "attributions"."""
        return "map" if isinstance(self.source(0, self.trace), MixingMap) else "attributions"

    @cached_property
    def probability(self) -> float:
        """The probability of the prediction."""
        return self.predicted(self.trace)[0]

    def predicted(self, trace: Trace) -> tuple[float, bool]:
        """Return the probability of the prediction in another trace, and whether it counts as the same."""
        logits: Any = trace.logits
        row = trace.answer.probabilities((logits if self.row is None else logits[self.row]).double())
        now = float(row[self.outcome])
        if trace is self.trace:
            return now, True
        same = int(row.argmax()) == self.outcome
        return now, same and abs(now - self.probability) <= self.tolerance


def subject_of(trace: Any, name: str, spec: Any, tolerance: float) -> Subject:
    """Return the attacked explanation, and the prediction to keep.

    Raises:
        ValueError: If the trace has no prediction that a change can keep.
        TypeError: If the method is finished, or none.
    """
    require_trace(trace, "attack")
    require_one_text(trace, "trace", "attack")
    target = resolve_target(trace, None, method="attack")
    if is_undefined(trace) or target.index is None:
        raise ValueError(
            "trace predicts a number, and attack needs a prediction that stays the same, with its "
            "probability: a class, or the next token."
        )
    source = source_of(spec, 1, name, target, finished=False)
    return Subject(trace, name, spec, target.index, target.position, target.label, tolerance, source)


def _compared(first: Float, second: Float) -> tuple[float, float]:
    """Return 1 - Spearman's rho of two vectors, and the share of the largest that are others."""
    tops = [set(_largest(values)) for values in (first, second)]
    return 1 - spearman(settled(first), settled(second)), 1 - len(tops[0] & tops[1]) / TOP


def _largest(values: Float) -> list[int]:
    """Return the numbers of the largest values by magnitude."""
    largest: list[int] = np.argsort(-np.abs(values), kind="stable")[:TOP].tolist()
    return largest


def _require_order(count: int, items: str) -> None:
    if count < LEAST:
        raise ValueError(
            f"trace has {count} {items}: an order that can move needs at least {LEAST}. Take a longer text."
        )


def by_embeddings(subject: Subject, search: AttackSearch) -> Attack:
    """Return the attack on a method of a text by changes of its embeddings."""
    import torch

    from attnwidgets.tracing.anatomy.block_names import word_embeddings
    from attnwidgets.tracing.recording.borrow import unwrap
    from attnwidgets.tracing.recording.run import trace as trace_again

    trace = subject.trace
    before = subject.explained(trace)
    content = ~np.array(before.source_unit.special, dtype=bool)
    values = np.asarray(before.values, dtype=np.float64)
    ids = torch.as_tensor(trace.input_ids)
    if len(values) != len(ids):
        raise ValueError(
            f"method {subject.name!r} gives {len(values)} values for {len(ids)} tokens, and attack changes "
            "the embeddings of tokens: explain tokens, or give words=aw.evaluate.near_words(...)."
        )
    _require_order(int(content.sum()), "tokens that are not special")
    table: Any = word_embeddings(unwrap(trace.model))[0]
    with no_grad():
        embeddings = table(ids.to(table.weight.device)).double().cpu().numpy()
    lengths = np.linalg.norm(embeddings, axis=-1)
    ball = Ball(search.budget * lengths * content, embeddings.shape[-1])
    generator = np.random.default_rng(search.seed)
    drawn = [ball.drawn(generator) for _ in range(search.draws)]
    direction = subject.registered if subject.registered in FORMS else STAND_INS[subject.kind]
    descent = descended(
        trace,
        FORMS[direction],
        subject.options,
        ball,
        Goal(
            tuple(_largest(values * content)),
            content,
            subject.row,
            subject.outcome,
            subject.probability,
            subject.tolerance,
        ),
        query=len(ids) - 1 if trace.is_causal() else 0,
        steps=search.steps,
        drawn=drawn,
    )
    tried: list[Tried] = []
    best: _Best | None = None
    for number, change in enumerate(progress([*descent.changes, *drawn], "measuring changes")):
        with perturbed(trace.model, ids, torch.from_numpy(change), alone=subject.name):
            again = trace_again(trace.model, trace.tokenizer, input_ids=ids.tolist())
            explanation = subject.explained(again)
        probability, valid = subject.predicted(again)
        moved = _compared(values[content], np.asarray(explanation.values, dtype=np.float64)[content])
        length = np.linalg.norm(change, axis=-1)
        size = float(np.divide(length, lengths, out=np.zeros_like(length), where=lengths > 0).max())
        kind: Any = "attack" if number < len(descent.changes) else "random"
        tried.append(Tried(kind, "", size, probability, valid, *moved))
        if valid and (best is None or moved[0] > best.distance):
            best = _Best(moved[0], probability, explanation, again, change)
    is_form = direction == subject.registered and _HARMLESS.issuperset(subject.options)
    if descent.shifts is None or not is_form:
        bound = None
    else:
        bound = largest_distance(values[content], descent.shifts[content])
    return _result(subject, search.budget, before, best, tried, direction=direction, bound=bound)


def by_words(subjects: Sequence[Subject], words: Words, search: AttackSearch) -> list[Attack]:
    """Return the attacks on methods of a text by the same words; each changed text is traced once for all."""
    import torch

    trace = subjects[0].trace
    text = str(trace.text)
    given, read = (torch.as_tensor(item.input_ids) for item in (trace, retraced(trace, text)))
    if not torch.equal(given, read):
        raise ValueError("trace is not of its text alone (tokens were added by hand): attack embeddings.")
    attacksby_words = [_ByWords(subject, subject.explained(trace, "word")) for subject in subjects]
    for by_words in attacksby_words:
        _require_order(int((~by_words.special).sum()) - 1, "words that stay")
    edits = single_edits(text.split(" "), words, "words")
    generator = np.random.default_rng(search.seed)
    for number in progress(generator.permutation(len(edits))[: search.most], "trying words"):
        _, new, changed = edits[number]
        again = retraced(trace, changed)
        for by_words in attacksby_words:
            by_words.measure(new, again)
    if not all(by_words.tried for by_words in attacksby_words):
        raise ValueError("words holds no word that can be put in the place of a single word of this text.")
    return [_result(by.subject, 1.0, by.before, by.best, by.tried) for by in attacksby_words]


@dataclass
class _ByWords:
    """An attack by words on a method, and the changes that it has measured."""

    subject: Subject
    before: Attributions
    tried: list[Tried] = field(default_factory=list)
    best: _Best | None = None

    @property
    def special(self) -> NDArray[np.bool_]:
        """Which elements are special tokens."""
        return np.array(self.before.source_unit.special, dtype=bool)

    def measure(self, new: str, again: Trace) -> None:
        """Measure how far a word moves the explanation, given the trace of the text with it."""
        subject, before = self.subject, self.before
        if subject.row is not None and len(again.tokens) != len(subject.trace.tokens):
            return  # the prediction is read at another token
        explanation = subject.explained(again, "word")
        stays = [old == label for old, label in zip(before.labels, explanation.labels, strict=False)]
        if len(explanation.labels) != len(before.labels) or stays.count(False) != 1:
            return  # split into words otherwise, so that the rest cannot be compared by position
        rest = np.array(stays) & ~self.special
        values, moved_values = (np.asarray(part.values, dtype=np.float64) for part in (before, explanation))
        probability, valid = subject.predicted(again)
        moved = _compared(values[rest], moved_values[rest])
        self.tried.append(Tried("attack", new, 1.0, probability, valid, *moved))
        if valid and (self.best is None or moved[0] > self.best.distance):
            self.best = _Best(moved[0], probability, explanation, again)


class _Best(NamedTuple):
    """The change that moved an explanation most."""

    distance: float
    probability: float
    explanation: Attributions
    trace: Trace
    change: Float | None = None


def _result(
    subject: Subject,
    budget: float,
    before: Attributions,
    best: _Best | None,
    tried: Sequence[Tried],
    *,
    direction: str = "",
    bound: float | None = None,
) -> Attack:
    """Return the attack; without a valid change, both sides are the same."""
    after = best or _Best(0.0, subject.probability, before, subject.trace)
    return Attack(
        method=subject.name,
        by="embeddings" if direction else "words",
        direction=direction,
        label=subject.label,
        probability=(subject.probability, after.probability),
        tolerance=subject.tolerance,
        budget=budget,
        before=before,
        after=after.explanation,
        traces=(subject.trace, after.trace),
        change=after.change,
        tried=tuple(tried),
        bound=bound,
    )
