"""Errors of answers, and of the file that stores them."""

from __future__ import annotations


class AnswerError(ValueError):
    """A value, a record or a receipt that is not an answer; the message says what to do."""


class NewerVersionError(AnswerError):
    """An answer that a later version of attnwidgets wrote, which this version cannot read."""


class MarginError(AnswerError):
    """A question whose right answer is too near to the runner-up for a question."""


class AnswersFileError(OSError):
    """The file next to the notebook cannot be written; the answer is still in the notebook's output."""
