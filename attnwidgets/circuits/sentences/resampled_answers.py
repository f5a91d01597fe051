"""The final answers that a model gives when it writes an answer anew from before and after each sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._errors import quoted
from attnwidgets._significance import holm, wilson
from attnwidgets._tables import Table
from attnwidgets.figures.html_tables import cell, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns

    Float = NDArray[np.float64]
    Whole = NDArray[np.int64]

SMOOTHING = 0.5
"""Added to the count of every answer that was drawn on either side (Jeffreys' prior)."""
FEWEST = 10
"""Draws on each side from which an importance is given."""
_DRAWS = 4999  # of bootstraps and of random splits
_SHOWN = 3  # answers in a cell


class Importance(NamedTuple):
    """How far the final answers move with each sentence, in nats, and how far they would by chance.

    Attributes:
        value: KL(answers without the sentence || answers with it) [sentence]; NaN for fewer than
            10 draws on a side.
        low: Lower end of its bootstrap interval, less the bias of the estimate [sentence].
        high: Upper end [sentence].
        chance: The 95 % quantile, or that of another level, of values when the answers of both sides are
            split at random [sentence].
        p: Share of random splits with a value as large, corrected for the number of sentences (Holm)
            [sentence].
    """

    value: Float
    low: Float
    high: Float
    chance: Float
    p: Float


@dataclass(frozen=True, repr=False)
class AnswerShares(Table):
    """How often each final answer was given before and after each sentence, with Wilson's intervals.

    Attributes:
        sentences: The sentences.
        answers: The final answers.
        counts: Draws [sentence, side, answer]; sides are "resampled", "different" and "kept".
        level: Coverage of the intervals.
    """

    sentences: tuple[str, ...]
    answers: tuple[str, ...]
    counts: Whole
    level: float

    def _columns(self) -> Iterator[Columns]:
        """Yield sentence, side, answer, count, and share with both ends of its interval."""
        for sentence, sides in zip(self.sentences, self.counts.tolist(), strict=True):
            for side, counts in zip(("resampled", "different", "kept"), sides, strict=True):
                chosen = [at for at, count in enumerate(counts) if count]
                total = sum(counts)
                ends = [wilson(counts[at], total, level=self.level) for at in chosen]
                yield {
                    "sentence": [sentence] * len(chosen),
                    "side": [side] * len(chosen),
                    "answer": [self.answers[at] for at in chosen],
                    "count": [counts[at] for at in chosen],
                    "share": [counts[at] / total for at in chosen],
                    "low": [low for low, _ in ends],
                    "high": [high for _, high in ends],
                }

    def __repr__(self) -> str:
        return f"<AnswerShares: {len(self.answers)} answers around {len(self.sentences)} sentences>"


@dataclass(frozen=True, repr=False)
class ResampledAnswers(Table):
    """The final answers when a model writes an answer anew from before and after each of its sentences.

    Attributes:
        sentences: The sentences of the answer.
        answers: The final answers, the most frequent first. Case, blanks and punctuation around words make no
            difference.
        counts: Draws [sentence + 1, answer]: row i from before sentence i, row i + 1 from after it.
        different: Those of row i whose new sentence differs in meaning from sentence i [sentence, answer].
        resampling: The change of answers from row i to row i + 1.
        counterfactual: The change from the different ones of row i to row i + 1.
        texts: The answers as they were written [sentence + 1][draw], with the sentences that were kept.
        level: Coverage of the intervals; values that are as large by chance have p above 1 - level.
        warning: What these numbers do not cover; "" if there is nothing.
    """

    sentences: tuple[str, ...]
    answers: tuple[str, ...]
    counts: Whole
    different: Whole
    resampling: Importance
    counterfactual: Importance
    texts: tuple[tuple[str, ...], ...]
    level: float = 0.95
    warning: str = ""

    def strongest(self) -> tuple[str, ...]:
        """Return the sentences that change the final answers more than chance, the largest value first."""
        value, p = self.resampling.value, self.resampling.p
        order = [int(at) for at in np.argsort(-value, kind="stable") if p[at] <= 1 - self.level]
        return tuple(self.sentences[at] for at in order)

    def shares(self) -> AnswerShares:
        """Return how often each answer was given, with sentences resampled, different, and kept."""
        sides = np.stack([self.counts[:-1], self.different, self.counts[1:]], axis=1)
        return AnswerShares(self.sentences, self.answers, sides, self.level)

    def _columns(self) -> Iterator[Columns]:
        """Yield sentence, the two importances with intervals, chance and p, and draws that were different."""
        columns: dict[str, Any] = {"sentence": self.sentences}
        for name in ("resampling", "counterfactual"):
            fields = getattr(self, name)._asdict()
            columns |= {name if field == "value" else f"{name} {field}": x for field, x in fields.items()}
        yield columns | {"different": self.different.sum(axis=1)}

    def __repr__(self) -> str:
        decides = [f"{quoted(sentence)}" for sentence in self.strongest()]
        which = f"{'; '.join(decides)} changed" if decides else "no sentence changed"
        warning = f" ({self.warning})" if self.warning else ""
        return f"<ResampledAnswers: {which} the final answers more than chance{warning}>"

    def _repr_html_(self) -> str:
        is_strong = self.resampling.p <= 1 - self.level
        rows = (
            (
                cell(sentence, header=True, limit=80),
                cell(_interval(self.resampling, at), tint=float(is_strong[at])),
                cell(f"{self.resampling.chance[at]:.2f}"),
                cell(_interval(self.counterfactual, at)),
                cell(str(self.different[at].sum())),
                cell(self._most_frequent(self.counts[at]), left=True, limit=120),
                cell(self._most_frequent(self.counts[at + 1]), left=True, limit=120),
            )
            for at, sentence in enumerate(self.sentences)
        )
        head = (
            "sentence",
            "resampling, nats",
            "chance",
            "counterfactual, nats",
            "draws",
            "answers without it",
            "answers with it",
        )
        about = (
            f"{self.counts[0].sum()} answers before and after each sentence; {self.level:.0%} intervals. "
            f"Chance: {self.level:.0%} of random splits are below. Coloured: p at most {1 - self.level:.2g}, "
            "corrected for the number of sentences."
        )
        return table(head, rows, [about, self.warning], left=(0, 5, 6))

    def _most_frequent(self, counts: Whole) -> str:
        order = [int(at) for at in np.argsort(-counts, kind="stable")[:_SHOWN] if counts[at]]
        more = int((counts > 0).sum()) - len(order)
        listed = "; ".join(f"{counts[at]} × {self.answers[at]}" for at in order)
        return listed + (f"; {more} more" if more else "")


def _interval(importance: Importance, at: int) -> str:
    value = importance.value[at]
    return "" if np.isnan(value) else f"{value:.2f} [{importance.low[at]:.2f}, {importance.high[at]:.2f}]"


def kl_of_counts(first: Any, second: Any) -> Float:
    """Return KL(first || second) in nats of counts [..., answer], each with half a draw added."""
    p, q = (np.asarray(counts, dtype=np.float64) + SMOOTHING for counts in (first, second))
    p, q = (x / x.sum(axis=-1, keepdims=True) for x in (p, q))
    result: Float = (p * np.log(p / q)).sum(axis=-1)
    return result


def importance_of(first: Whole, second: Whole, level: float, seed: int) -> Importance:
    """Return the KL between counts of answers, with intervals, and what random splits give.

    The interval is that of a bootstrap of both sides. Answers that are drawn again have a larger KL on
    average than those that they are drawn from, and these than the model's: twice the difference is
    subtracted.

    Args:
        first: Counts [sentence, answer].
        second: Counts [sentence, answer].
        level: Coverage of the interval, and quantile of the splits.
        seed: Of the bootstrap and the splits.
    """
    rng = np.random.default_rng(seed)
    rows = [_compared(*pair, level, rng) for pair in zip(first, second, strict=True)]
    value, low, high, chance, p = np.array(rows).T
    return Importance(value, low, high, chance, holm(p))


def _compared(first: Whole, second: Whole, level: float, rng: np.random.Generator) -> tuple[float, ...]:
    if min(first.sum(), second.sum()) < FEWEST:
        return (np.nan,) * len(Importance._fields)
    seen = first + second > 0
    first, second = first[seen], second[seen]
    value = float(kl_of_counts(first, second))
    again = kl_of_counts(*(rng.multinomial(x.sum(), x / x.sum(), size=_DRAWS) for x in (first, second)))
    bias = 2 * (again.mean() - value)
    low, high = np.maximum(np.quantile(again, [(1 - level) / 2, (1 + level) / 2]) - bias, 0)
    split = rng.multivariate_hypergeometric(first + second, int(first.sum()), size=_DRAWS)
    by_chance = kl_of_counts(split, first + second - split)
    p = (1 + (by_chance >= value - 1e-12).sum()) / (1 + _DRAWS)
    return value, float(low), float(high), float(np.quantile(by_chance, level)), float(p)
