"""aw.trace_module: a trace of any torch module on numbers, for methods that explain outputs by inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from attnwidgets.tracing.anatomy.answer import Answer
from attnwidgets.tracing.layers import Stack
from attnwidgets.tracing.model_state import state_of
from attnwidgets.tracing.recording.borrow import borrowed
from attnwidgets.tracing.text.axes import numbered
from attnwidgets.tracing.text.units import TokenAxis
from attnwidgets.tracing.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VALUES = "values"


@dataclass(frozen=True)
class Returned:
    """A module's output in the form of a model's: logits [batch, output]."""

    logits: Tensor


class ModuleTrace(Trace):
    """One pass of a torch module: its inputs are the tokens, without attention."""

    shape: tuple[int, ...] = ()
    output_names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        sizes = f"{len(self.tokens)} inputs, {len(self.output_names)} outputs"
        return f"<{type(self).__name__} of {sizes}; {self.model_id}>"

    @property
    def dtype(self) -> Literal["float32", "float64"]:
        """Precision of everything computed from this trace: float64 if the module's output is in it."""
        double = self.logits is not None and self.logits.dtype == torch.float64
        return "float64" if double else "float32"

    def call(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        options: Mapping[str, Any],
        parameters: Mapping[str, Tensor],
    ) -> Returned:
        """Return the module's output for values [batch, source, number]."""
        del options  # of transformers' models
        values = inputs[_VALUES]
        batch = values.reshape(len(values), *self.shape)
        output = torch.func.functional_call(model, dict(parameters), (batch,)) if parameters else model(batch)
        return Returned(_outputs(output, len(values)))


def trace_module(
    module: nn.Module,
    inputs: Any,
    *,
    labels: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> ModuleTrace:
    """Run a torch module once, so that relevance and gradients explain its outputs by its inputs.

    For exercises: a ReLU layer, 1 - ReLU(1 - x), a small network. `aw.lrp`, `aw.saliency`,
    `aw.input_x_gradient`, `aw.integrated_gradients` and `aw.deeplift` accept the result; methods of attention
    do not.

    Args:
        module: The module; it runs on a batch of 1 and is left as it was.
        inputs: One input without its batch axis: [source], or [source, number] for vectors (embeddings); a
            tensor, an array or lists. It is converted to the precision of the module's parameters; without
            parameters its precision stays (lists have torch's default precision).
        labels: Names of the sources; x1, x2, ... by default.
        outputs: Names of the outputs, for choosing targets; 0, 1, ... by default.

    Raises:
        TypeError: If `module` is not a torch module, or inputs are integers, which have no gradient.
        ValueError: If shapes and labels do not fit, or the module returns no numbers.

    Example:
        >>> import torch
        >>> trace = aw.trace_module(torch.nn.ReLU(), [3.0, -1.0], outputs=["a", "b"])
        >>> aw.input_x_gradient(trace, target="a").values.tolist()
        [3.0, 0.0]
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not {type(module).__name__}")
    values = torch.as_tensor(inputs)
    if not values.is_floating_point():
        raise TypeError(
            f"inputs are {str(values.dtype).removeprefix('torch.')}, which have no gradient; pass floats "
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
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), values.dtype)
    flat = values.detach().to(dtype, copy=True).reshape(1, count, -1)
    trace = ModuleTrace(
        {"self": Stack((), axis, numbered(count))},
        model=module,
        model_id=type(module).__name__,
        inputs={_VALUES: flat},
        state=state_of(module),
    )
    trace.shape = tuple(values.shape)
    with borrowed(module) as twin:
        returned = trace.call(twin, trace.inputs, {}, {})
    if returned.logits.shape[1:].numel() == 0:
        raise ValueError("the module returned no numbers")
    trace.logits = returned.logits[0].detach().cpu()
    trace.output_names = tuple(map(str, range(len(trace.logits)) if outputs is None else outputs))
    trace.answer = Answer(names=trace.output_names, reading="softmax" if len(trace.logits) > 1 else "none")
    return trace


def _outputs(output: Any, batch: int) -> Tensor:
    if not isinstance(output, Tensor) or not output.is_floating_point():
        raise ValueError(f"the module must return a float tensor, not {type(output).__name__}")
    if output.numel() % batch:
        raise ValueError(f"the module returned {tuple(output.shape)} for a batch of {batch}")
    return output.reshape(batch, -1)
