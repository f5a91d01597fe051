"""A Why in a file: its numbers and labels, with the tokens of other texts that were compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import quoted
from attnwidgets.circuits.scores.other_texts import OtherTexts
from attnwidgets.explanations.results.description import plain
from attnwidgets.tracing.algebra.residual_parts import Written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attnwidgets.circuits.scores.result import Why
    from attnwidgets.explanations.results.arrays import Array

_SCALARS = (
    "layer", "head", "query", "key", "foil", "by", "attention", "score", "warning", "is_grouped",
)  # fmt: skip
_ARRAYS = ("pairs", "alone", "foil_weights")


@dataclass(frozen=True)
class SavedCell:
    """A cell loaded from a file: without a model, and so without queries and keys.

    Args:
        stack: The stack.
        labels: The labels of queries and keys.
        place: `why.place` as numbers: content, position and both, or None.
    """

    stack: str
    labels: tuple[tuple[str, ...], tuple[str, ...]]
    place: tuple[float, float, float] | None

    def say(self, token: int) -> str:
        """Return a token in quotes."""
        return quoted(self.labels[0][token].strip(" ␣▁"))


def described_why(why: Why, cell: Any, other: OtherTexts | None) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return a JSON-able description of a Why and its arrays.

    Args:
        why: The score.
        cell: Its cell, or a SavedCell.
        other: The tokens of other texts, if they were compared.
    """
    fields = {name: getattr(why, name) for name in _SCALARS} | {
        "words": why.words,
        "parts": why.parts,
        "given": why.given,
        "written": [asdict(part) for part in why.written],
        "stack": cell.stack,
        "labels": cell.labels,
        "place": why.place,
        "other_texts": None if other is None else other.to_description(),
    }
    arrays: dict[str, Any] = {name: np.asarray(getattr(why, name)) for name in _ARRAYS}
    return {"kind": why.kind, "dtype": "float64", "why": plain(fields)}, arrays


def restored_why(described: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return the arguments of a Why that `described_why` described.

    Raises:
        ValueError: If arrays do not fit the parts.
    """
    fields = described["why"]
    parts, (queries, keys) = tuple(fields["parts"]), fields["labels"]
    sizes = {"pairs": (len(parts),) * 2, "alone": (len(parts),), "foil_weights": (len(keys),)}
    for name, shape in sizes.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name!r} has shape {arrays[name].shape}, which does not fit the others")
    if len(fields["written"]) != len(parts) or not (
        fields["query"] < len(queries) and fields["key"] < len(keys)
    ):
        raise ValueError("parts or tokens do not fit the others")
    other, place = fields["other_texts"], fields["place"]
    query, key = fields["words"]
    return {name: fields[name] for name in _SCALARS} | {
        "words": (str(query), str(key)),
        "parts": parts,
        "given": dict(fields["given"]),
        "written": tuple(Written(**part) for part in fields["written"]),
        **{name: np.asarray(arrays[name], dtype=np.float64) for name in _ARRAYS},
        "_cell": SavedCell(
            fields["stack"], (tuple(queries), tuple(keys)), None if place is None else tuple(place)
        ),
        "_states": None,
        "_compared": [] if other is None else [OtherTexts.from_description(other)],
    }
