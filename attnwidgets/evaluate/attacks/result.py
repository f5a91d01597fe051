"""The result of an attack on an explanation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from attnwidgets._errors import quoted
from attnwidgets._tables import Table
from attnwidgets.explanations.viewable import Viewable
from attnwidgets.figures.html_tables import cell, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attnwidgets._tables import Columns
    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.tracing.trace import Trace


_FARTHEST = 2.0  # of 1 - Spearman


class Tried(NamedTuple):
    """A change that was tried.

    Attributes:
        kind: "attack" or "random".
        change: Of words: the new word; of embeddings "".
        size: Of embeddings: how far an embedding moved at most, as a share of its length; of words: how many
            changed.
        probability: Probability of the prediction.
        valid: Whether the prediction is the same, and its probability within the tolerance.
        distance: 1 - Spearman's rho between the explanations.
        top_changed: The share of the three largest elements that are others.
    """

    kind: Literal["attack", "random"]
    change: str
    size: float
    probability: float
    valid: bool
    distance: float
    top_changed: float


@dataclass(frozen=True, repr=False)
class Attack(Table, Viewable):
    """A change of the input that keeps the prediction and moves an explanation, compared with random changes.

    Attributes:
        method: The method that was attacked.
        by: The kind of change: "embeddings" or "words".
        direction: The method whose gradient was followed; "" if the changes were enumerated.
        label: The prediction.
        probability: Its probability without and with the change.
        tolerance: How far it was allowed to move.
        budget: How far each embedding was allowed to move, as a share of its length; of words, how many.
        before: The explanation without the change.
        after: The explanation with it, of the same elements by position.
        traces: The trace, and that of the changed input. Methods that run the model explain the second as it
            is only if words changed: embeddings between words are nowhere but in `change`.
        change: The vectors added to the embeddings [token, dim]; None of words.
        tried: Every change that was tried.
        bound: The distance that no change within the budget can exceed, if the gradient is the same at every
            point that was tried (as it is in a linear model); else None.
    """

    kind = "attack"
    viewed_by = "best_view:view_of_attack"
    method: str
    by: Literal["embeddings", "words"]
    direction: str
    label: str
    probability: tuple[float, float]
    tolerance: float
    budget: float
    before: Attributions = field(repr=False)
    after: Attributions = field(repr=False)
    traces: tuple[Trace, Trace] = field(repr=False)
    change: Float | None = field(repr=False)
    tried: tuple[Tried, ...] = field(repr=False)
    bound: float | None = None

    @property
    def text(self) -> str:
        """The changed text; the same text if embeddings changed."""
        return str(self.traces[1].text)

    @property
    def explanations(self) -> Mapping[str, Attributions]:
        """The explanations without and with the change, by "before" and "after"."""
        return {"before": self.before, "after": self.after}

    @property
    def best(self) -> Tried | None:
        """The change that moved the explanation most; None if every change moved the prediction too far."""
        valid = [item for item in self.tried if item.valid]
        return max(valid, key=lambda item: item.distance, default=None)

    @property
    def distance(self) -> float:
        """How far the explanation moved: 1 - Spearman's rho, 0 (the same order) to 2 (turned round)."""
        return 0.0 if self.best is None else self.best.distance

    @property
    def top_changed(self) -> float:
        """The share of the three largest elements that are others now, 0 to 1."""
        return 0.0 if self.best is None else self.best.top_changed

    @property
    def chance(self) -> float:
        """How far chance moves it: the farthest random change of embeddings, the median one of words."""
        return self._by_chance("distance")

    @property
    def chance_top_changed(self) -> float:
        """The share of the three largest elements that chance changes, as `chance`."""
        return self._by_chance("top_changed")

    def _by_chance(self, name: str) -> float:
        # Every word that was tried is a random one: their median is a draw, and their best the attack.
        drawn = sorted(
            getattr(item, name)
            for item in self.tried
            if item.valid and (item.kind == "random" or self.by == "words")
        )
        if not drawn:
            return 0.0
        return float(drawn[-1] if self.by == "embeddings" else drawn[(len(drawn) - 1) // 2])

    def describe(self) -> str:
        """Return a few sentences: the distance, that of random changes, and the prediction."""
        p, q = self.probability
        if self.best is None:
            return (
                f"Every one of {len(self.tried)} changes moved the prediction {quoted(self.label)} by more "
                f"than {self.tolerance:g}: nothing is known of {self.method}. Take a smaller budget."
            )
        if self.by == "words":
            how, drawn = f"by one word, {quoted(self.text)}", "the median word"
        else:
            how = f"within {self.budget:.0%} of each embedding's length, where no word is"
            drawn = "the best random change"
        said = [
            f"{self.method} moved {self.distance:.2f} (1 - Spearman; {drawn} {self.chance:.2f}) {how}.",
            f"{quoted(self.label)} stayed at p {p:.2f} -> {q:.2f}.",
        ]
        if self.distance == 0 and self.bound is None:
            said.append("No change that was tried moved it, which does not prove that none can.")
        if self.bound == 0:
            said.append(
                "The gradient is the same at every point that was tried, and where it is, no change of the "
                f"input can move {self.method}: the zero is a theorem about linear models, not a failed "
                "search."
            )
        elif self.bound is not None and self.bound < _FARTHEST:
            said.append(
                "The gradient is the same at every point that was tried; where it is, no change within the "
                f"budget moves {self.method} by more than {self.bound:.2f}."
            )
        elif self.direction not in ("", self.before.method):
            said.append(f"The changes follow the gradient of {self.direction}: {self.method} has none here.")
        return " ".join(said)

    def _columns(self) -> Iterator[Columns]:
        """Yield a row for every change that was tried."""
        yield {name: [getattr(item, name) for item in self.tried] for name in Tried._fields}

    def __repr__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        values = (explanation.values for explanation in self.explanations.values())
        labels = (explanation.labels for explanation in self.explanations.values())
        rows = [
            (
                cell(old, left=True),
                cell(new if new != old else "", left=True),
                cell(f"{a:+.3f}"),
                cell(f"{b:+.3f}"),
            )
            for old, new, a, b in zip(*labels, *values, strict=True)
        ]
        head = (self.before.unit, "changed to", "before", "after")
        return table(head, rows, [self.describe()], left=(0, 1))
