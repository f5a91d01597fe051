"""What a teacher's feedback says of an answer; it runs in the kernel and is never sent to the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.course.canonical import canonical
from attnwidgets.course.errors import AnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Feedback = Callable[[Any], Any] | Mapping[Any, Any]

_MOST_WORDS = 500


def told_by(feedback: Feedback | None, value: Any) -> tuple[str, bool | None]:
    """Return the feedback on an answer, and whether the answer counts as right; None without a verdict.

    Args:
        feedback: A function of the value, or a dict by value. What either gives is True, False, words, or a
            pair of both; None says nothing.
        value: The answer; None: there is none.
    """
    if feedback is None or value is None:
        return "", None
    if callable(feedback):
        try:
            given = feedback(value)
        except Exception as error:  # noqa: BLE001 - whatever the teacher's function raises, the answer is kept
            return f"the feedback could not be read ({type(error).__name__}: {error})"[:_MOST_WORDS], None
    else:
        wanted = canonical(value)
        given = next((told for key, told in feedback.items() if _canonical(key) == wanted), None)
    return _read(given)


def _canonical(key: Any) -> str:
    try:
        return canonical(key)
    except AnswerError:
        return ""


def _read(given: Any) -> tuple[str, bool | None]:
    if isinstance(given, bool):
        return "", given
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], bool):  # noqa: PLR2004 - both
        return str(given[1])[:_MOST_WORDS], given[0]
    return ("", None) if given is None else (str(given)[:_MOST_WORDS], None)
