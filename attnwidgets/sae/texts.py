"""Texts of a corpus: reading rows of a data set, hashing texts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.text.given_texts import require_no_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Text = str | tuple[int, ...]


def require_texts(texts: Any) -> None:
    """Raise ValueError for a mapping or string, TypeError for a table: iterating would not yield texts."""
    if isinstance(texts, str):
        raise ValueError("texts must be a collection of texts, not one string; pass [text].")  # noqa: TRY004
    if isinstance(texts, Mapping):
        raise ValueError(  # noqa: TRY004 - as for a string
            f"texts must be one data set, not a mapping of {', '.join(map(repr, texts))}; pass one of them."
        )
    require_no_table(texts, "texts")


def text_of(row: str | Sequence[int] | Mapping[str, Any], *, spelled: bool) -> Text:
    """Return one text, as a string or as token ids.

    Args:
        row: A string, token ids, or a row of a data set with "text" or "input_ids".
        spelled: Whether there is a tokenizer; "text" then takes precedence over "input_ids".

    Raises:
        ValueError: If a row has neither.
    """
    if isinstance(row, Mapping):
        names = ("text", "input_ids") if spelled else ("input_ids", "text")
        column = next((name for name in names if name in row), None)
        if column is None:
            raise ValueError(
                "texts has a row without 'text' or 'input_ids'; its columns are "
                f"{', '.join(map(repr, row))}: rename the one that contains the text."
            )
        row = row[column]
    return row if isinstance(row, str) else tuple(int(number) for number in row)


class Digest:
    """A hash of texts in order, updated one by one."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self.texts = 0

    def add(self, text: Text) -> None:
        """Add a text."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else repr(text).encode()
        self._digest.update(f"{type(text).__name__} {len(data)} ".encode() + data)
        self.texts += 1

    def reading(self, texts: Iterable[Text]) -> Iterator[Text]:
        """Yield texts and add them to the hash."""
        for text in texts:
            self.add(text)
            yield text

    def __str__(self) -> str:
        return self._digest.hexdigest()
