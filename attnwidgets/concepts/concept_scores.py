"""ConceptScores: how far a prediction depends on concepts and on random directions, at every layer.

The scores of all runs are stored, and means, bands and significance are computed from them when they are
read. The sets, settings and states behind them are stored as well, so that `against` can score the direction
between two concepts (`relative`) without running the model again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from attnwidgets._selecting import position
from attnwidgets._tables import Table
from attnwidgets.concepts.concept_sets import ConceptSets, require_named
from attnwidgets.explanations.viewable import Viewable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.concepts.states_result import States

    Float = NDArray[np.float64]

ACCURATE = 0.6
"""Cross-validated accuracy below which a direction is not called the concept's."""


class SortedText(NamedTuple):
    """A text by how much its state shows a concept.

    Attributes:
        text: The text.
        cosine: Cosine of its state (less the mean of all texts) with the concept's direction, -1 to 1.
        number: Its number among the texts that were sorted.
    """

    text: str
    cosine: float
    number: int


@dataclass(frozen=True, eq=False)
class ConceptScores(Table, Viewable):
    """Scores of concepts [concept, layer], and whether to believe them. Made by `aw.concepts.tcav`.

    Attributes:
        concepts: Names of the concepts.
        layers: Numbers of the layers.
        target: Name of the target.
        at: Token or tokens whose states were read.
        cav: Fit of the directions.
        by_run: Share of examples that the direction of each run raises [concept, layer, run], 0 to 1.
        random: The same for random texts against other random texts [layer, run].
        sensitivity: Derivative of the target along the unit direction, mean over runs [example, concept,
            layer].
        accuracy: Accuracy of the classifiers in cross-validation, mean over runs [concept, layer]; NaN for
            concepts given as directions.
        p: Two-sided p of the mean sensitivity under exchanged membership [concept, layer].
        p_holm: The same, corrected for all concepts and layers (Holm 1979).
        cavs: Unit directions [concept, layer, run, dim].
        gradient_cosine: Mean cosine between the gradients of different examples [layer]; at 1 a score can
            only be 0 or 1.
        level: Level of significance.
        examples: States and gradients of the examples.
        texts: States of the texts of concepts and random sets.
        notes: Caveats.
    """

    kind: ClassVar[str] = "ConceptScores"
    viewed_by: ClassVar[str] = "concepts.concept_view:ConceptView"

    concepts: tuple[str, ...]
    layers: tuple[int, ...]
    target: str
    at: str
    cav: str
    by_run: Float
    random: Float
    sensitivity: Float
    accuracy: Float
    p: Float
    p_holm: Float
    cavs: NDArray[np.float32]
    gradient_cosine: Float
    level: float
    examples: States
    texts: States
    notes: tuple[str, ...] = ()
    _sets: Any = field(default=None, repr=False)
    _settings: Any = field(default=None, repr=False)

    @property
    def scores(self) -> Float:
        """Mean over runs of the share of examples that the concept raises [concept, layer], 0 to 1."""
        return self.by_run.mean(2)

    @property
    def band(self) -> tuple[Float, Float]:
        """The 5th and the 95th percentile of the scores of random texts: low and high [layer]."""
        low, high = np.quantile(self.random, [0.05, 0.95], axis=1)
        return low, high

    @property
    def significant(self) -> NDArray[np.bool_]:
        """Whether the corrected p is below the level and the direction generalises [concept, layer].

        A concept that was given as a direction has no accuracy, so that p decides alone.
        """
        accurate = np.isnan(self.accuracy) | (self.accuracy >= ACCURATE)
        return (self.p_holm <= self.level) & accurate

    @property
    def cosine(self) -> Float:
        """Mean cosine between the directions of two concepts [concept, concept, layer], -1 to 1.

        On the diagonal, between different runs of a concept: below 1 its direction depends on the random
        texts.
        """
        runs = self.cavs.shape[2]
        means = self.cavs.mean(2, dtype=np.float64)
        result = np.einsum("ald,bld->abl", means, means)
        if runs > 1:
            diagonal = np.arange(len(self.concepts))
            result[diagonal, diagonal] = (runs * result[diagonal, diagonal] - 1) / (runs - 1)
        return result

    def direction(self, concept: str, layer: int) -> Float:
        """Return a concept's unit direction, the mean over runs [dim].

        Args:
            concept: Its name.
            layer: Number of the layer.

        Raises:
            ValueError: If the concept is unknown.
            IndexError: If the layer is out of range.
        """
        require_named(concept, self.concepts)
        mean = self.cavs[self.concepts.index(concept), position(layer, self.layers, "layer")].mean(
            0, dtype=float
        )
        return mean / max(float(np.linalg.norm(mean)), 1e-30)

    def against(self, concept: str, other: str) -> ConceptScores:
        """Return the scores of a relative concept: the direction from the texts of `other` to `concept`'s.

        Texts that both concepts hold are left out. Nothing is drawn, so that there is a single run; the
        random band is that of this result.

        Args:
            concept: Name of a concept given as texts.
            other: Name of another concept given as texts.

        Raises:
            ValueError: If the concept is unknown, it was given as a direction, or both are the same.

        Source: Kim et al. 2018, section 3.6.
        """
        return relative(self, concept, other)

    def sort(self, concept: str, layer: int, texts: States | None = None) -> list[SortedText]:
        """Return texts by the cosine of their state with a concept's direction, the largest first.

        Args:
            concept: Name of the concept.
            layer: Number of the layer.
            texts: States of the texts (`aw.concepts.states`), read at the same tokens; the examples by
                default.

        Raises:
            ValueError: If the concept is unknown.
            IndexError: If the layer is out of range.
        """
        states = self.examples if texts is None else texts
        centred = states.layer(layer) - self.texts.layer(layer).mean(0)
        lengths = np.maximum(np.linalg.norm(centred, axis=1), 1e-30)
        cosines = centred @ self.direction(concept, layer) / lengths
        return [
            SortedText(states.texts[at], float(cosines[at]), int(at))
            for at in np.argsort(-cosines, kind="stable")
        ]

    def select(self, concepts: Sequence[str]) -> ConceptScores:
        """Return some concepts, by name.

        Raises:
            ValueError: If the concept is unknown.
        """
        for name in concepts:
            require_named(name, self.concepts)
        rows = [self.concepts.index(name) for name in concepts]
        selected = {name: getattr(self, name)[rows] for name in ("by_run", "accuracy", "p", "p_holm", "cavs")}
        return replace(self, concepts=tuple(concepts), sensitivity=self.sensitivity[:, rows], **selected)

    def _columns(self) -> Iterator[Columns]:
        """Yield concept, layer, score, its spread over runs, the random band, accuracy, p and corrected p."""
        concept, layer = (index.reshape(-1) for index in np.indices(self.scores.shape))
        low, high = self.band
        yield {
            "concept": [self.concepts[at] for at in concept],
            "layer": np.asarray(self.layers)[layer],
            "score": self.scores.reshape(-1),
            "spread": self.by_run.std(2).reshape(-1),
            "random_low": low[layer],
            "random_high": high[layer],
            "accuracy": self.accuracy.reshape(-1),
            "p": self.p.reshape(-1),
            "p_holm": self.p_holm.reshape(-1),
            "significant": self.significant.reshape(-1),
        }

    def figure(self, *, columns: int = 2) -> Figure:
        """Return a matplotlib figure: scores over layers with the random band, and their accuracies.

        Args:
            columns: How many columns of a page it takes, 1 or 2.
        """
        from attnwidgets.concepts.figures import concept_sheet

        return concept_sheet(self).figure(columns)

    def __repr__(self) -> str:
        sizes = f"[concept {len(self.concepts)}, layer {len(self.layers)}]"
        runs, examples = self.by_run.shape[2], len(self.examples)
        how = f"{self.cav.replace('_', ' ')}, {runs} run{'s' * (runs != 1)}, "
        how += f"{examples} example{'s' * (examples != 1)}"
        lines = [f"ConceptScores of {self.target} {sizes} at {self.at}, {how}"]
        marks = self.significant
        for row, name in enumerate(self.concepts):
            cells = "  ".join(
                f"{layer}: {score:.2f}{'*' if marks[row, column] else ''}"
                for column, (layer, score) in enumerate(zip(self.layers, self.scores[row], strict=True))
            )
            lines.append(f"  {name}: {cells}")
        lines.append(f"  * corrected p <= {self.level:g} and accuracy >= {ACCURATE}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def relative(scores: ConceptScores, concept: str, other: str) -> ConceptScores:
    """Return the scores of a concept against another; see `ConceptScores.against`."""
    from attnwidgets.concepts.tcav import concept_scores

    sets: ConceptSets = scores._sets  # noqa: SLF001 - a part of its class
    for name in (concept, other):
        require_named(name, scores.concepts)
        if name not in sets.rows:
            raise ValueError(
                f"concept {name!r} was given as a direction; a relative concept needs the texts of both."
            )
    first, second = (
        np.setdiff1d(sets.rows[a], sets.rows[b]) for a, b in ((concept, other), (other, concept))
    )
    if not len(first) or not len(second):
        raise ValueError(
            f"concepts {concept!r} and {other!r} hold the same texts and cannot be distinguished."
        )
    shared = len(np.intersect1d(sets.rows[concept], sets.rows[other]))
    left = "1 text of both concepts is" if shared == 1 else f"{shared} texts of both concepts are"
    notes = (f"{left} left out",) if shared else ()
    name = f"{concept} rather than {other}"
    pair = ConceptSets(sets.texts, {name: first}, {}, second, (second,), notes)
    settings = replace(scores._settings, runs=1)  # noqa: SLF001
    result = concept_scores(pair, scores.texts, scores.examples, settings)
    return replace(result, random=scores.random, _sets=replace(sets, rows={name: first}, vectors={}))
