"""What a model's forward takes, and whether the model generates text."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch

from attnwidgets.tracing.recording.returned import ELSEWHERE
from attnwidgets.tracing.recording.wrappers import unpeft
from attnwidgets.tracing.unsupported import UnsupportedModelError


def forward_parameters(model: Any) -> frozenset[str]:
    """Return the parameter names of a model's forward (of the base model inside a PEFT wrapper).

    Raises:
        UnsupportedModelError: If its forward has no signature, as in TorchScript.
    """
    inner = unpeft(model)
    kind: Any = type(inner)
    try:
        # In TorchScript, `forward` is not a Python function.
        if "forward" not in vars(inner) and inspect.isfunction(inspect.getattr_static(kind, "forward", None)):
            return _parameters_of_class(kind)
        return frozenset(inspect.signature(inner.forward).parameters)
    except ValueError as error:
        raise UnsupportedModelError(
            f"The attention of {type(model).__name__} cannot be traced: its forward has no signature, as in "
            f"TorchScript; pass the model it was made from. {ELSEWHERE}"
        ) from error


@functools.cache
def _parameters_of_class(kind: Any) -> frozenset[str]:
    # A trace calls this nine times, and inspecting a signature takes as long as a small layer.
    return frozenset([*inspect.signature(kind.forward).parameters][1:])


def only_last_logits(model: Any) -> dict[str, Any]:
    """Return the argument by which a forward computes logits for the last token alone; {} if it has none.

    It is an index: given a count, Gemma 4 drops the other tokens from its last blocks.
    """
    return {"logits_to_keep": torch.tensor([-1])} if "logits_to_keep" in forward_parameters(model) else {}


def can_generate(model: Any) -> bool:
    """Return whether a model generates text."""
    ask = getattr(unpeft(model), "can_generate", None)
    return bool(ask()) if callable(ask) else False
