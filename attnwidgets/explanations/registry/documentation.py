"""Documentation that methods share: one text for a parameter that means the same in many of them."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any, TypeVar

from attnwidgets._errors import suggest

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

FRAGMENTS = {
    "trace": "What `aw.trace` returned.",
    "target": "What to explain: a class or a token by name or number, anything from `aw.targets`, or a "
    "function of the model's outputs. By default, what the model predicts.",
    "foil": "What the target is contrasted with: the method explains target - foil.",
    "unit": 'Unit of the result, "token" by default; a coarser unit sums the values of its tokens.',
    "stack": '"encoder" or "decoder" of a model with both; its default otherwise.',
    "any_stack": '"encoder", "decoder" or "cross" of a model with both; its default otherwise.',
    "reduce": 'How the dimensions of an embedding become one number: "l2" (length), "l1" (sum of absolute '
    'values), "sum" (signed), "mean" (signed), "mean_abs", or "mean_square" (no square root).',
    "baseline": 'What stands for missing information: "pad", "mask", "mean" (of all embeddings), "zero", a '
    "token by its string or id, or numbers [dim] or [token, dim]. By default the padding token, else the "
    "mask token, else the mean.",
    "batch_size": "Number of inputs that run together; fewer where memory is short.",
    "no_target": "`target` or `foil` matches no model output.",
}
"""Texts by placeholder: `target: {target}` in a docstring becomes `target: What to explain: ...`."""

_ENTRY = re.compile(r"^( +)([\w, ]+: )\{(\w+)\}(.*(?:\n\1 +\S.*)*)$", re.MULTILINE)
_WIDTH = 110


def documented(function: F) -> F:
    """Fill the placeholders in a function's docstring; each is the beginning of an entry of Args or Raises.

    Raises:
        ValueError: If there is no fragment of that name; the message suggests the nearest.
    """
    function.__doc__ = _ENTRY.sub(_filled_entry, function.__doc__ or "") or None
    return function


def _filled_entry(entry: re.Match[str]) -> str:
    indent, name, fragment, rest = entry.groups()
    if fragment not in FRAGMENTS:
        raise ValueError(
            f"docstring entry {name}{{{fragment}}}: there is no such fragment.{suggest(fragment, FRAGMENTS)}"
        )
    text = " ".join(f"{name}{FRAGMENTS[fragment]}{rest}".split())
    return textwrap.fill(
        text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ", break_on_hyphens=False
    )
