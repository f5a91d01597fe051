"""FeatureSummary: the statistics of one feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Example(NamedTuple):
    """A token of the corpus on which a feature fires, in its context.

    Attributes:
        activation: Activation on the token.
        tokens: Display strings of the context: the token and those around it, within its text.
        activations: The feature's activations on the context.
        at: Index of the token in the context.
        ids: Token ids of the context.
        text: Index of the text in the corpus.
        place: Position of the token in the text, not counting special tokens.
    """

    activation: float
    tokens: tuple[str, ...]
    activations: tuple[float, ...]
    at: int
    ids: tuple[int, ...]
    text: int
    place: int


class Interval(NamedTuple):
    """Activations above `low` up to `high`: number of tokens, their share of all firings, and examples."""

    low: float
    high: float
    tokens: int
    share: float
    examples: tuple[Example, ...]


class Neighbour(NamedTuple):
    """A feature with a similar direction, and the cosine of the two."""

    feature: int
    cosine: float


class Companion(NamedTuple):
    """A co-occurring feature: share of this feature's tokens on which it fires, and Jaccard index."""

    feature: int
    share: float
    jaccard: float


class LogitEffect(NamedTuple):
    """Effect of one unit of a feature on a token's logit, without the division in the final norm."""

    token: str
    effect: float
    id: int


@dataclass(frozen=True)
class FeatureSummary:
    """The statistics of one feature.

    Args:
        feature: Number of the feature.
        name: The reader's name for it, or "".
        count: Number of tokens on which it fires.
        density: Share of tokens on which it fires, 0 to 1.
        maximum: Largest activation.
        mean: Mean activation over the tokens on which it fires.
        edges: Edges of the histogram's bins, one more than there are bins.
        histogram: Number of tokens in every bin; a bin includes its upper edge.
        top: Examples with the largest activations, largest first, each from a different window.
        intervals: Equal intervals of the activation range, largest first, without empty ones.
        promoted: Tokens whose logits it raises most, if the model has an unembedding.
        suppressed: Tokens whose logits it lowers most, if the model has an unembedding.
        neighbours: Features with the nearest directions.
        companions: Features that co-occur most often, by Jaccard index of their tokens.
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
        name = f" {self.name!r}" if self.name else ""
        contexts = "; ".join("".join(_mark(example)) for example in self.top[:3])
        return (
            f"<feature {self.feature}{name}: fires on {self.density:.3%} of tokens, up to "
            f"{self.maximum:.3g}; {contexts}>"
        )


def _mark(example: Example) -> list[str]:
    """Return an example's central token in brackets, with a few tokens on either side."""
    near = range(max(example.at - 3, 0), min(example.at + 3, len(example.tokens)))
    return [f"[{example.tokens[i]}]" if i == example.at else f" {example.tokens[i]} " for i in near]
