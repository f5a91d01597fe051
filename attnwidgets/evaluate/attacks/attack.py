"""Attacks on explanations: the change of an input that keeps the prediction and moves its explanation.

Ghorbani, Abid and Zou 2019, Interpretation of Neural Networks is Fragile.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._former import former_keywords
from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets.evaluate.attacks.forms import FORMS, STAND_INS
from attnwidgets.evaluate.attacks.result import Attack, Tried
from attnwidgets.evaluate.attacks.search import Ball, Goal, descended, largest_distance, settled
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import as_list, by_name, require_single, source_of
from attnwidgets.evaluate.metrics.attention_swaps import is_undefined
from attnwidgets.evaluate.metrics.ranking import spearman
from attnwidgets.evaluate.metrics.robustness import vector_of
from attnwidgets.evaluate.metrics.stability import perturbed, require_one_text
from attnwidgets.evaluate.minimal_edits import single_edits
from attnwidgets.evaluate.scorecards.build import scored
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import require_trace
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.tracing.free_memory import forceable
from attnwidgets.tracing.retrace import retraced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.tracing.trace import Trace

    Words = Iterable[str] | Callable[[Sequence[str], int], Iterable[str]]

TOP = 3
"""How many of the largest elements are compared."""

LEAST = 5
"""The fewest elements that have an order to lose."""

_HARMLESS = frozenset({"target", "foil", "steps"})
"""Options with which a method reads no other gradients than those that are compared, as SmoothGrad would."""

METRICS = ("attack", "random", "attack_top", "random_top")
PAPER = "Ghorbani et al. 2019, Interpretation of Neural Networks is Fragile"


@documented
@dataclass(frozen=True, kw_only=True)
class AttackSearch:
    """How `attack` and `attacks` search, and which changes are allowed.

    Args:
        budget: How far each embedding may move, as a share of its length; 0 or more.
        tolerance: How far the probability of the prediction may move, 0 to 1.
        steps: Steps along the gradient.
        draws: Random changes of embeddings, at least 1.
        most: With `words`: how many replacements are tried; drawn if there are more.
        seed: {seed}

    Raises:
        ValueError: If an option is out of range.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A film of great charm and little plot.")
        >>> near = aw.evaluate.AttackSearch(budget=0.01, steps=4, draws=2)
        >>> aw.evaluate.attack(trace, "rollout", search=near).budget
        0.01
    """

    budget: float = 0.1
    tolerance: float = 0.05
    steps: int = 8
    draws: int = 9
    most: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.budget >= 0:
            raise ValueError(
                f"budget must be a share of an embedding's length, 0 or more, not {self.budget!r}."
            )
        if not 0 <= self.tolerance <= 1:
            raise ValueError(
                f"tolerance must be a difference of probabilities, 0 to 1, not {self.tolerance!r}."
            )
        for name in ("most", "steps", "draws"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}.")


_DEFAULT = AttackSearch()
_with_former = former_keywords(
    [option.name for option in fields(AttackSearch)], "search", "aw.evaluate.AttackSearch(...)", AttackSearch
)


@_with_former
@forceable
@documented
def attack(
    trace: Any,
    method: Any,
    *,
    words: Words | None = None,
    search: AttackSearch = _DEFAULT,
) -> Attack:
    """Search for the change of an input that keeps the prediction and moves an explanation most.

    With a(x) the explanation and p(x) the probability of the prediction, over changes d within the budget:

        maximise    1 - rho(a(x), a(x + d))
        subject to  the same outcome is predicted, |p(x + d) - p(x)| <= tolerance

    rho is Spearman's rank correlation over the tokens that are not special, which no change touches. By
    default d moves every embedding by at most the search's `budget` of its length, along the gradient of the
    share of the three largest tokens; its `draws` random changes of full length are chance, and count if they
    get farther. With `words`, one word is replaced, and rho is over the words that stay.

    Every change is measured by the method itself, with all its options. Only the direction comes from a
    differentiable form, which attention, rollout, saliency, input x gradient, integrated gradients, LRP and
    occlusion have; other attributions are attacked along the gradient of input x gradient, other maps along
    that of rollout. Activations with a kink (ReLU) have no second derivative, and count as linear there;
    factors that the rules of LRP hold constant are constant.

    **Interpretation.** A map that moved is not wrong: the model at x + d may have other reasons, and the map
    may say so. An attack only shows that the prediction does not determine the explanation. The distance is a
    lower bound; another search may get farther. Ranks of nearly equal values move first: read the share of
    the largest, too.

    Args:
        trace: Trace of one text returned by `aw.trace`.
        method: A name in `aw.methods()`, a pair (name, options), or a function of a trace that returns
            Attributions or a map. Of a map, the last layer is read, in the mean of its heads: the row of the
            last token if it is causal, else of the first.
        words: Words to put in, for an attack by one word; or a function of the text's words and an index,
            such as `aw.evaluate.near_words(model, tokenizer)`. Where the prediction is read at a token, as by
            a language model, only words of as many tokens count.
        search: The budget and the other options: an `aw.evaluate.AttackSearch`.
        force: {force}

    Returns:
        An `Attack`: `.distance` and `.chance`, both explanations and inputs, `.describe()`, and a table of
        every change that was tried.

    Raises:
        ValueError: If the trace is not of one text, has fewer than five tokens
            that are not special, or predicts a number without a probability; the method explains several
            targets at once, reads texts without some of the tokens (by embeddings), or the model has no
            gradients; no word can be replaced.
        TypeError: If the method is a finished explanation, or returns none; if `search` is not an
            AttackSearch.

    Source: Ghorbani et al. 2019, section 3 (top-k attack); Heo et al. 2019 for the loss.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A film of great charm and little plot.")
        >>> found = aw.evaluate.attack(trace, "rollout", search=aw.evaluate.AttackSearch(steps=4))
        >>> found.distance >= found.chance
        True
    """
    if isinstance(trace, (list, tuple)):
        raise TypeError(f"trace is a {type(trace).__name__}: aw.evaluate.attacks scores several texts.")
    specs = by_name(method)
    if len(specs) != 1:
        raise ValueError(f"method has {len(specs)} methods: aw.evaluate.attacks scores several.")
    _require_search(search)
    (result,) = _attacked(trace, specs, words, search)
    return result


@_with_former
@forceable
@documented
def attacks(
    traces: Any,
    explanations: Any,
    *,
    words: Words | None = None,
    search: AttackSearch = _DEFAULT,
) -> Scorecard:
    """Measure how far explanations of texts can be moved while predictions stay, and how far chance does.

        attack, random          1 - Spearman's rho of the attack, and by chance: see `aw.evaluate.attack`
        attack_top, random_top  the share of the three largest elements that are others, likewise

    No number is a method's robustness: the order of methods differs between embeddings and words.

    Args:
        traces: {traces}
        explanations: A name in `aw.methods()`, a pair (name, options), or a function of a trace; a list of
            these, or a mapping from names to them.
        words: Words to put in, or a function that names them: as `aw.evaluate.attack` takes them.
        search: The budget and the other options: an `aw.evaluate.AttackSearch`.
        force: {force}

    Returns:
        A Scorecard [metric, method, 1] over texts. NaN where every change moved the prediction too far.

    Raises:
        ValueError, TypeError: As `aw.evaluate.attack`.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A film of great charm and little plot.")
        >>> short = aw.evaluate.AttackSearch(steps=2, draws=1)
        >>> aw.evaluate.attacks([trace], ["rollout", "saliency"], search=short).metrics
        ('attack', 'random', 'attack_top', 'random_top')
    """
    texts = as_list(traces)
    if not texts:
        raise ValueError("traces is empty: give one or several.")
    specs = {str(name): spec for name, spec in by_name(explanations).items()}
    if not specs:
        raise ValueError("explanations is empty: give at least one method.")
    _require_search(search)
    samples = np.array(
        [
            [_scores(result) for result in _attacked(trace, specs, words, search)]
            for trace in progress(texts, "attacking texts")
        ]
    )
    notes = ["undefined where every change moved the prediction too far"] if np.isnan(samples).any() else []
    by_kind = ("budget", "steps", "draws") if words is None else ("most",)
    options = {name: getattr(search, name) for name in (*by_kind, "tolerance", "seed")}
    return scored(
        samples.transpose(0, 2, 1)[..., None],
        "attacks",
        model=texts[0].model_id,
        metrics=METRICS,
        methods=[*specs],
        notes=notes,
        title="attacks by embeddings" if words is None else "attacks by one word",
        paper=PAPER,
        options=options,
    )


def _scores(result: Attack) -> list[float]:
    if result.best is None:
        return [float("nan")] * len(METRICS)
    return [result.distance, result.chance, result.top_changed, result.chance_top_changed]


def _require_search(search: Any) -> None:
    if not isinstance(search, AttackSearch):
        raise TypeError(f"search takes an aw.evaluate.AttackSearch, not {search!r:.60}.")


def _attacked(
    trace: Any, specs: Mapping[Any, Any], words: Words | None, search: AttackSearch
) -> list[Attack]:
    """Return the attack on each of some methods of a trace."""
    subjects = [_subject(trace, str(name), spec, search.tolerance) for name, spec in specs.items()]
    if words is None:
        return [_by_embeddings(subject, search) for subject in subjects]
    return _by_words(subjects, words, search)


@dataclass(frozen=True)
class _Subject:
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


def _subject(trace: Any, name: str, spec: Any, tolerance: float) -> _Subject:
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
    return _Subject(trace, name, spec, target.index, target.position, target.label, tolerance, source)


def _compared(first: Float, second: Float) -> tuple[float, float]:
    """Return 1 - Spearman's rho of two vectors, and the share of the largest that are others."""
    tops = [set(_largest(values)) for values in (first, second)]
    return 1 - spearman(settled(first), settled(second)), 1 - len(tops[0] & tops[1]) / TOP


def _largest(values: Float) -> list[int]:
    """Return the numbers of the largest values by magnitude."""
    largest: list[int] = np.argsort(-np.abs(values), kind="stable")[:TOP].tolist()
    return largest


def _require_order(count: int, what: str) -> None:
    if count < LEAST:
        raise ValueError(
            f"trace has {count} {what}: an order that can move needs at least {LEAST}. Take a longer text."
        )


def _by_embeddings(subject: _Subject, search: AttackSearch) -> Attack:
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


def _by_words(subjects: Sequence[_Subject], words: Words, search: AttackSearch) -> list[Attack]:
    """Return the attacks on methods of a text by the same words; each changed text is traced once for all."""
    import torch

    trace = subjects[0].trace
    text = str(trace.text)
    given, read = (torch.as_tensor(item.input_ids) for item in (trace, retraced(trace, text)))
    if not torch.equal(given, read):
        raise ValueError("trace is not of its text alone (tokens were added by hand): attack embeddings.")
    attacks_by_words = [_ByWords(subject, subject.explained(trace, "word")) for subject in subjects]
    for by_words in attacks_by_words:
        _require_order(int((~by_words.special).sum()) - 1, "words that stay")
    edits = single_edits(text.split(" "), words, "words")
    generator = np.random.default_rng(search.seed)
    for number in progress(generator.permutation(len(edits))[: search.most], "trying words"):
        _, new, changed = edits[number]
        again = retraced(trace, changed)
        for by_words in attacks_by_words:
            by_words.measure(new, again)
    if not all(by_words.tried for by_words in attacks_by_words):
        raise ValueError("words holds no word that can be put in the place of a single word of this text.")
    return [_result(by.subject, 1.0, by.before, by.best, by.tried) for by in attacks_by_words]


@dataclass
class _ByWords:
    """An attack by words on a method, and the changes that it has measured."""

    subject: _Subject
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
    subject: _Subject,
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
