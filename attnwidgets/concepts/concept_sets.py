"""The texts of concepts and of random sets: checked, numbered once each, and drawn for every run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import quoted
from attnwidgets._selecting import listed
from attnwidgets._tensors import as_array, is_tensor
from attnwidgets.tracing.text.given_texts import listed_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

FEW = 10
"""Texts of a set below which a note says that the direction is hardly determined."""
_LEAST = 2
_SAME = 0.8  # of a concept's texts among the examples, from which it is as good as their class


@dataclass(frozen=True)
class ConceptSets:
    """Concepts as sets of texts or as directions, and the random texts that they are compared with.

    Attributes:
        texts: Every distinct text of concepts and random sets.
        rows: The texts of each concept, by name.
        vectors: Concepts that are directions [dim] or [layer, dim], by name.
        pool: Random texts.
        drawn: Random sets, if they were given one by one; else ().
        notes: What a reader must know.
    """

    texts: tuple[Any, ...]
    rows: Mapping[str, Rows]
    vectors: Mapping[str, NDArray[np.float64]]
    pool: Rows
    drawn: tuple[Rows, ...]
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the concepts: sets of texts first, then directions."""
        return (*self.rows, *self.vectors)

    def pool_of(self, name: str) -> Rows:
        """Return the random texts that are none of a concept's own."""
        return np.setdiff1d(self.pool, self.rows[name])

    def runs_of(self, name: str, runs: int, rng: np.random.Generator) -> list[tuple[Rows, Rows]]:
        """Return a concept's texts and a random set, for every run."""
        own = self.rows[name]
        if self.drawn:
            return [(own, np.setdiff1d(each, own)) for each in self.drawn[:runs]]
        pool = self.pool_of(name)
        return [(own, rng.permutation(pool)[: len(own)]) for _ in range(runs)]

    def random_runs(self, runs: int, rng: np.random.Generator) -> list[tuple[Rows, Rows]]:
        """Return two random sets for every run, each of the median concept's size."""
        if self.drawn:
            pairs = [
                (each, self.drawn[(at + 1) % len(self.drawn)]) for at, each in enumerate(self.drawn[:runs])
            ]
            return [(np.setdiff1d(a, b), np.setdiff1d(b, a)) for a, b in pairs if len(np.setdiff1d(a, b))]
        size = int(np.median([len(rows) for rows in self.rows.values()] or [FEW]))
        size = max(1, min(size, len(self.pool) // 2))
        draws = [rng.permutation(self.pool) for _ in range(runs)]
        return [(draw[:size], draw[size : 2 * size]) for draw in draws]


def concept_sets(concepts: Any, random: Any, examples: Sequence[Any], purpose: str) -> ConceptSets:
    """Return the sets of a test, each text once.

    Raises:
        TypeError: If `concepts` is not a mapping.
        ValueError: If concepts or random texts are empty, or a set holds fewer than two.
    """
    from attnwidgets.concepts.batches import texts_of  # runs models; results are shown without torch

    if not isinstance(concepts, Mapping):
        raise TypeError(
            f"{purpose}: concepts is a {type(concepts).__name__}; give a mapping from names to texts, "
            "directions or (sae, feature): {'negation': [...]}."
        )
    if not concepts:
        raise ValueError(f"{purpose}: concepts is empty; name at least one.")
    random = listed_texts(random, "random")
    numbers: dict[Any, int] = {}
    texts: list[Any] = []
    notes: list[str] = []

    def rows_of(given: Any, name: str) -> Rows:
        rows = []
        for text in texts_of(given, purpose, name):
            key = text if isinstance(text, str) else id(text)
            if key not in numbers:
                numbers[key] = len(texts)
                texts.append(text)
            rows.append(numbers[key])
        unique = np.array(list(dict.fromkeys(rows)))
        if len(unique) < len(rows):
            twice = len(rows) - len(unique)
            notes.append(f"{name} holds {_spoken(twice, 'text')} twice: counted once")
        if len(unique) < _LEAST:
            raise ValueError(
                f"{purpose}: {name} holds {len(unique)} text; a direction needs at least {_LEAST}."
            )
        return unique

    vectors = {
        name: vector for name, given in concepts.items() if (vector := vector_of(given, name)) is not None
    }
    rows = {
        str(name): rows_of(given, f"concepts[{name!r}]")
        for name, given in concepts.items()
        if name not in vectors
    }
    drawn = (
        tuple(rows_of(each, f"random[{at}]") for at, each in enumerate(random)) if _are_sets(random) else ()
    )
    pool = np.unique(np.concatenate(drawn)) if drawn else rows_of(random, "random")
    shown = {text if isinstance(text, str) else id(text) for text in examples}
    notes += _about_all(rows, pool, len(shown))
    for name, own in rows.items():
        notes += _about(
            name, own, [key for key, at in numbers.items() if at in set(own.tolist()) and key in shown]
        )
        if len(np.setdiff1d(pool, own)) < _LEAST:
            raise ValueError(
                f"{purpose}: every random text is one of concept {name!r}; give others as random."
            )
    notes += _left_out({name: len(np.intersect1d(own, pool)) for name, own in rows.items()})
    return ConceptSets(tuple(texts), rows, vectors, pool, drawn, tuple(notes))


def _about_all(rows: Mapping[str, Rows], pool: Rows, examples: int) -> list[str]:
    """Return what a reader must know about the sets together."""
    notes = []
    if examples < FEW:
        notes.append(f"{_spoken(examples, 'example')}: a score is a share of few, and hardly determined")
    if len(pool) < FEW:
        few = _spoken(len(pool), "random text")
        notes.append(f"{few}: every run draws nearly the same, and the band is narrow")
    pairs = [
        (name, other, len(shared))
        for name, other in combinations(rows, 2)
        if len(shared := np.intersect1d(rows[name], rows[other]))
    ]
    if pairs:
        name, other, both = pairs[0]
        more = f" (and so in {len(pairs) - 1} more pairs)" if len(pairs) > 1 else ""
        is_one = "is one" if both == 1 else "are"
        said = f"{_spoken(both, 'text')} of {name} {is_one} of {other}, too{more}"
        notes.append(f"{said}: their directions are alike by that")
    return notes


def _about(name: str, own: Rows, among: list[Any]) -> list[str]:
    """Return what a reader must know about a concept's texts."""
    notes = []
    if len(own) < FEW:
        notes.append(f"{name} has {len(own)} texts: with fewer than {FEW} its direction is hardly determined")
    if len(among) >= _SAME * len(own):
        notes.append(
            f"{len(among)} of {len(own)} texts of {name} are examples: a concept that is the class says only "
            "that the model knows its class"
        )
    return notes


def _left_out(shared: Mapping[str, int]) -> list[str]:
    """Return a note on texts of concepts that do not serve as random texts for other concepts."""
    counts = [(name, count) for name, count in shared.items() if count]
    if not counts:
        return []
    (name, count), *others = counts
    said = ", ".join(
        [f"{_spoken(count, 'text')} of {name}", *(f"{count} of {name}" for name, count in others)]
    )
    is_one = "is also a random one, and is" if count == 1 and not others else "are also random ones, and are"
    return [f"{said} {is_one} left out there"]


def _spoken(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _are_sets(random: Sequence[Any]) -> bool:
    """Return whether random texts come as one set for every run."""
    return bool(random) and isinstance(random[0], (list, tuple))


def vector_of(given: Any, name: str) -> NDArray[np.float64] | None:
    """Return a concept that is a direction as an array [dim] or [layer, dim]; None for texts.

    A feature of a sparse autoencoder, (sae, feature), is the row of its decoder.

    Raises:
        ValueError: If the direction is zero or not finite.
        IndexError: If the feature is out of range.
    """
    vector: Any = None
    if isinstance(given, tuple) and len(given) == 2 and hasattr(given[0], "W_dec"):  # noqa: PLR2004
        sae, feature = given
        if not 0 <= int(feature) < sae.d_sae:
            raise IndexError(f"concepts[{name!r}]: feature {feature} is out of range: there are {sae.d_sae}.")
        vector = as_array(sae.directions[int(feature)])
    elif is_tensor(given) or (isinstance(given, np.ndarray) and given.dtype.kind in "fiu"):
        vector = as_array(given)
    if vector is None:
        return None
    vector = np.array(vector, dtype=np.float64)
    if (
        vector.ndim not in (1, 2)
        or not np.isfinite(vector).all()
        or not np.linalg.norm(vector, axis=-1).all()
    ):
        raise ValueError(
            f"concepts[{name!r}] is an array of shape {vector.shape}; a direction is [dim] or [layer, dim], "
            "finite and not zero."
        )
    return vector


def require_named(name: str, names: Sequence[str]) -> None:
    """Raise ValueError if the concept is unknown."""
    if name not in names:
        raise ValueError(f"unknown concept {quoted(name)}; the concepts are {listed(names)}.")
