"""The arguments of a question, checked: view, prompt, points, options, feedback; its subject as a hash."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from attnwidgets._tensors import is_tensor
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.records import subject_of
from attnwidgets.course.values import canonical
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.views.base.options import checked_names
from attnwidgets.views.base.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Feedback = Callable[[Any], Any] | Mapping[Any, Any]

_MOST_CHARACTERS = 4000
_MOST_OPTIONS = 100
_MOST_POINTS = 10**6

_SAMPLES = 64
"""Numbers of each weight that are read: enough to tell two trainings apart, cheap in a large model."""

_FINE = 1000
"""Steps per unit in which the numbers of a picture count, so that its last bits do not."""

_MOST_WORDS = 500


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


def subject_of_view(view: View | None) -> str | None:
    """Return the hash of the model and the text that a view shows; None if it shows neither.

    It is the same in every run, on every machine and with every version of the libraries: of the model count
    its kind and a sample of every weight, of the text the ids of its tokens, or their names where there are
    none, and the interventions under which it was recorded.
    """
    if view is None:
        return None
    trace = view.content.trace
    if trace is not None:
        ids = trace.input_ids
        words = _names(view) if ids is None else [int(number) for number in ids]
        given = [] if ids is not None else sorted(_pictures(trace))
        return subject_of(_model(trace.model), words, list(trace.interventions), given)
    names = _names(view)
    return subject_of([], names, [], []) if names else None


def _names(view: View) -> list[list[str]]:
    """Return the names of the elements of what a view shows, by axis."""
    sources = view.sources()
    return [[str(label) for label in axis["labels"]] for axis in sources[0].axes()] if sources else []


def _model(model: Any) -> list[Any]:
    """Return a model's kind, and a hash of shapes and samples of its weights, whatever these are called."""
    if model is None or not hasattr(model, "named_parameters"):
        return []
    from attnwidgets.tracing.recording.borrow import unwrap

    inner = unwrap(model)
    config = getattr(inner, "config", None)
    held = sorted(hashlib.sha256(_sample(weight)).hexdigest() for weight in inner.parameters())
    return [
        str(getattr(config, "model_type", type(inner).__name__)),
        hashlib.sha256("".join(held).encode()).hexdigest(),
    ]


def _sample(weight: Any) -> bytes:
    shape = f"{tuple(weight.shape)}".encode()
    if getattr(weight, "is_meta", False) or not weight.numel():
        return shape
    flat = weight.detach().flatten()
    step = max(1, flat.numel() // _SAMPLES)
    return shape + flat[::step][:_SAMPLES].cpu().float().numpy().astype("<f4").tobytes()


def _pictures(trace: Any) -> Iterator[str]:
    """Yield a hash of every input of numbers: of an image; two of them have patches of the same names."""
    for name, value in trace.inputs.items():
        if is_tensor(value) and value.is_floating_point():
            numbers = (value.detach().cpu().double() * _FINE).round().long().numpy().astype("<i8")
            yield f"{name} {tuple(value.shape)} {hashlib.sha256(numbers.tobytes()).hexdigest()}"


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
