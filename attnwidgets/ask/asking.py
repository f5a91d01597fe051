"""The questions: one function for each kind of answer."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, TypedDict

from attnwidgets._errors import refuse_unknown
from attnwidgets.ask.question import Question
from attnwidgets.views.base.options import write_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from typing_extensions import Unpack


class QuestionOptions(TypedDict, total=False):
    """Options of every question.

    Args:
        prompt: The question, as text.
        id: Its name among the answers, unique in the notebook: letters, digits, "_", "-" and ".".
        view: A view to look at; or a trace or an explanation.
        points: Points that a right answer gives, as shown.
        title: Text next to the points, such as "question 1 of 6"; by default the id.
        feedback: Response to an answer as it is submitted: a function of its value, or a dict by value, which
            give True (right), False, words, or (True or False, words). It needs the kernel and is not in
            pages. Students can read it in the notebook: leave it out of an assignment.
        show_view: Whether the view is shown below the question. False: it is shown elsewhere in the notebook.
    """

    points: float
    title: str
    feedback: Callable[[Any], Any] | Mapping[Any, Any] | None
    show_view: bool


_DEFAULTS = {"points": 1, "title": "", "feedback": None, "show_view": True}


def _ask(kind: str, prompt: str, id: str, common: Mapping[str, Any], **of_kind: Any) -> Question:
    unknown = common.keys() - QuestionOptions.__annotations__.keys()
    refuse_unknown(f"aw.ask.{kind}", unknown, signature(globals()[kind]).parameters)
    return Question(kind, prompt, id, **common, **of_kind)


def head(prompt: str, *, view: Any, id: str, **given: Unpack[QuestionOptions]) -> Question:
    """Ask for an attention head: the reader chooses one in the view, or types `0.2`.

    Heads chosen together (Shift + click in the grid) are an answer, too. The answer counts layers and heads
    from 0, whatever the view shows. If the view opens on the head with the strongest pattern, the question
    moves it to the mean of all heads, so that it does not give the answer.

    Args:
        view: The view in which it is answered; or a trace (an Explorer of it is shown) or an explanation.

    Returns:
        The question, to be shown by the last line of a cell; its `answer` is `[layer, head]`.

    Raises:
        TypeError: `view` is not a view, trace or explanation.
        ValueError: The prompt, the id or the points are not valid, or another cell has this id.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> q1 = aw.ask.head("Which head reads the token before?", view=aw.Explorer(trace), id="q1", points=3)
        >>> q1.answer = (0, 2)
        >>> q1.said
        'head 0.2'
    """
    return _ask("head", prompt, id, given, view=view)


def layer(prompt: str, *, view: Any, id: str, **given: Unpack[QuestionOptions]) -> Question:
    """Ask for a layer: the reader moves the view to it, or types its number.

    Args:
        view: The view in which it is answered; or a trace (an Explorer of it is shown) or an explanation.

    Returns:
        The question; its `answer` is the layer's number, from 0.

    Raises:
        TypeError, ValueError: See `aw.ask.head`.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> q2 = aw.ask.layer("In which layer does the last token read itself most?", view=trace, id="q2")
        >>> q2.answer = 5
    """
    return _ask("layer", prompt, id, given, view=view)


def tokens(prompt: str, *, view: Any, id: str, **given: Unpack[QuestionOptions]) -> Question:
    """Ask for tokens: the reader clicks them, more than one with Shift, or types their positions.

    A cell of a map counts as its column, the token that is read; a word counts as all of its tokens.

    Args:
        view: The view in which it is answered; or a trace (an Explorer of it is shown) or an explanation.

    Returns:
        The question; its `answer` is a list of positions, from 0, in the order of the text.

    Raises:
        TypeError, ValueError: See `aw.ask.head`.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> q3 = aw.ask.tokens("Which tokens name an animal?", view=trace, id="q3")
        >>> q3.answer = [2]
        >>> q3.said
        '“cat”'
    """
    return _ask("tokens", prompt, id, given, view=view)


def span(prompt: str, *, view: Any, id: str, **given: Unpack[QuestionOptions]) -> Question:
    """Ask for a stretch of the text: the reader drags over it, or types its first and last position.

    Args:
        view: The view in which it is answered; or a trace (an Explorer of it is shown) or an explanation.

    Returns:
        The question; its `answer` is `[start, stop]` in tokens, from 0, without `stop`.

    Raises:
        TypeError, ValueError: See `aw.ask.head`.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> q4 = aw.ask.span("Where does it sit?", view=trace, id="q4")
        >>> q4.answer = (4, 7)
        >>> q4.said
        '“on” “the” “mat”'
    """
    return _ask("span", prompt, id, given, view=view)


def cell(prompt: str, *, view: Any, id: str, **given: Unpack[QuestionOptions]) -> Question:
    """Ask for a cell of a map: the reader clicks it, or types its row and column.

    Args:
        view: The view in which it is answered; or a trace (an Explorer of it is shown) or an explanation.

    Returns:
        The question; its `answer` is `[query, key]` in tokens, from 0.

    Raises:
        TypeError, ValueError: See `aw.ask.head`.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> q5 = aw.ask.cell("Where does the verb read its subject?", view=trace, id="q5")
        >>> q5.answer = (3, 2)
        >>> q5.said
        '“sat” → “cat”'
    """
    return _ask("cell", prompt, id, given, view=view)


def order(
    prompt: str,
    *,
    id: str,
    options: Sequence[str] | None = None,
    view: Any = None,
    **given: Unpack[QuestionOptions],
) -> Question:
    """Ask for an order: the reader moves the options by dragging or by keys, the first at the top.

    Args:
        options: The names to be put into an order. None: the reader makes a list, by typing or, where the
            view has heads, by selecting heads in it.
        view: A view to look at, or to take heads from; or a trace or an explanation.

    Returns:
        The question; its `answer` is a list of names. In code, names that tie are a list in it.

    Raises:
        TypeError, ValueError: See `aw.ask.head`; or the options are a single text, repeated or more than 100.

    Example:
        >>> maps = ["all", "different", "same"]
        >>> q6 = aw.ask.order("Order them by attention to equal tokens.", id="q6", options=maps)
        >>> q6.answer = ["same", "all", "different"]
        >>> q6.said
        'same > all > different'
    """
    return _ask("order", prompt, id, given, options=options, view=view)


def number(
    prompt: str,
    *,
    id: str,
    unit: str = "",
    least: float | None = None,
    view: Any = None,
    **given: Unpack[QuestionOptions],
) -> Question:
    """Ask for a number, which the reader types; it is rounded to six digits.

    Args:
        unit: Its unit, shown next to the number: "%", "nats".
        least: The least number that can be an answer, such as 0 for a count; None: any.

    Returns:
        The question; its `answer` is a number.

    Raises:
        TypeError, ValueError: See `aw.ask.head`.

    Example:
        >>> q7 = aw.ask.number("What is the characterization of 0.8 and 0.1?", id="q7")
        >>> q7.answer = 0.8470588
        >>> q7.answer
        0.847059
    """
    return _ask("number", prompt, id, given, unit=unit, least=least, view=view)


def choice(
    prompt: str,
    *,
    id: str,
    options: Sequence[str],
    multiple: bool = False,
    view: Any = None,
    **given: Unpack[QuestionOptions],
) -> Question:
    """Ask for one of several options, or for several of them.

    Args:
        options: The options, at most 100.
        multiple: Whether several may be chosen.

    Returns:
        The question; its `answer` is an option, or with `multiple` a sorted list of them.

    Raises:
        TypeError, ValueError: See `aw.ask.head`; or the options are missing, a single text, or repeated.

    Example:
        >>> heads = ["0.0", "0.1", "1.0", "1.1"]
        >>> q8 = aw.ask.choice("Which heads can be removed?", id="q8", options=heads, multiple=True)
        >>> q8.answer = ["0.1", "1.1"]
    """
    return _ask("choice", prompt, id, given, options=options, multiple=multiple, view=view)


def text(prompt: str, *, id: str, view: Any = None, **given: Unpack[QuestionOptions]) -> Question:
    """Ask for words, which a person grades by a rubric.

    Returns:
        The question; its `answer` is a text of at most 20,000 characters.

    Raises:
        TypeError, ValueError: See `aw.ask.head`.

    Example:
        >>> q9 = aw.ask.text("What does head 1.1 rest on, and why?", id="q9", points=4)
        >>> q9.answer = "On <s>: a sink."
        >>> q9.check()
        'answered, well-formed'
    """
    return _ask("text", prompt, id, given, view=view)


for _ask_for in (head, layer, tokens, span, cell, order, number, choice, text):
    write_out(_ask_for, QuestionOptions, [QuestionOptions], defaults=_DEFAULTS)
