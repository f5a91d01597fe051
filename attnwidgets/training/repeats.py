"""Texts that repeat, with their period and the position at which the second copy begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.statistics.induction import fitting, repeated_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_LENGTH, _SEQUENCES = 16, 32
_SHORTEST = 4  # a shorter period has too few offsets that differ


@dataclass(frozen=True)
class Repeats:
    """Rows of token ids that repeat.

    Attributes:
        ids: Token ids [row, token].
        period: How far a token is from its copy.
        second: Position at which the second copy begins.
    """

    ids: NDArray[np.int64]
    period: int
    second: int

    @property
    def queries(self) -> NDArray[np.int64]:
        """The positions from the second copy on."""
        return np.arange(self.second, self.ids.shape[1])


def drawn(model: Any, tokenizer: Any) -> Repeats:
    """Return 32 rows of 16 random tokens that repeat after a start token; fewer tokens for a small model."""
    length = min(_LENGTH, fitting(model, tokenizer)[0])
    rows = repeated_tokens(model, tokenizer, length=length, repeats=2, sequences=_SEQUENCES)
    return of_rows(rows)


def read(tokenizer: Any, texts: Sequence[Any]) -> Repeats:
    """Return texts, or rows of token ids, that repeat.

    Raises:
        ValueError: If they do not repeat, or differ in length or period.
    """
    if isinstance(texts, str):
        raise TypeError("texts is one text; give a list of texts.")
    rows = [tokenizer(text)["input_ids"] if isinstance(text, str) else list(text) for text in texts]
    return of_rows(rows)


def of_rows(rows: Sequence[Sequence[int]]) -> Repeats:
    """Return rows of token ids with their period, the shortest with which all of them repeat."""
    lengths = {len(row) for row in rows}
    if len(lengths) != 1:
        raise ValueError(f"texts must be of equal length in tokens, not {sorted(lengths)}.")
    ids = np.asarray(rows, dtype=np.int64)
    n = ids.shape[1]
    for start in (0, 1):  # without and with a start token
        for period in range(_SHORTEST, n - start):
            second = start + period
            if n - second > 1 and bool((ids[:, second:] == ids[:, start : n - period]).all()):
                return Repeats(ids, period, second)
    raise ValueError(
        f"texts must repeat with a common period of at least {_SHORTEST} tokens, so that the second copy can "
        "be continued by looking back; these do not."
    )
