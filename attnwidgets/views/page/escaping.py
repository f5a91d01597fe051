"""Escaping: whatever a text contains, in a standalone page it stays text."""

from __future__ import annotations

import base64
import html
import json
from typing import Any


def json_text(value: Any) -> str:
    """Return a value as JSON that is safe inside a script element."""
    # `<` could end the script element; the two separators are line ends in JavaScript but not in JSON.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def base64_text(data: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(data).decode("ascii")


_CONTROLS = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: "␡",
    **dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C], "�"),
}


def safe_text(text: str) -> str:
    """Return text as HTML: escaped, with visible control characters that cannot reverse the text around."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8").translate(_CONTROLS))
