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


def view_of(source: Any) -> View | None:
    """Return the view that a question is about.

    Raises:
        TypeError: It is neither a view nor a trace or an explanation.
    """
    if source is None or isinstance(source, View):
        return source
    if is_trace(source):
        from attnwidgets.views.explorer import Explorer

        return Explorer(source)
    view = source.view() if hasattr(source, "view") and callable(source.view) else None
    if not isinstance(view, View):
        raise TypeError(
            f"view is a {type(source).__name__}: give a view, such as aw.Explorer(trace), a trace or a map."
        )
    return view


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
    """Return the options as text; None if answers are free.

    Raises:
        TypeError: `options` is a single text.
        ValueError: There are no options or too many, or an option is empty or repeated.
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

    It is the same in every run, on every machine and with every version of the libraries: it is made of the
    model's kind, a sample of every weight, the ids of the text's tokens (their names if there are no ids),
    and the interventions under which the trace was recorded.
    """
    if view is None:
        return None
    trace = view.content.trace
    if trace is not None:
        ids = trace.input_ids
        words = _names(view) if ids is None else [int(number) for number in ids]
        pictures = [] if ids is not None else sorted(_pictures(trace))
        return subject_of(fingerprint_of(view), words, list(trace.interventions), pictures)
    names = _names(view)
    return subject_of([], names, [], []) if names else None


def _names(view: View) -> list[list[str]]:
    """Return the names of the elements of a view's explanation, by axis."""
    sources = view.sources()
    return [[str(label) for label in axis["labels"]] for axis in sources[0].axes()] if sources else []


def fingerprint_of(view: View | None) -> list[str]:
    """Return the kind of a view's model, and a hash of shapes and samples of its weights without names.

    It is empty for a view without a model.
    """
    model = None if view is None or view.content.trace is None else view.content.trace.model
    if model is None or not hasattr(model, "named_parameters"):
        return []
    from attnwidgets.tracing.recording.borrow import unwrap

    inner = unwrap(model)
    config = getattr(inner, "config", None)
    # Sorted, as libraries rename and reorder parameters between versions.
    hashes = sorted(hashlib.sha256(_sample(weight)).hexdigest() for weight in inner.parameters())
    return [
        str(getattr(config, "model_type", type(inner).__name__)),
        hashlib.sha256("".join(hashes).encode()).hexdigest(),
    ]


def _sample(weight: Any) -> bytes:
    shape = f"{tuple(weight.shape)}".encode()
    if getattr(weight, "is_meta", False) or not weight.numel():
        return shape
    flat = weight.detach().flatten()
    step = max(1, flat.numel() // _SAMPLES)
    return shape + flat[::step][:_SAMPLES].cpu().float().numpy().astype("<f4").tobytes()


def _pictures(trace: Any) -> Iterator[str]:
    """Yield a hash of each floating-point input; the names of patches do not tell pictures apart."""
    for name, value in trace.inputs.items():
        if is_tensor(value) and value.is_floating_point():
            numbers = (value.detach().cpu().double() * _FINE).round().long().numpy().astype("<i8")
            yield f"{name} {tuple(value.shape)} {hashlib.sha256(numbers.tobytes()).hexdigest()}"


def told_by(feedback: Feedback | None, value: Any) -> tuple[str, bool | None]:
    """Return the feedback on an answer, and whether the answer counts as right; None without a verdict.

    Args:
        feedback: A function of the value, or a dict by value; the response is True, False, words, a pair of
            both, or None for no feedback.
        value: The answer; None without an answer.
    """
    if feedback is None or value is None:
        return "", None
    if callable(feedback):
        try:
            response = feedback(value)
        except Exception as error:  # noqa: BLE001 - a teacher's function must not lose the answer
            return f"the feedback could not be read ({type(error).__name__}: {error})"[:_MOST_WORDS], None
    else:
        written = canonical(value)
        response = next((item for key, item in feedback.items() if _canonical(key) == written), None)
    return _read(response)


def _canonical(key: Any) -> str:
    try:
        return canonical(key)
    except AnswerError:
        return ""


def _read(response: Any) -> tuple[str, bool | None]:
    if isinstance(response, bool):
        return "", response
    if isinstance(response, tuple) and len(response) == 2 and isinstance(response[0], bool):  # noqa: PLR2004 - both
        return str(response[1])[:_MOST_WORDS], response[0]
    return ("", None) if response is None else (str(response)[:_MOST_WORDS], None)
