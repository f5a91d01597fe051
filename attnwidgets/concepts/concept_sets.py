"""The texts of concepts and of random sets: checked, numbered without duplicates, and drawn for every run."""

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
_SAME = 0.8  # share of a concept's texts among the examples, from which it is as good as their class


@dataclass(frozen=True)
class ConceptSets:
    """Concepts as sets of texts or as directions, and the random texts that they are compared with.

    Attributes:
        texts: Every distinct text of concepts and random sets.
        rows: The texts of each concept, by name.
        vectors: Concepts that are directions [dim] or [layer, dim], by name.
        pool: Random texts.
        drawn: The random sets of the runs, if `random` was a list of sets; else ().
        notes: Caveats.
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
        """Return the random texts [text] that are not among a concept's."""
        return np.setdiff1d(self.pool, self.rows[name])

    def runs_of(self, name: str, runs: int, rng: np.random.Generator) -> list[tuple[Rows, Rows]]:
        """Return a concept's texts and a random set, for every run."""
        rows = self.rows[name]
        if self.drawn:
            return [(rows, np.setdiff1d(drawn, rows)) for drawn in self.drawn[:runs]]
        pool = self.pool_of(name)
        return [(rows, rng.permutation(pool)[: len(rows)]) for _ in range(runs)]

    def random_runs(self, runs: int, rng: np.random.Generator) -> list[tuple[Rows, Rows]]:
        """Return two random sets for every run, each of the median concept's size."""
        if self.drawn:
            pairs = [
                (drawn, self.drawn[(run + 1) % len(self.drawn)])
                for run, drawn in enumerate(self.drawn[:runs])
            ]
            return [(np.setdiff1d(a, b), np.setdiff1d(b, a)) for a, b in pairs if len(np.setdiff1d(a, b))]
        size = int(np.median([len(rows) for rows in self.rows.values()] or [FEW]))
        size = max(1, min(size, len(self.pool) // 2))
        draws = [rng.permutation(self.pool) for _ in range(runs)]
        return [(draw[:size], draw[size : 2 * size]) for draw in draws]


def concept_sets(concepts: Any, random: Any, examples: Sequence[Any], purpose: str) -> ConceptSets:
    """Return the sets of a test, with every distinct text numbered.

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
        raise ValueError(f"{purpose}: concepts is empty; name at least one concept.")
    random = listed_texts(random, "random")
    numbers: dict[Any, int] = {}
    texts: list[Any] = []
    notes: list[str] = []

    def rows_of(given_texts: Any, name: str) -> Rows:
        rows = []
        for text in texts_of(given_texts, purpose, name):
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
        name: vector for name, concept in concepts.items() if (vector := vector_of(concept, name)) is not None
    }
    rows = {
        str(name): rows_of(concept, f"concepts[{name!r}]")
        for name, concept in concepts.items()
        if name not in vectors
    }
    drawn = (
        tuple(rows_of(drawn_texts, f"random[{run}]") for run, drawn_texts in enumerate(random))
        if _are_sets(random)
        else ()
    )
    pool = np.unique(np.concatenate(drawn)) if drawn else rows_of(random, "random")
    example_keys = {text if isinstance(text, str) else id(text) for text in examples}
    notes += _notes_of_sets(rows, pool, len(example_keys))
    for name, members in rows.items():
        notes += _notes_of_concept(
            name,
            members,
            [key for key, row in numbers.items() if row in set(members.tolist()) and key in example_keys],
        )
        if len(np.setdiff1d(pool, members)) < _LEAST:
            raise ValueError(
                f"{purpose}: every random text is one of concept {name!r}; give others as random."
            )
    notes += _left_out({name: len(np.intersect1d(members, pool)) for name, members in rows.items()})
    return ConceptSets(tuple(texts), rows, vectors, pool, drawn, tuple(notes))


def _notes_of_sets(rows: Mapping[str, Rows], pool: Rows, examples: int) -> list[str]:
    """Return caveats about the sets together: few examples, few random texts, shared texts."""
    notes = []
    if examples < FEW:
        notes.append(f"{_spoken(examples, 'example')}: a score is a share of few, and hardly determined")
    if len(pool) < FEW:
        few = _spoken(len(pool), "random text")
        notes.append(f"{few}: every run draws nearly the same, and the band is narrow")
    pairs = [
        (first, second, len(shared))
        for first, second in combinations(rows, 2)
        if len(shared := np.intersect1d(rows[first], rows[second]))
    ]
    if pairs:
        first, second, both = pairs[0]
        more = f" (and so in {len(pairs) - 1} more pairs)" if len(pairs) > 1 else ""
        is_one = "is one" if both == 1 else "are"
        overlap = f"{_spoken(both, 'text')} of {first} {is_one} of {second}, too{more}"
        notes.append(f"{overlap}: their directions are alike by that")
    return notes


def _notes_of_concept(name: str, members: Rows, examples: list[Any]) -> list[str]:
    """Return caveats about a concept's texts: few of them, or many that are examples."""
    notes = []
    if len(members) < FEW:
        notes.append(
            f"{name} has {len(members)} texts: with fewer than {FEW} its direction is hardly determined"
        )
    if len(examples) >= _SAME * len(members):
        notes.append(
            f"{len(examples)} of {len(members)} texts of {name} are examples: a concept that is the class "
            "says only that the model knows its class"
        )
    return notes


def _left_out(shared: Mapping[str, int]) -> list[str]:
    """Return a note on texts of concepts that do not serve as random texts for other concepts."""
    counts = [(name, count) for name, count in shared.items() if count]
    if not counts:
        return []
    (name, count), *others = counts
    removed = ", ".join(
        [f"{_spoken(count, 'text')} of {name}", *(f"{count} of {name}" for name, count in others)]
    )
    is_one = "is also a random one, and is" if count == 1 and not others else "are also random ones, and are"
    return [f"{removed} {is_one} left out there"]


def _spoken(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _are_sets(random: Sequence[Any]) -> bool:
    """Return whether the random texts are a list of sets, for every run another."""
    return bool(random) and isinstance(random[0], (list, tuple))


def vector_of(concept: Any, name: str) -> NDArray[np.float64] | None:
    """Return the direction of a concept [dim] or [layer, dim]; None if the concept is given as texts.

    A feature of a sparse autoencoder, (sae, feature), is the row of its decoder.

    Raises:
        ValueError: If the direction is zero or not finite.
        IndexError: If the feature is out of range.
    """
    vector: Any = None
    if isinstance(concept, tuple) and len(concept) == 2 and hasattr(concept[0], "W_dec"):  # noqa: PLR2004
        sae, feature = concept
        if not 0 <= int(feature) < sae.d_sae:
            raise IndexError(f"concepts[{name!r}]: feature {feature} is out of range: there are {sae.d_sae}.")
        vector = as_array(sae.directions[int(feature)])
    elif is_tensor(concept) or (isinstance(concept, np.ndarray) and concept.dtype.kind in "fiu"):
        vector = as_array(concept)
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
