"""The input and options of a trace, by which another text can be traced in the same way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT = "a text"


@dataclass(frozen=True)
class Asked:
    """The input and options of a trace.

    Attributes:
        kind: `TEXT`, or another kind of input in words.
        text: The user's text, without a continuation; "" for other kinds.
        options: The options of `aw.trace` that another text can be traced with.
    """

    kind: str
    text: str
    options: Mapping[str, Any]
