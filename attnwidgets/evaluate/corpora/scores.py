"""Scores of methods on texts, by family of metrics, as arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.arrays import Float

_KEY_BYTES = 16
_ABOUT = "attnwidgets"


@dataclass(frozen=True)
class Scores:
    """Scores of texts and methods, each known by a hash of its content.

    Attributes:
        texts: Keys of the texts, 32 hexadecimal digits.
        methods: Keys of the methods.
        values: By family [text, method and then baseline, metric, x].
        notes: Notes for the reader, for every text.
        about: What is the same for all texts.
    """

    texts: tuple[str, ...]
    methods: tuple[str, ...]
    values: Mapping[str, Float]
    notes: tuple[tuple[str, ...], ...]
    about: Mapping[str, Any]

    def only(self, texts: Collection[str], methods: Collection[str]) -> Scores:
        """Return some of the texts and methods, with all baselines."""
        rows = [place for place, text in enumerate(self.texts) if text in texts]
        kept = [place for place, method in enumerate(self.methods) if method in methods]
        return Scores(
            tuple(self.texts[row] for row in rows),
            tuple(self.methods[place] for place in kept),
            {
                family: values[rows][:, [*kept, *range(len(self.methods), values.shape[1])]]
                for family, values in self.values.items()
            },
            tuple(self.notes[row] for row in rows),
            self.about,
        )

    @classmethod
    def assembled(cls, texts: Sequence[str], methods: Sequence[str], parts: Sequence[Scores]) -> Scores:
        """Return texts and methods in an order, from parts that hold every pair of them between them.

        If several parts hold a text's baselines, which differ in their last digits by batch, those stored
        with the first method by key count: always the same, however the parts are put together.
        """
        values: dict[str, Float] = {}
        notes: list[dict[str, None]] = [{} for _ in texts]
        places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            places.setdefault(text, []).append(place)
        for part in sorted(parts, key=lambda part: min(part.methods), reverse=True):
            pairs = [
                (source, place) for source, text in enumerate(part.texts) for place in places.get(text, ())
            ]
            kept = [(source, methods.index(key)) for source, key in enumerate(part.methods) if key in methods]
            source_rows, rows = ([pair[side] for pair in pairs] for side in (0, 1))
            for family, array in part.values.items():
                count = array.shape[1] - len(part.methods)
                shape = (len(texts), len(methods) + count, *array.shape[2:])
                whole = values.setdefault(family, np.full(shape, np.nan))
                baselines = [(len(part.methods) + at, len(methods) + at) for at in range(count)]
                source_columns, columns = ([pair[side] for pair in [*kept, *baselines]] for side in (0, 1))
                whole[np.ix_(rows, columns)] = array[np.ix_(source_rows, source_columns)]
            for source, place in pairs:
                notes[place] |= dict.fromkeys(part.notes[source])
        return cls(tuple(texts), tuple(methods), values, tuple(map(tuple, notes)), parts[0].about)

    def to_bytes(self) -> bytes:
        """Return the scores as a safetensors file, the keys of texts readable by themselves."""
        from safetensors.numpy import save

        metadata = {"methods": self.methods, "notes": self.notes, "about": self.about}
        keys = np.frombuffer(bytes.fromhex("".join(self.texts)), dtype=np.uint8)
        arrays: dict[str, NDArray[Any]] = {
            f"values.{family}": np.ascontiguousarray(array) for family, array in self.values.items()
        }
        arrays["texts"] = keys.reshape(-1, _KEY_BYTES)
        return save(arrays, metadata={_ABOUT: json.dumps(metadata)})

    @classmethod
    def from_file(cls, path: Any) -> Scores:
        """Return what `to_bytes` wrote; a damaged file raises one of several errors."""
        from safetensors import safe_open

        with safe_open(path, framework="numpy") as file:
            metadata = json.loads(file.metadata()[_ABOUT])
            names = [name for name in file.keys() if name != "texts"]  # noqa: SIM118 - not a mapping
            return cls(
                tuple(row.tobytes().hex() for row in file.get_tensor("texts")),
                tuple(metadata["methods"]),
                {name.removeprefix("values."): file.get_tensor(name) for name in sorted(names)},
                tuple(map(tuple, metadata["notes"])),
                metadata["about"],
            )


def keys_in(path: Any) -> tuple[NDArray[np.uint8], frozenset[str]]:
    """Return the keys of a file's texts [text, byte] and methods, without its scores, as `from_file` does."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        metadata = json.loads(file.metadata()[_ABOUT])
        texts: NDArray[np.uint8] = file.get_tensor("texts")
        return texts.reshape(-1, _KEY_BYTES), frozenset(metadata["methods"])
