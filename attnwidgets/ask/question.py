"""Question: a prompt, and the answer of a reader, on the selection of the view that it is about."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from attnwidgets._errors import require_choice
from attnwidgets._notebook import draws_no_views, running_shell
from attnwidgets._tables import csv_of
from attnwidgets.ask.given import (
    checked_options,
    checked_points,
    checked_prompt,
    fingerprint_of,
    subject_of_view,
    told_by,
    view_of,
)
from attnwidgets.ask.keeping import QUESTIONS, find, keep
from attnwidgets.ask.kinds import OF_TEXTS, OF_VIEWS, Ranges, code_value, valid, words
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.records import MIME, Record, encode, make_record
from attnwidgets.course.values import KINDS, checked
from attnwidgets.views.base.link import Link
from attnwidgets.views.base.needs import Needs, Panel
from attnwidgets.views.base.standalone_view import StandaloneView
from attnwidgets.views.page.script import safe_text
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.options import TitleOptions
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.store import TileStore


class Question(StandaloneView):
    """A question that is answered in a view, by keyboard or in code; `aw.ask.head` and its like make it.

    The reader's selection in the view becomes the answer when the reader submits it. The answer is then
    stored in the output of the cell, and in `<notebook>.answers.json` next to the notebook, from which it is
    read when the cell runs again; and it is shown as a receipt, a line to paste into any form.

    Args:
        kind: "head", "layer", "tokens", "span", "cell", "order", "number", "choice" or "text".
        prompt: The question, as text.
        id: Its name among the answers, unique in the notebook: letters, digits, "_", "-" and ".".
        view: The view it is answered in; or a trace (an Explorer of it is shown) or an explanation.
        points: Points that a right answer gives, as shown.
        options: The options to choose from, or to put into an order.
        multiple: Whether several options may be chosen.
        unit: Unit of a number, as shown: "%", "nats".
        least: The least number that can be an answer; None: any.
        feedback: Feedback on an answer: a function of its value, or a dict by value; see `aw.ask.head`.
        show_view: Whether the view is shown below the question. False: it is shown elsewhere in the notebook.

    Raises:
        TypeError: `view` is not a view, trace or explanation, or is missing where it is needed, or `feedback`
            is neither a function nor a dict.
        ValueError: The kind is unknown, the prompt is empty or too long, the options do not fit the kind, or
            another cell has a question of the same id.

    Example:
        >>> question = aw.ask.Question("number", "How many heads has the model?", "heads")
        >>> question.answer is None
        True
    """

    _VIEW = "Question"
    NEEDS = Needs(("question",))

    def __init__(
        self,
        kind: str,
        prompt: str,
        id: str,  # noqa: A002 - the field's name
        *,
        view: Any = None,
        points: float = 1,
        options: Sequence[str] | None = None,
        multiple: bool = False,
        unit: str = "",
        least: float | None = None,
        feedback: Callable[[Any], Any] | Mapping[Any, Any] | None = None,
        show_view: bool = True,
        **display: Unpack[TitleOptions],
    ) -> None:
        self._with_defaults(display)
        self._about = str(display.pop("title", "")) or id
        require_choice("kind", kind, KINDS)
        self._kind, self._prompt, self._id = kind, checked_prompt(prompt), id
        self._points, self._multiple = checked_points(points), bool(multiple)
        self._choices = checked_options(kind, options)
        self._least = None if least is None else checked("number", least)
        if feedback is not None and not callable(feedback) and not hasattr(feedback, "items"):
            raise TypeError("feedback is neither a function of the answer nor a dict of words by answer.")
        self._feedback = feedback
        self.view = view_of(view)
        if self.view is None and kind in OF_VIEWS:
            raise TypeError(f"aw.ask.{kind}() is answered in a view: give view=, such as aw.Explorer(trace).")
        self._ranges = Ranges.of(self.view)
        self._unit = (self._ranges.unit if kind in OF_TEXTS else str(unit)) or None
        self._fingerprint = fingerprint_of(self.view)
        self._subject = subject_of_view(self.view)
        self.inner = (self.view,) if self.view is not None and show_view else ()
        self.panels = tuple(Panel(dict, Needs(view.needs.scripts)) for view in self.inner)
        make_record(id, kind, None, unit=self._unit, subject=self._subject)  # checks the id and the unit
        note = QUESTIONS.add(self)
        result = find(id, kind, self._subject)
        self._value = self._usable(result.record)
        self._saved, self._problem = result.saved, " ".join(filter(None, (result.problem, note)))
        self._said, self._right = told_by(self._feedback, self._value)
        self._display = uuid4().hex
        self._picture: bytes | None = None
        super().__init__(**display)
        if self._ranges.layers:
            self._start_apart()

    # -- the answer --------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Its name among the answers of the notebook."""
        return self._id

    @property
    def prompt(self) -> str:
        """The text of the question."""
        return self._prompt

    @property
    def kind(self) -> str:
        """The kind of its answer."""
        return self._kind

    @property
    def points(self) -> float:
        """Points that a right answer gives."""
        return self._points

    @property
    def answer(self) -> Any:
        """The answer, or None: `[layer, head]`, positions from 0, a number, a name, a list.

        Setting it answers the question, as submitting it does; None takes the answer back.

        Raises:
            AnswerError: The value does not fit this kind, or is not among the options (a ValueError).
            IndexError: The layer, head or position is out of range; the message names the range.
        """
        return self._value

    @answer.setter
    def answer(self, value: Any) -> None:
        if value is None:
            self._settle(None)
            return
        self._settle(self._valid(value))

    def _valid(self, value: Any) -> Any:
        return valid(
            self._kind, value, self._ranges, self._choices, multiple=self._multiple, least=self._least
        )

    @property
    def record(self) -> Record:
        """The record of the answer, as it is stored: v, id, kind, value, unit, subject and package."""
        return make_record(self._id, self._kind, self._value, unit=self._unit, subject=self._subject)

    @property
    def receipt(self) -> str:
        """The answer as a line of text to hand in; "" without an answer."""
        return "" if self._value is None else encode(self.record)

    def check(self) -> str:
        """Return whether the question is answered, with the teacher's feedback on the answer.

        Without feedback, it says only that there is an answer of the right form, not whether it is right.

        Example:
            >>> question = aw.ask.number("How many tokens?", id="tokens")
            >>> question.check()
            'not answered yet'
            >>> question.answer = 7
            >>> question.check()
            'answered, well-formed'
        """
        if self._value is None:
            return "not answered yet"
        verdict = "" if self._right is None else "right" if self._right else "not right yet"
        return ", ".join(filter(None, ("answered", "well-formed", verdict))) + (
            f": {self._said}" if self._said else ""
        )

    def take(self) -> Any:
        """Answer with the selection of the view, as the button does; return the answer.

        Raises:
            ValueError: The selection does not answer this question.
        """
        from attnwidgets.ask.kinds import selected_answer

        self.answer = selected_answer(self)
        return self.answer

    def _usable(self, record: Mapping[str, Any] | None) -> Any:
        """Return the value of a stored record, if it is still a valid answer."""
        if record is None:
            return None
        try:
            return self._valid(record["value"])
        except (AnswerError, IndexError):
            return None  # the options were changed since

    def _settle(self, value: Any) -> None:
        """Store an answer: in the file, in the output of the cell and in the browser."""
        self._value = value
        self._saved, self._problem = keep(self.record)
        if value is None:
            self._saved = ""
        self._said, self._right = told_by(self._feedback, value)
        self.add_options(**self._own_options())
        self._update_output()

    # -- the view ----------------------------------------------------------------------------------

    def _own_options(self) -> dict[str, Any]:
        record = self.record
        return {
            "question": {
                "prompt": self._prompt,
                "about": self._about,
                "points": self._points,
                "choices": self._choices,
                "multiple": self._multiple,
                "least": self._least,
                "record": record,
                "model": self._fingerprint,
                "saved": self._saved,
                "problem": self._problem,
                "feedback": self._said,
                "right": self._right,
            },
            "inner": [view.inside() for view in self.inner],
        }

    def _join(self, start: Mapping[str, Any]) -> Link:
        if self.view is None:
            return super()._join(start)
        if self.view.comm is None:
            self.view._reopen()  # noqa: SLF001 - it is shown inside this view
        store, selection = self.view.store, self.view.selection
        store.acquire(self._holder)
        selection.acquire(self._holder)
        self.content = replace(self.content, trace_id=self.view.content.trace_id)
        self.view.observe(self._follow, ["selection"])
        return Link(store, selection)

    def _follow(self, _: Any) -> None:
        """Follow the view to the selection that `aw.link` gave it, but not to another text."""
        view = self.view
        if view is None or view.selection is self.selection:
            return
        if view.content.trace_id != self.content.trace_id:
            return
        before = self.selection
        view.selection.acquire(self._holder)
        self.selection = view.selection
        before.release(self._holder)

    def _start_apart(self) -> None:
        """Open a question about heads on their mean: the head of the strongest pattern may be the answer."""
        state = self.selection
        opening = state.opening
        if self._kind not in ("head", "layer") or opening is None or not opening.words:
            return
        if (state.layer, state.head) == opening[:2]:
            state.layer, state.head = self._ranges.layers[0], "mean"
        state.opening = opening._replace(words="", sentence="", value=None)

    def _leave(self) -> None:
        if self.view is not None:
            self.view.unobserve(self._follow, ["selection"])
        super()._leave()

    def _likely_height(self, store: TileStore) -> int:
        rows = len(self._choices or ())
        field = {"choice": 4 + 28 * rows, "order": 4 + 36 * rows, "text": 88}.get(self._kind, 0)
        inside = (view.options["height"] or view._likely_height(store) for view in self.inner)  # noqa: SLF001
        return 110 + field + sum(inside)

    def _handlers(self) -> Mapping[str, Handler]:
        return {**super()._handlers(), "answer": Handler(self._receive, for_page=tuple)}

    def _receive(self, value: Any = None, count: int = 0) -> Answer:
        """Store an answer that the reader submitted; `count` tells repeated submissions apart."""
        del count
        self.answer = value
        return {"saved": self._saved, "problem": self._problem}, []

    def _table(self) -> str:
        return csv_of([("id", "answer", "receipt"), (self._id, self.said, self.receipt)])

    @property
    def said(self) -> str:
        """The answer in words, or "": `head 0.2`."""
        return "" if self._value is None else words(self._kind, self._value, self._ranges, self._unit)

    @property
    def code(self) -> str:
        """The line of code that gives this answer; "" without one."""
        if self._value is None:
            return ""
        name = self._id if self._id.isidentifier() else "question"
        return f"{name}.answer = {code_value(self._kind, self._value)}"

    def describe(self) -> str:
        """Return the question and its answer in words."""
        points = f" ({self._points:g} point{'s' * (self._points != 1)})"
        answer = f"Answer: {self.said}." if self._value is not None else "Not answered yet."
        return f"{self._prompt}{points} {answer}"

    def __repr__(self) -> str:
        return as_text(self)

    def _still(self, theme: Theme) -> Sheet:
        del theme
        return sheet_of(self)

    def _names(self) -> tuple[str, str]:
        return self._prompt, self.describe()

    # -- the output of its cell --------------------------------------------------------------------

    def _ipython_display_(self) -> None:  # type: ignore[override] # an updated output needs a display id
        from IPython.display import display

        data, metadata = self._widget()
        # The answer is a second output: front ends draw an updated output anew, and the view must stay.
        display(data, metadata=metadata, raw=True)
        display(self._answer_output(), raw=True, display_id=self._display)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **kwargs: Any) -> Any:
        data, metadata = self._widget(include, exclude, **kwargs)
        return {**data, **self._answer_output()}, metadata

    def _widget(self, include: Any = None, exclude: Any = None, **kwargs: Any) -> tuple[Any, Any]:
        """Return the widget, with the views inside, and the question's text."""
        for view in self.inner:
            view.stand_ready()
        without = {*(exclude or ()), "image/png"}
        data, metadata = super()._repr_mimebundle_(include=include, exclude=without, **kwargs)
        if not draws_no_views():  # else the text says that nothing is drawn
            data["text/plain"] = f"{self._id}: {self._prompt}"
        return data, metadata

    def _answer_output(self) -> dict[str, Any]:
        """Return the record, and question and answer as HTML and as text for viewers without widgets."""
        return {MIME: self.record, "text/html": as_html(self), "text/plain": as_text(self)}

    def picture(self) -> bytes | None:
        """Return a static picture of the view inside, as it was when the question was first shown."""
        from importlib.util import find_spec

        if self._picture is None and self.inner and find_spec("matplotlib"):
            self._picture = self.inner[0]._png()  # noqa: SLF001
        return self._picture

    def _update_output(self) -> None:
        """Put the answer into the output of the cell that shows this question, to be saved with it."""
        if not self.was_shown or running_shell() is None:
            return
        from IPython.display import display

        display(self._answer_output(), raw=True, display_id=self._display, update=True)


def as_text(question: Question) -> str:
    """Return the question, its answer and its receipt as lines of text."""
    lines = [f"{question.id}: {question.prompt}"]
    if question.answer is None:
        lines.append("not answered yet")
    else:
        lines += [f"answer: {question.said}", question.receipt]
    return "\n".join(lines)


def as_html(question: Question) -> str:
    """Return the question, its answer and its receipt as HTML, which a converted notebook shows."""
    points = f"{question.points:g} point{'s' * (question.points != 1)}"
    answered = question.answer is not None
    answer = (
        f"Answer: <b>{safe_text(question.said)}</b>"
        f"<br><small>Receipt, to paste into a form:</small> <code>{question.receipt}</code>"
        if answered
        else "Not answered yet."
    )
    picture = question.picture()
    image = (
        f'<img alt="{safe_text(question.inner[0].describe())}" style="max-width:100%" '
        f'src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
        if picture
        else ""
    )
    return (
        '<div class="attnwidgets-question" '
        'style="border-left:4px solid #0969c7;padding:4px 12px;margin:8px 0">'
        f'<p dir="auto" style="margin:4px 0;overflow-wrap:anywhere"><b>{safe_text(question.prompt)}</b> '
        f"<small>{safe_text(question.id)} · {points}</small></p>"
        f'<p style="margin:4px 0;overflow-wrap:anywhere">{answer}</p>{image}</div>'
    )


def sheet_of(question: Question) -> Sheet:
    """Return the figure of a question: its prompt, and its answer."""
    from attnwidgets.figures.sheet import Sheet, Words

    points = f"{question.id} · {question.points:g} point{'s' * (question.points != 1)}"
    lines = [points, f"answer: {question.said}" if question.answer is not None else "not answered yet"]
    return Sheet(question.prompt, [Words(line) for line in lines], question.receipt)
