"""aw.trace_module: any torch module on numbers, for the methods that explain a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from attnwidgets.tracing.recording.borrow import borrowed
from attnwidgets.tracing.text.axes import numbered
from attnwidgets.tracing.text.units import TokenAxis
from attnwidgets.tracing.trace import Stack, Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VALUES = "values"


@dataclass(frozen=True)
class Returned:
    """What a module returned, as models return it: logits [batch, output]."""

    logits: Tensor


class ModuleTrace(Trace):
    """One pass of a torch module: no attention, no tokens but its inputs."""

    shape: tuple[int, ...] = ()
    output_names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        sizes = f"{len(self.tokens)} inputs, {len(self.output_names)} outputs"
        return f"<{type(self).__name__} of {sizes}; {self.model_id}>"

    @property
    def dtype(self) -> Literal["float32", "float64"]:
        """What is computed from this trace is kept in: float64 where the module answered in it."""
        double = self.logits is not None and self.logits.dtype == torch.float64
        return "float64" if double else "float32"

    def call(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        options: Mapping[str, Any],
        parameters: Mapping[str, Tensor],
    ) -> Returned:
        """Return what the module makes of [batch, source, number] values."""
        del options  # of transformers' models
        values = inputs[_VALUES]
        given = values.reshape(len(values), *self.shape)
        found = torch.func.functional_call(model, dict(parameters), (given,)) if parameters else model(given)
        return Returned(_outputs(found, len(values)))


def trace_module(
    module: nn.Module,
    inputs: Any,
    *,
    labels: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> ModuleTrace:
    """Run a torch module once, so that relevance and gradients explain its outputs by its inputs.

    For exercises: a ReLU layer, 1 - ReLU(1 - x), a small network. `aw.lrp`, `aw.saliency`,
    `aw.input_x_gradient` and `aw.integrated_gradients` read the result; methods of attention do not.

    Args:
        module: The module; it is given a batch of one and comes back as it was.
        inputs: One input without its batch axis: [source], or [source, number] for vectors (embeddings); a
            tensor, an array or lists. It is given in the precision of the module's parameters; where there
            are none, as it comes (lists in torch's default precision).
        labels: Names of the sources; x1, x2, ... by default.
        outputs: Names of the outputs, which targets are chosen by; 0, 1, ... by default.

    Raises:
        TypeError: If `module` is no module, or inputs are integers, which no gradient reaches.
        ValueError: If shapes and labels do not fit, or the module returns no numbers.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not {type(module).__name__}")
    values = torch.as_tensor(inputs)
    if not values.is_floating_point():
        raise TypeError(
            f"inputs are {str(values.dtype).removeprefix('torch.')}, which no gradient reaches; pass floats "
            "(embeddings instead of token ids)"
        )
    if values.dim() not in (1, 2) or not values.numel():
        raise ValueError(
            f"inputs must be one input without its batch axis, [source] or [source, number], not "
            f"{tuple(values.shape)}"
        )
    count = len(values)
    names = [f"x{index + 1}" for index in range(count)] if labels is None else list(labels)
    if len(names) != count:
        raise ValueError(f"labels names {len(names)} sources, and inputs has {count}")
    axis = TokenAxis.plain(names)
    own = next((p.dtype for p in module.parameters() if p.is_floating_point()), values.dtype)
    flat = values.detach().to(own, copy=True).reshape(1, count, -1)
    found = ModuleTrace(
        {"self": Stack((), axis, numbered(count))},
        model=module,
        model_id=type(module).__name__,
        inputs={_VALUES: flat},
    )
    found.shape = tuple(values.shape)
    with borrowed(module) as twin:
        returned = found.call(twin, found.inputs, {}, {})
    if returned.logits.shape[1:].numel() == 0:
        raise ValueError("the module returned no numbers")
    found.logits = returned.logits[0].detach().cpu()
    found.output_names = tuple(map(str, range(len(found.logits)) if outputs is None else outputs))
    return found


def _outputs(found: Any, batch: int) -> Tensor:
    if not isinstance(found, Tensor) or not found.is_floating_point():
        raise ValueError(f"the module must return a float tensor, not {type(found).__name__}")
    if found.numel() % batch:
        raise ValueError(f"the module returned {tuple(found.shape)} for a batch of {batch}")
    return found.reshape(batch, -1)
