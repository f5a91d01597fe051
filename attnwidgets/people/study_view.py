"""StudyView: a study as one person goes through it, in a notebook or on a page without a kernel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from attnwidgets._tables import csv_of
from attnwidgets._version import __version__
from attnwidgets.people.item import Item, Shown, gaps
from attnwidgets.people.kinds import CHECK_WORDS, truth_of
from attnwidgets.people.reading import checked, responses_of
from attnwidgets.people.study import Study
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.standalone_view import StandaloneView
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.people.responses import Responses
    from attnwidgets.views.base.options import TitleOptions
    from attnwidgets.views.wire.handlers import Answer

_CODE = re.compile(r"[a-z0-9]{4,16}")


class StudyView(StandaloneView):
    """A study as one person goes through it: consent, practice, items and checks, and answers to hand in.

    It works by keyboard alone and on a telephone. Nothing is stored before the person agrees, and afterwards
    only in the memory of the page, or of the kernel (`responses`): no name, no cookie, a random code. At the
    end the answers are a file and a line of text. The page contains no right answers except those of practice
    items.

    Args:
        study: Result of `aw.people.study`.
        code: The person's code, of `study.codes`; None: the view draws one, which can be changed.

    Raises:
        TypeError: `study` is not a study.
        ValueError: The code is not 4 to 16 small letters and digits.

    Example:
        >>> answer = {"prediction": "yes", "explanations": {"a": "why"}}
        >>> items = [{"text": f"text {i}", **answer} for i in range(2)]
        >>> aw.people.StudyView(aw.people.study("trust", items, ["none", "a"]))
        StudyView(<Study trust of 2 items in none, a; each person every condition; 0 practice items, ...>)
    """

    _VIEW = "StudyView"
    NEEDS = Needs(("study",))
    _HEIGHT = 540

    def __init__(self, study: Any, *, code: str | None = None, **options: Unpack[TitleOptions]) -> None:
        if not isinstance(study, Study):
            raise TypeError(f"StudyView() shows the result of aw.people.study, not {type(study).__name__}.")
        if code is not None and not _CODE.fullmatch(code):
            raise ValueError(f"code={code!r} is not 4 to 16 small letters and digits.")
        self._study, self._code = study, code
        self._payload: dict[str, Any] | None = None
        options.setdefault("title", study.title)
        super().__init__(**options)

    @property
    def study(self) -> Study:
        """The study."""
        return self._study

    @property
    def responses(self) -> Responses | None:
        """The answers so far, in a notebook; None before consent and after withdrawing."""
        return None if self._payload is None else responses_of([("this view", self._payload)], self._study)

    def _own_options(self) -> dict[str, Any]:
        study = self._study
        items = zip(study.ids, study.items, study.words, study.shown, strict=True)
        practice = zip(study.practice, study.practice_words, study.practice_shown, strict=True)
        return {
            "study": {
                "hash": study.hash,
                "kind": study.kind,
                "heading": study.title,
                "question": study.question,
                "consent": study.consent,
                "labels": list(study.labels),
                "between": study.between,
                "conditions": list(study.conditions),
                "cells": [list(cell) for cell in study.cells],
                "items": [_item(study.kind, *item, None) for item in items],
                "practice": [
                    _item(
                        study.kind,
                        f"practice {at}",
                        item,
                        words,
                        shown,
                        truth_of(study.kind, item, words, at),
                    )
                    for at, (item, words, shown) in enumerate(practice)
                ],
                "checks": list(study.checks),
                "checkWords": list(CHECK_WORDS),
                "code": self._code,
                "package": __version__,
            }
        }

    def _handlers(self) -> Mapping[str, Handler]:
        return {**super()._handlers(), "responses": Handler(self._receive, for_page=tuple)}

    def _receive(self, payload: Any = None, count: int = 0) -> Answer:
        """Store the answers so far, or forget them; `count` makes equal requests differ."""
        del count
        self._payload = None if payload is None else checked(payload)
        return None, []

    def _table(self) -> str:
        rows = zip(self._study.ids, (item.text for item in self._study.items), strict=True)
        return csv_of([("item", "text"), *rows])

    def describe(self) -> str:
        """Return a description of the study in words."""
        study = self._study
        return (
            f"{study.question} A study of {_spoken(len(study.items), 'item')} in "
            f"{_spoken(len(study.conditions), 'condition')}, "
            f"with {_spoken(len(study.practice), 'practice item')} and "
            f"{_spoken(len(study.checks), 'attention check')}."
        )

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.people.still import sheet_of

        return sheet_of(self._study, theme)

    def _names(self) -> tuple[str, str]:
        return self._study.title, self.describe()

    def __repr__(self) -> str:
        return f"{self._VIEW}({self._study!r})"


def _spoken(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _item(
    kind: str, name: str, item: Item, words: Sequence[str], shown: Sequence[Sequence[Shown]], truth: Any
) -> dict[str, Any]:
    """Return an item for the browser (`AskedItem` of studies.ts), without the fields that answer it."""
    predictions = (item.prediction,) if isinstance(item.prediction, str) else item.prediction
    return {
        "id": name,
        "words": list(words),
        "gaps": gaps(item.text, words),
        "shown": [[_explanation(entry, item.text, words) for entry in drawn] for drawn in shown],
        "prediction": [] if kind == "forward" else [text for text in predictions if text],
        "changed": item.changed if kind == "counterfactual" else "",
        "truth": list(truth) if isinstance(truth, tuple) else truth,
    }


def _explanation(shown: Shown, text: str, words: Sequence[str]) -> dict[str, Any]:
    """Return an explanation for the browser; `words` is None where they are those of the text."""
    differing = None if not shown.words or shown.words == tuple(words) else list(shown.words)
    return {
        "words": differing,
        "gaps": None if differing is None else gaps(text, differing),
        "values": list(shown.values),
        "text": shown.text,
    }
