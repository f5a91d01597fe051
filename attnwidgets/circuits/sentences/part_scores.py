"""How much each sentence of an answer rests on each part before it: without the part, or by relevance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets.circuits.sentences.part_passes import lost
from attnwidgets.explanations.attribution.lrp import PAPERS, lrp
from attnwidgets.explanations.targets.named import function
from attnwidgets.explanations.targets.resolve import head_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.circuits.sentences.answer_parts import AnswerParts
    from attnwidgets.circuits.sentences.part_passes import How
    from attnwidgets.explanations.targets.named import NamedTarget

    Float = NDArray[np.float64]

Method = Literal["hidden", "removed", "lrp", "subsets"]
METHODS: tuple[Method, ...] = ("hidden", "removed", "lrp", "subsets")
PAPER = "Cohen-Wang et al. 2024, ContextCite: Attributing Model Generation to Context"
METHOD_PAPERS: dict[Method, str] = dict.fromkeys(METHODS, PAPER) | {"lrp": PAPERS["attnlrp"]}
TITLES: dict[Method, str] = {
    "hidden": "nats lost with a part hidden",
    "removed": "nats lost with a part removed",
    "lrp": "relevance of a part for the answer's logits",
    "subsets": "nats lost for each hidden part, in a sparse fit",
}
_ALPHA, _ROUNDS, _CLOSE = 0.01, 1000, 1e-9


@dataclass(frozen=True)
class Work:
    """How parts are measured.

    Attributes:
        method: Name of the method.
        samples: Number of random subsets.
        seed: Seed of their draw.
        jobs: As `run_shards` takes it.
        cache: A folder for finished passes, or None.
    """

    method: Method = "hidden"
    samples: int = 64
    seed: int = 0
    jobs: int | Executor = 1
    cache: Any = None


@dataclass(frozen=True)
class PartScores:
    """Scores of parts, the answer's words before the sentence last.

    Attributes:
        values: [sentence, part].
        note: Why passes were whole; "" if they were not.
        by_token: [token of the answer, part], where each part was measured alone.
    """

    values: Float
    note: str = ""
    by_token: Float | None = None


def score_parts(parts: AnswerParts, work: Work) -> PartScores:
    """Return the scores of parts by a method."""
    if work.method == "lrp":
        return PartScores(_relevance(parts))
    how: How = "removed" if work.method == "removed" else "hidden"
    free = [at for at, role in enumerate(parts.roles) if not role] if work.method == "subsets" else []
    alone = [at for at in range(len(parts)) if at not in free]
    drawn = _draw(len(free), work) if free else np.zeros((0, 0), dtype=bool)
    sets = [
        *(parts.spans[at] for at in alone),
        *_before(parts, how),
        *(
            _union([parts.spans[at] for at, is_hidden in zip(free, row, strict=True) if is_hidden])
            for row in drawn
        ),
    ]
    result = lost(parts, sets, how, work.jobs, work.cache)
    if not free:
        by_token = _by_token(parts, result.nats)
        return PartScores(_by_sentence(parts, by_token.T).T, result.note, by_token)
    nats = _by_sentence(parts, result.nats)
    values = np.zeros((len(parts.sentences), len(parts) + 1))
    values[:, alone] = nats[: len(alone)].T
    later = len(parts.sentences) - 1
    for number in range(later):
        values[number + 1, -1] = nats[len(alone) + number, number + 1]
    sizes = np.array([len(sentence) for sentence in parts.sentences])
    answers = nats[len(alone) + later :]
    # The penalty is of the loss of a token, as in ContextCite.
    values[:, free] = [
        sparse_fit(drawn, column / size) * size for column, size in zip(answers.T, sizes, strict=True)
    ]
    return PartScores(values, result.note)


def passes_of(parts: AnswerParts, work: Work) -> int:
    """Return how many passes `score_parts` takes, without those that prepare them."""
    if work.method == "lrp":
        return 2 * len(parts.sentences)
    free = parts.roles.count("") if work.method == "subsets" else 0
    return len(parts) - free + len(parts.sentences) - 1 + (work.samples if free else 0)


def pair_losses(parts: AnswerParts, sets: Sequence[tuple[int, ...]], work: Work) -> Float:
    """Return the nats that sentences lose with parts hidden together [set of parts, sentence]."""
    spans = [_union([parts.spans[at] for at in numbers]) for numbers in sets]
    return _by_sentence(parts, lost(parts, spans, "hidden", work.jobs, work.cache).nats)


def _before(parts: AnswerParts, how: How) -> list[tuple[int, ...]]:
    """Return the answer's tokens before each sentence but the first, on which they rest as well."""
    # The last of them predicts the sentence: hidden, it would read itself alone.
    spare = 1 if how == "hidden" else 0
    first = parts.sentences[0][0]
    spans = [tuple(range(first, sentence[0] - spare)) for sentence in parts.sentences[1:]]
    return [span or (first,) for span in spans]


def _union(spans: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({token for span in spans for token in span}))


def _by_sentence(parts: AnswerParts, values: Float) -> Float:
    """Return values of the answer's tokens [set, token] summed over sentences [set, sentence]."""
    ends = np.cumsum([len(sentence) for sentence in parts.sentences])
    return np.stack([part.sum(1) for part in np.split(values, ends[:-1], axis=1)], axis=1)


def _by_token(parts: AnswerParts, nats: Float) -> Float:
    """Return nats [token, part] of those [set, token] of every part and the answer before each sentence."""
    values = np.zeros((nats.shape[1], len(parts) + 1))
    values[:, :-1] = nats[: len(parts)].T
    end = len(parts.sentences[0])
    for before, sentence in zip(nats[len(parts) :], parts.sentences[1:], strict=True):
        span = slice(end, end + len(sentence))
        values[span, -1] = before[span]
        end = span.stop
    return values


def _draw(count: int, work: Work) -> NDArray[np.bool_]:
    """Return which parts are hidden in each subset [subset, part], by half; one at least."""
    hidden = np.random.default_rng(work.seed).random((work.samples, count)) < 0.5  # noqa: PLR2004
    empty = ~hidden.any(1)
    hidden[empty, np.random.default_rng(work.seed + 1).integers(count, size=int(empty.sum()))] = True
    return hidden


def sparse_fit(hidden: NDArray[np.bool_], values: Float) -> Float:
    """Return the weights of a lasso fit of values to the hidden parts [part].

    Columns are standardised and an intercept is fitted; the penalty is 0.01 times the weights' absolute sum,
    plus half the mean squared error (scikit-learn's `Lasso(alpha=0.01)`).

    Args:
        hidden: Which parts were hidden [subset, part].
        values: The measured values [subset].
    """
    scale = hidden.std(0)
    columns = (hidden - hidden.mean(0)) / np.where(scale > 0, scale, 1)
    rest = values - values.mean()
    weights = np.zeros(hidden.shape[1])
    for _ in range(_ROUNDS):
        before = weights.copy()
        for part in np.flatnonzero(scale):
            gain = columns[:, part] @ rest / len(rest) + weights[part]
            new = np.sign(gain) * max(abs(gain) - _ALPHA, 0.0)
            rest = rest - columns[:, part] * (new - weights[part])
            weights[part] = new
        if np.abs(weights - before).max(initial=0) < _CLOSE:
            break
    result: Float = weights / np.where(scale > 0, scale, 1)
    return result


def _relevance(parts: AnswerParts) -> Float:
    """Return the relevance of parts for the sum of a sentence's logits [sentence, part]."""
    ids = parts.ids
    targets = [summed_logits(sentence, ids) for sentence in parts.sentences]
    values = np.asarray(lrp(parts.trace, target=targets).values, dtype=np.float64).reshape(len(targets), -1)
    result = np.zeros((len(targets), len(parts) + 1))
    for number, span in enumerate(parts.spans):
        result[:, number] = values[:, list(span)].sum(1)
    first = parts.sentences[0][0]
    for number, sentence in enumerate(parts.sentences):
        result[number, -1] = values[number, first : sentence[0]].sum()
    return result


def summed_logits(sentence: Sequence[int], ids: Sequence[int]) -> NamedTarget:
    """Return the sum of the logits of a sentence's tokens, each where it is predicted, as a target."""
    rows, words = [token - 1 for token in sentence], [ids[token] for token in sentence]

    def score(outputs: Any) -> Tensor:
        return head_of(outputs)[:, rows, words].sum(-1)

    return function(score, f"logits of tokens {sentence[0]} to {sentence[-1]}")
