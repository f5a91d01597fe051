"""The public names by question, as `__init__.pyi` lists them."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

_GROUP = re.compile(r"^# (?P<heading>.+)\n(?P<imports>(?:from .+\n)+)", re.MULTILINE)


def groups() -> dict[str, list[str]]:
    """Return the public names under the question that each answers, in the order of the stub."""
    listing = Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8")
    return {group["heading"]: re.findall(r"(\w+) as", group["imports"]) for group in _GROUP.finditer(listing)}


def in_words(names: dict[str, list[str]]) -> str:
    """Return groups as the paragraphs that `help(aw)` shows."""
    return "\n\n".join(
        f"{heading}\n{textwrap.fill(', '.join(group), 100, initial_indent='    ', subsequent_indent='    ')}"
        for heading, group in names.items()
    )
