"""Errors of a pass, with the inputs on which the model ran."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.anatomy.forward import forward_parameters
from attnwidgets.tracing.free_memory import out_of_memory
from attnwidgets.tracing.recording.following import Following

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PICTURES = 4  # dimensions of a batch of pictures


class FailedPassError(ValueError):
    """A model raised an error when it was run; the message says on which inputs."""


@contextmanager
def told_of_pass(model: Any, inputs: Mapping[str, Any]) -> Iterator[None]:
    """Raise a FailedPassError with the shapes of a pass's inputs where the model fails at them.

    Errors of this package or a hook, of other classes than Python's, and of memory are not replaced.
    """
    try:
        yield
    except Exception as error:
        if not _is_the_models(error) or out_of_memory(error):
            raise
        name, takes, pixels = type(model).__name__, forward_parameters(model), inputs.get("pixel_values")
        message = str(error).rstrip(".")
        if isinstance(pixels, torch.Tensor) and pixels.dim() == _PICTURES and "input_ids" not in takes:
            channels, high, wide = pixels.shape[1:]
            raise FailedPassError(
                f"{name} cannot read this picture of {wide} x {high} pixels and {channels} channels: "
                f"{message}. Pass the processor that was saved with the model"
            ) from error
        shapes = [f"{key} {list(value.shape)}" for key, value in inputs.items() if hasattr(value, "shape")]
        raise FailedPassError(
            f"{name} raised {type(error).__name__} when it was run on {', '.join(shapes)}: {message}"
        ) from error


def _is_the_models(error: BaseException) -> bool:
    """Return whether an error of Python's was raised in the code of transformers or torch."""
    step, raised_in = error.__traceback__, ""
    while step is not None:
        # The mode that follows a pass only calls the torch function.
        if step.tb_frame.f_code is not Following.__torch_function__.__code__:
            raised_in = step.tb_frame.f_globals.get("__name__", "")
        step = step.tb_next
    return type(error).__module__ == "builtins" and raised_in.startswith(("transformers", "torch"))
