"""Texts of a corpus: what the rows of a data set hold, and what texts are known by."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Text = str | tuple[int, ...]


def require_texts(texts: Any) -> None:
    """Raise ValueError for a mapping, table or string, which would be looped over as if it were texts."""
    if isinstance(texts, str):
        raise ValueError("texts must be several texts, not one string; pass [text].")  # noqa: TRY004
    if isinstance(texts, Mapping):
        raise ValueError(  # noqa: TRY004 - as for a string
            f"texts must be one data set, not a mapping with {', '.join(map(repr, texts))}; pass one of them."
        )
    if hasattr(texts, "iterrows"):
        raise ValueError("texts must be texts, not a table; pass its column, such as table['text'].")


def text_of(row: str | Sequence[int] | Mapping[str, Any], *, spelled: bool) -> Text:
    """Return the text, or the token ids, that stand for one text.

    Args:
        row: A string, token ids, or a row of a data set with "text" or "input_ids".
        spelled: Whether there is a tokenizer: then "text" is read where a row has both.

    Raises:
        ValueError: Where a row has neither.
    """
    if isinstance(row, Mapping):
        names = ("text", "input_ids") if spelled else ("input_ids", "text")
        found = next((name for name in names if name in row), None)
        if found is None:
            raise ValueError(
                f"texts has a row with neither 'text' nor 'input_ids', but {', '.join(map(repr, row))}; "
                "rename the column that holds the text."
            )
        row = row[found]
    return row if isinstance(row, str) else tuple(int(number) for number in row)


class Digest:
    """A hash of texts in their order, taken in one by one."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self.texts = 0

    def add(self, text: Text) -> None:
        """Take in a text."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else repr(text).encode()
        self._digest.update(f"{type(text).__name__} {len(data)} ".encode() + data)
        self.texts += 1

    def reading(self, texts: Iterable[Text]) -> Iterator[Text]:
        """Yield texts, and take them in."""
        for text in texts:
            self.add(text)
            yield text

    def __str__(self) -> str:
        return self._digest.hexdigest()
