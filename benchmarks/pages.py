"""Write what was measured into a page, between the two marks that it keeps for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_between(page: Path, begin: str, end: str, text: str) -> None:
    """Replace what stands between two marks of a page.

    Raises:
        ValueError: The page lacks a mark.
    """
    before, begun, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"{page} lacks {begin if not begun else end!r}, where the figures belong.")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
