"""The colours of a figure's page. What is marked or measured has the colours of `tokens.css`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnwidgets._errors import suggest

ThemeName = Literal["light", "dark"]


@dataclass(frozen=True)
class Theme:
    """Colours by what they are for.

    Attributes:
        name: "light" or "dark".
        page: Background.
        ink: Text.
        quiet: Secondary text.
        line: Thin lines.
        empty: Cells without a number.
        left_out: Behind text without a number.
        accent: What is selected or pinned.
        amount: Bars of amounts.
        speaks_for: Bars that raise the target.
        against: Bars that lower it.
        apart: Special tokens, and what was before a change.
    """

    name: ThemeName
    page: str
    ink: str
    quiet: str
    line: str
    empty: str
    left_out: str
    accent: str
    amount: str
    speaks_for: str
    against: str
    apart: str


LIGHT = Theme(
    name="light",
    page="#ffffff",
    ink="#1f2328",
    quiet="#5b6470",
    line="#d8dee4",
    empty="#ededed",
    left_out="#e6e6e6",
    accent="#0969c7",
    amount="#246cb3",
    speaks_for="#c17536",
    against="#8f79d5",
    apart="#98a2ad",
)
DARK = Theme(
    name="dark",
    page="#111418",
    ink="#e6e9ee",
    quiet="#a3adb8",
    line="#2f363f",
    empty="#1c2128",
    left_out="#2a3038",
    accent="#6cb2ff",
    amount="#74a5d6",
    speaks_for="#bd7946",
    against="#8f7dce",
    apart="#7d8793",
)
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}


def theme_of(name: str) -> Theme:
    """Return a theme by its name.

    Raises:
        ValueError: The theme is unknown.
    """
    if name not in THEMES:
        raise ValueError(f"theme={name!r} is not 'light' or 'dark'.{suggest(str(name), THEMES)}")
    return THEMES[name]
