"""The script of a page, which draws its views, and its escaping: whatever a text contains, it stays text."""

from __future__ import annotations

import base64
import html
import json
import re
from typing import TYPE_CHECKING, Any

from attnwidgets.views.wire.runtime import COMMON_PARTS, STATIC, bundle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attnwidgets.views.base.view import View

_LIVE, _ENGINE = "live", "engine"
_NO_PARTS = {"attnwidgets", "standalone", _LIVE, _ENGINE}


def script_of(views: Iterable[View], *, live: bool = False, engine: bool = False) -> str:
    """Return the script of a page with these views, which may run models: large ones by the engine."""
    nested = [inner for view in views for inner in view.nested()]
    names = {name for view in nested for name in (*view.needs.scripts, *COMMON_PARTS)}
    return _script(names, live=live, engine=engine)


def script_of_all(*, live: bool = False) -> str:
    """Return the script of pages with whatever views there are, which may run models."""
    return _script({path.stem for path in STATIC.glob("*.js")} - _NO_PARTS, live=live, engine=live)


def _script(parts: Iterable[str], *, live: bool = False, engine: bool = False) -> str:
    # In parentheses: browsers compile such a function at once, instead of reading it twice.
    code = ",".join(f"({bundle(f'{name}.js').strip()})" for name in sorted(parts))
    runs = f"globalThis.awLive=({bundle(f'{_LIVE}.js').strip()});" if live else ""
    if engine:  # the text of a worker
        runs += f"globalThis.awEngine={json_text(bundle(f'{_ENGINE}.js'))};"
    script = f"globalThis.awParts=[{code}];{runs}{bundle('standalone.js')}"
    return re.sub(r"<(?=/script|!--)", r"\\x3c", script, flags=re.IGNORECASE)


def json_text(value: Any) -> str:
    """Return a value as JSON that is safe inside a script element."""
    # `<` could end the script element; the two separators are line ends in JavaScript but not in JSON.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def json_size(value: Any) -> int:
    """Return how many bytes a value takes in a page."""
    return len(json_text(value).encode(errors="replace"))


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
