"""What a question is about, as a hash: an answer about another model or another text is refused."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from attnwidgets._tensors import is_tensor
from attnwidgets.course.records import subject_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.views.base.view import View

_SAMPLES = 64
"""Numbers of each weight that are read: enough to tell two trainings apart, cheap in a large model."""
_FINE = 1000
"""Steps per unit in which the numbers of a picture count, so that its last bits do not."""


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
