"""Metrics of removal, and the score of a target that they read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.removals.removal import Answers
    from attnwidgets.explanations.targets.resolve import Target

    Read = Callable[[Answers], Float]

Score = Literal["probability", "log_probability", "number"]
SCORES: tuple[Score, ...] = ("probability", "log_probability", "number")


@dataclass(frozen=True)
class Metric:
    """A score of the input without its top features, or of these alone.

    Attributes:
        kept: Whether the top features are kept and all others removed.
        formula: Takes the answers to the whole input [1] and to its parts [variant], and a function that
            reads the score of answers.
        paper: Its source.
    """

    kept: bool
    formula: Callable[[Answers, Answers, Read], Float]
    paper: str


_DEYOUNG = "DeYoung et al. 2020, ERASER: A Benchmark to Evaluate Rationalized NLP Models"
_SHRIKUMAR = "Shrikumar et al. 2017, Learning Important Features Through Propagating Activation Differences"
_PETSIUK = "Petsiuk et al. 2018, RISE: Randomized Input Sampling for Explanation of Black-box Models"


def drop(whole: Answers, part: Answers, read: Read) -> Float:
    """Return by how much the score falls from the whole input to each part."""
    return read(whole) - read(part)


def _log_odds(whole: Answers, part: Answers, _: Read) -> Float:
    return part.log_p - whole.log_p


def _remaining(_: Answers, part: Answers, read: Read) -> Float:
    return read(part)


def _flip(whole: Answers, part: Answers, _: Read) -> Float:
    return np.abs(whole.right - part.right)


METRICS: dict[str, Metric] = {
    "comprehensiveness": Metric(kept=False, formula=drop, paper=_DEYOUNG),
    "sufficiency": Metric(kept=True, formula=drop, paper=_DEYOUNG),
    "log_odds": Metric(kept=False, formula=_log_odds, paper=_SHRIKUMAR),
    "deletion": Metric(kept=False, formula=_remaining, paper=_PETSIUK),
    "insertion": Metric(kept=True, formula=_remaining, paper=_PETSIUK),
}
"""Metrics of `faithfulness` by name."""

AMARA = "Amara et al. 2022, GraphFramEx: Towards Systematic Evaluation of Explainability Methods"
FIDELITY: dict[str, Metric] = {
    "fidelity_plus": Metric(kept=False, formula=_flip, paper=AMARA),
    "fidelity_minus": Metric(kept=True, formula=_flip, paper=AMARA),
}
"""Hard fidelity by name: whether the model still decides for the target."""


def default_score(target: Target) -> Score:
    """Return the default score: the probability, if the target has one."""
    return "number" if target.index is None or target.reading == "none" else "probability"


def read_score(answers: Answers, score: Score | None, target: Target) -> Float:
    """Return the score of some answers [variant].

    Args:
        answers: What the model predicts.
        score: Which score; None: `default_score`.
        target: The target.

    Raises:
        ValueError: If a probability is requested and the target has none.
    """
    score = score or default_score(target)
    if score == "number":
        return answers.number
    if default_score(target) == "number":
        raise ValueError(
            f'score={score!r}: {target.label!r} is a number without a probability; take score="number" '
            "of aw.evaluate.faithfulness."
        )
    return np.exp(answers.log_p) if score == "probability" else answers.log_p
