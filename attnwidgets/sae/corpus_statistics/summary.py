"""What is known of one feature: how often it fires, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Example(NamedTuple):
    """One place of the corpus where a feature fires.

    Attributes:
        activation: Of the token that it is about.
        tokens: Display strings of it and of those around it; as many as its text has there.
        activations: The feature's activations on them.
        at: Which of them it is about.
        ids: Their token ids.
        text: Number of the text in the corpus.
        place: Place of the token in the text, special tokens not counted.
    """

    activation: float
    tokens: tuple[str, ...]
    activations: tuple[float, ...]
    at: int
    ids: tuple[int, ...]
    text: int
    place: int


class Interval(NamedTuple):
    """Activations above `low` and up to `high`: on how many tokens, which share of all, and some examples."""

    low: float
    high: float
    tokens: int
    share: float
    examples: tuple[Example, ...]


class Neighbour(NamedTuple):
    """A feature with a direction near by: the cosine of the two."""

    feature: int
    cosine: float


class Companion(NamedTuple):
    """A feature that fires along: on which share of the tokens, and tokens of both over tokens of either."""

    feature: int
    share: float
    jaccard: float


class LogitEffect(NamedTuple):
    """What one unit of a feature adds to a token's logit, the final norm taken as a scale."""

    token: str
    effect: float
    id: int


@dataclass(frozen=True)
class FeatureSummary:
    """One feature.

    Args:
        feature: Its number.
        name: What the reader calls it, or "".
        count: Tokens on which it fires.
        density: Their share.
        maximum: Its largest activation.
        mean: Its mean activation where it fires.
        edges: Ends of the histogram's bins, one more than there are bins.
        histogram: Tokens in every bin; a bin holds its upper end.
        top: Examples with the largest activations, the largest first, each of another window.
        intervals: Equal parts of the range of activations, the largest first; those that are empty are left
            out.
        promoted, suppressed: Tokens whose logits it raises and lowers most, where there is an unembedding.
        neighbours: Features with the nearest directions.
        companions: Features that fire on the same tokens most often (by tokens of both over tokens of
            either).
    """

    feature: int
    name: str
    count: int
    density: float
    maximum: float
    mean: float
    edges: tuple[float, ...]
    histogram: tuple[int, ...]
    top: tuple[Example, ...]
    intervals: tuple[Interval, ...]
    promoted: tuple[LogitEffect, ...]
    suppressed: tuple[LogitEffect, ...]
    neighbours: tuple[Neighbour, ...]
    companions: tuple[Companion, ...]

    def __repr__(self) -> str:
        named = f" {self.name!r}" if self.name else ""
        around = "; ".join("".join(_marked(example)) for example in self.top[:3])
        return (
            f"<feature {self.feature}{named}: fires on {self.density:.3%} of tokens, up to "
            f"{self.maximum:.3g}; {around}>"
        )


def _marked(example: Example) -> list[str]:
    """Return an example's tokens with the one that it is about in brackets, a few on either side."""
    near = range(max(example.at - 3, 0), min(example.at + 3, len(example.tokens)))
    return [f"[{example.tokens[i]}]" if i == example.at else f" {example.tokens[i]} " for i in near]
