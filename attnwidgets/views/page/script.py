"""The script of a page: what draws its views, and the host that plays the kernel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attnwidgets.views.wire.runtime import STATIC, bundle
from attnwidgets.views.wire.stub import COMMON_PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attnwidgets.views.base.view import View

_LIVE = "live"
_NO_PARTS = {"attnwidgets", "standalone", _LIVE}


def script_of(views: Iterable[View], *, live: bool = False) -> str:
    """Return the script of a page with these views, which may run models."""
    return _script({name for view in views for name in (*view.needs.scripts, *COMMON_PARTS)}, live=live)


def script_of_all() -> str:
    """Return the script of pages with whatever views there are."""
    return _script({path.stem for path in STATIC.glob("*.js")} - _NO_PARTS)


def _script(parts: Iterable[str], *, live: bool = False) -> str:
    # In parentheses: browsers compile such a function at once, instead of reading it twice.
    code = ",".join(f"({bundle(f'{name}.js').strip()})" for name in sorted(parts))
    runs = f"globalThis.awLive=({bundle(f'{_LIVE}.js').strip()});" if live else ""
    script = f"globalThis.awParts=[{code}];{runs}{bundle('standalone.js')}"
    return re.sub(r"<(?=/script|!--)", r"\\x3c", script, flags=re.IGNORECASE)
