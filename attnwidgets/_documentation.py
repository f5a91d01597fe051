"""Documentation that functions share: a single text for a parameter that means the same in many of them."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any, TypeVar

from attnwidgets._errors import suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

F = TypeVar("F", bound="Callable[..., Any]")

_ENTRY = re.compile(r"^( +)([\w, ]+: )\{(\w+)\}(.*(?:\n\1 +\S.*)*)$", re.MULTILINE)
_WIDTH = 110


def documenter(fragments: Mapping[str, str]) -> Callable[[F], F]:
    """Return a decorator that fills the placeholders in a function's docstring.

    A placeholder begins an entry of Args or Raises: `target: {target}` becomes `target: ` and the fragment of
    that name, followed by the text after the placeholder. An unknown placeholder is a ValueError at import.
    """

    def filled(entry: re.Match[str]) -> str:
        indent, name, fragment, rest = entry.groups()
        if fragment not in fragments:
            near = suggest(fragment, fragments)
            raise ValueError(f"docstring entry {name}{{{fragment}}}: unknown fragment.{near}")
        text = " ".join(f"{name}{fragments[fragment]}{rest}".split())
        return textwrap.fill(
            text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ", break_on_hyphens=False
        )

    def documented(function: F) -> F:
        function.__doc__ = _ENTRY.sub(filled, function.__doc__ or "") or None
        return function

    return documented
