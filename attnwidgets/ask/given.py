"""What a question is given, checked: its view, its prompt, its points and its options."""

from __future__ import annotations

from typing import Any

from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.views.base.options import checked_names
from attnwidgets.views.base.view import View

_MOST_CHARACTERS = 4000
_MOST_OPTIONS = 100
_MOST_POINTS = 10**6


def view_of(given: Any) -> View | None:
    """Return the view that a question is about.

    Raises:
        TypeError: It is neither a view nor something that a view shows.
    """
    if given is None or isinstance(given, View):
        return given
    if is_trace(given):
        from attnwidgets.views.explorer import Explorer

        return Explorer(given)
    made = given.view() if hasattr(given, "view") and callable(given.view) else None
    if not isinstance(made, View):
        raise TypeError(
            f"view is a {type(given).__name__}: give a view, such as aw.Explorer(trace), a trace or a map."
        )
    return made


def checked_prompt(prompt: Any) -> str:
    """Return the prompt as text that can be encoded.

    Raises:
        ValueError: It is not a text, empty or too long.
    """
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"prompt={prompt!r:.80} is not the text of a question.")
    if len(prompt) > _MOST_CHARACTERS:
        raise ValueError(f"prompt has {len(prompt):,} characters; at most {_MOST_CHARACTERS:,} can be shown.")
    return prompt.encode("utf-8", "replace").decode()


def checked_points(points: Any) -> float:
    """Return the points.

    Raises:
        ValueError: They are not a number from 0 to a million.
    """
    if isinstance(points, bool) or not isinstance(points, (int, float)) or not 0 <= points <= _MOST_POINTS:
        raise ValueError(f"points={points!r} is not a number from 0 to 1,000,000.")
    return points


def checked_options(kind: str, options: Any) -> list[str] | None:
    """Return what can be chosen, as text; None if anything can.

    Raises:
        TypeError: It is a single text.
        ValueError: There are none or too many, or one of them stands there twice, or is empty.
    """
    if kind == "choice" and not options:
        raise ValueError(
            "options is missing: give what can be chosen, as in options=['head 0.0', 'head 0.1']."
        )
    if options is None:
        return None
    if kind not in ("choice", "order"):
        raise ValueError(f"options: an answer of the kind {kind!r} is not chosen among options.")
    listed = [str(option).encode("utf-8", "replace").decode() for option in checked_names("options", options)]
    if len(listed) > _MOST_OPTIONS:
        raise ValueError(f"options has {len(listed)} entries; at most {_MOST_OPTIONS} can be shown.")
    if len(set(listed)) < len(listed) or not all(option.strip() for option in listed):
        raise ValueError("options holds an empty text, or the same one twice.")
    return listed
