"""Texts in the forms that users have: a list, a column of a table, an array of strings, a generator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnwidgets._tensors import is_tensor


def require_no_table(texts: Any, name: str) -> None:
    """Raise a TypeError for a table (a DataFrame): iterating over it would yield the names of its columns."""
    if not any(hasattr(texts, verb) for verb in ("iterrows", "iter_rows")):
        return
    columns = list(texts.columns)
    worded = (column for column in columns if isinstance(next(iter(texts[column]), None), str))
    column = next(worded, columns[0] if columns else "text")
    raise TypeError(f"{name} is a table, not texts; give one of its columns: {name}=df[{column!r}].")


def listed_texts(texts: Any, name: str = "texts") -> list[Any]:
    """Return a text, or several, as a list.

    Args:
        texts: A text, or any iterable of texts.
        name: Name of the argument, for messages.

    Raises:
        TypeError: If it is a table; the message names a column of texts.
    """
    require_no_table(texts, name)
    return [texts] if isinstance(texts, str) else list(texts)


def as_sequence(texts: Any, name: str) -> Any:
    """Return an iterable of texts as a list; a text, a sequence, a mapping and numbers as they are.

    Raises:
        TypeError: If it is a table; the message names a column of texts.
    """
    require_no_table(texts, name)
    if isinstance(texts, (str, Mapping, Sequence)) or is_tensor(texts) or not isinstance(texts, Iterable):
        return texts
    tolist = getattr(texts, "tolist", None)
    if not callable(tolist):
        return list(texts)
    values = tolist()
    several = values if isinstance(values, list) else [values]
    return values if several and all(isinstance(value, str) for value in several) else texts
