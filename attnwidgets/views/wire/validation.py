"""Checks of the requests that arrive from the browser, whatever a page may send."""

from __future__ import annotations

from typing import Any

# Required fields of each kind of request: `Request` and `Question` of wire.ts.
_NEEDED: dict[str, tuple[str, ...]] = {
    "tile": ("source", "layer", "head"),
    "layer": ("source", "layer", "heads"),
    "row": ("source", "layer", "head", "row"),
    "thumbs": ("source",),
    "method": ("source",),
    "ask": ("topic",),
    "cancel": ("job",),
    "ping": (),
}
_TEXT, _NUMBER, _EITHER = "a text", "a whole number", "a whole number or a text"
_HEADS, _ARGUMENTS = "a list of whole numbers and texts", "arguments by name"
_FIELDS = {
    **dict.fromkeys(("source", "topic"), _TEXT),
    **dict.fromkeys(("layer", "row"), _NUMBER),
    **dict.fromkeys(("id", "job", "head"), _EITHER),
    "heads": _HEADS,
    "args": _ARGUMENTS,
}


def fault(request: Any) -> dict[str, Any] | None:
    """Return the reply to a malformed request, which says why; None if every field has its type."""
    fields = request if isinstance(request, dict) else {}
    kind, number = fields.get("kind"), fields.get("id")
    if not isinstance(kind, str) or kind not in _NEEDED:
        message = f"unknown request {kind!r:.80}"
    else:
        missing = [name for name in _NEEDED[kind] if name not in fields]
        wrong = [name for name, what in _FIELDS.items() if name in fields and not _is(what, fields[name])]
        if not missing and not wrong:
            return None
        name = (missing or wrong)[0]
        given = "is missing" if missing else f"is {fields[name]!r:.80}"
        message = f"{name} of a request for {kind!r} must be {_FIELDS[name]}, and {given}"
    return {"kind": "error", "id": number if _is(_EITHER, number) else None, "message": message}


def _is(what: str, value: Any) -> bool:
    if what == _HEADS:
        return isinstance(value, list) and all(_is(_EITHER, head) for head in value)
    if what == _ARGUMENTS:
        return value is None or (isinstance(value, dict) and all(isinstance(name, str) for name in value))
    whole = isinstance(value, int) and not isinstance(value, bool)
    return (whole and what != _TEXT) or (isinstance(value, str) and what != _NUMBER)
