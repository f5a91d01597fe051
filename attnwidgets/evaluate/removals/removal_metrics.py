"""What is read of an input with parts removed, and in which score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from attnwidgets.evaluate.removals.removal import Answers

    Float = NDArray[np.float64]

"""The row of every table that has what chance scores."""
Score = Literal["probability", "log_probability", "number"]
SCORES: tuple[Score, ...] = ("probability", "log_probability", "number")


@dataclass(frozen=True)
class Metric:
    """What is read of the input without its top features, or of these alone.

    Attributes:
        kept: Whether the top features are kept, and all others removed.
        formula: Takes the answers to the whole input [1], to the part [variant], and the score read of each.
        paper: Its source.
    """

    kept: bool
    formula: Callable[[Answers, Answers, Callable[[Answers], Float]], Float]
    paper: str


_DEYOUNG = "DeYoung et al. 2020, ERASER: A Benchmark to Evaluate Rationalized NLP Models"
_SHRIKUMAR = "Shrikumar et al. 2017, Learning Important Features Through Propagating Activation Differences"
_PETSIUK = "Petsiuk et al. 2018, RISE: Randomized Input Sampling for Explanation of Black-box Models"


def _drop(whole: Answers, part: Answers, score: Callable[[Answers], Float]) -> Float:
    return score(whole) - score(part)


def _log_odds(whole: Answers, part: Answers, _: Callable[[Answers], Float]) -> Float:
    return part.log_p - whole.log_p


def _left(_: Answers, part: Answers, score: Callable[[Answers], Float]) -> Float:
    return score(part)


METRICS: dict[str, Metric] = {
    "comprehensiveness": Metric(kept=False, formula=_drop, paper=_DEYOUNG),
    "sufficiency": Metric(kept=True, formula=_drop, paper=_DEYOUNG),
    "log_odds": Metric(kept=False, formula=_log_odds, paper=_SHRIKUMAR),
    "deletion": Metric(kept=False, formula=_left, paper=_PETSIUK),
    "insertion": Metric(kept=True, formula=_left, paper=_PETSIUK),
}
"""Metrics of `faithfulness` by name."""


def _flip(whole: Answers, part: Answers, _: Callable[[Answers], Float]) -> Float:
    return np.abs(whole.right - part.right)


AMARA = "Amara et al. 2022, GraphFramEx: Towards Systematic Evaluation of Explainability Methods"
FIDELITY: dict[str, Metric] = {
    "fidelity_plus": Metric(kept=False, formula=_flip, paper=AMARA),
    "fidelity_minus": Metric(kept=True, formula=_flip, paper=AMARA),
}
"""Hard fidelity by name: whether the target goes on being what is decided."""


def read_score(answers: Answers, score: Score | None, index: int | None) -> Float:
    """Return what f is of some answers; by default a probability, of a target that is no logit its number.

    Raises:
        ValueError: Where there is no such score.
    """
    wanted = score or ("number" if index is None else "probability")
    if wanted not in SCORES:
        raise ValueError(f"score {wanted!r} is not one of {listed(SCORES)}.{suggest(str(wanted), SCORES)}")
    if wanted == "number":
        return answers.number
    return np.exp(answers.log_p) if wanted == "probability" else answers.log_p
