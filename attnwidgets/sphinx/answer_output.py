"""Answers to questions in the outputs of notebooks, as MyST-NB renders them: not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from attnwidgets.course.records import MIME

if TYPE_CHECKING:
    from collections.abc import Sequence


class AnswerOutput:
    """A plugin of MyST-NB, loaded by its entry point; without it every question is an unknown output.

    The record of an answer is stored next to the view and the static copy of its question, which the page
    shows.
    """

    mime_priority_overrides: ClassVar[Sequence[tuple[str, str, int | None]]] = ()

    @staticmethod
    def handle_mime(renderer: Any, data: Any, inline: bool) -> list[Any] | None:  # noqa: ARG004
        """Return no nodes for the record of an answer, and None for other outputs."""
        return [] if data.mime_type == MIME else None
