"""Queries and keys of a kernel as linear maps of the input of its block, everything else held fixed.

Under the rules of relevance activations are factors of their input and norms divide by recorded deviations,
so that the gradient of a query or a key is its linear map, which needs no description: projections, short
convolutions and norms of queries and keys in whatever order a family has them. The map is proved on a run
without biases, of which it has to return everything.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets._gradients import enable_grad
from attnwidgets._tensors import widened
from attnwidgets.relevance.backward import single_activations
from attnwidgets.relevance.kernels import whole_kernels
from attnwidgets.relevance.rules import Rules
from attnwidgets.tracing.block_replay import captured
from attnwidgets.tracing.gradients.gradient_hooks import differentiable_model
from attnwidgets.tracing.mixers.calls import (
    CONVOLUTION,
    SPLIT_VALUES,
    handling,
    lightning_attention,
    read_call,
)
from attnwidgets.tracing.recording.borrow import borrowed
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from attnwidgets.relevance.settings import Bias
    from attnwidgets.tracing.block_replay import RecordedBlocks
    from attnwidgets.tracing.mixers.kernels import Kernel
    from attnwidgets.tracing.trace import Trace

_MISSED = 1e-4  # of a vector, that its map may miss


@dataclass(frozen=True)
class SideMap:
    """A query or a key as a linear map of states.

    Args:
        vector: The query or key [dim], float64.
        slopes: The map [dim, token, width], float64: zero but at the tokens that a convolution joins.
    """

    vector: Tensor
    slopes: Tensor


def side_maps(
    trace: Trace, layer: int, stack: str, number: int, group: int, at: tuple[int, int], method: str
) -> tuple[SideMap, SideMap]:
    """Return a query and a key of a kernel as maps of the states that its block reads.

    Args:
        trace: The trace.
        layer: Number of the block.
        stack: The stack.
        number: Number of the kernel among those that the block calls.
        group: Number of the head in the kernel.
        at: The positions of the query and of the key.
        method: The method's name, for messages.

    Raises:
        UnsupportedModelError: If the block cannot be called again, or its kernel's queries and keys are no
            linear maps of its input.
        ValueError: If gradients are unavailable.
    """
    differentiable_model(trace, method)
    recorded = captured(trace, stack, method, mixing=True)
    whole = _maps(recorded, layer, number, group, at, "absorb", method)
    states = widened(recorded.layers[layer].hidden)[0].detach().cpu().double()
    for side, alone in zip(
        ("query", "key"), _maps(recorded, layer, number, group, at, "drop", method), strict=True
    ):
        mapped = torch.einsum("dtw,tw->d", alone.slopes, states)
        if not (mapped - alone.vector).norm() <= _MISSED * alone.vector.norm().clamp(min=1e-30):
            raise UnsupportedModelError(
                f"{method} is not available: a {side} of {recorded.layers[layer].name} is not a "
                "linear map of the states that the block reads, even with norms and activations held fixed."
            )
    return whole


def _maps(
    recorded: RecordedBlocks,
    layer: int,
    number: int,
    group: int,
    at: tuple[int, int],
    bias: Bias,
    method: str,
) -> tuple[SideMap, SideMap]:
    block = recorded.layers[layer]
    rules = Rules("frozen", bias, gate="fixed")
    kernels: list[Kernel] = []

    def see(name: str, go_on: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        output = go_on(**arguments)
        if name != CONVOLUTION:
            kernels.append(read_call(name, arguments, output).kernel)
        return output

    with ExitStack() as exits:
        module = exits.enter_context(borrowed(block.module))
        run = exits.enter_context(recorded.ready(layer))
        exits.enter_context(single_activations(module))
        exits.enter_context(whole_kernels(module, rules.settings))
        exits.enter_context(handling(see))
        for part in module.modules():
            if type(part).__name__.endswith(SPLIT_VALUES):
                projection: Any = part.qkv_proj
                exits.callback(projection.register_forward_hook(_splitting(part, kernels)).remove)
        exits.enter_context(torch.inference_mode(mode=False))
        exits.enter_context(enable_grad())
        hidden = widened(block.hidden).detach().clone().requires_grad_()
        try:
            with rules:
                run(1, None, hidden)
            sides = kernels[number].sides() if number < len(kernels) else None
            if sides is None:
                raise UnsupportedModelError(
                    f"{method} is not available: {block.name} has no queries and keys."
                )
            vectors = [side[position, group] for side, position in zip(sides, at, strict=True)]
            slopes = [
                torch.stack([torch.autograd.grad(entry, hidden, retain_graph=True)[0][0] for entry in vector])
                for vector in vectors
            ]
        except RuntimeError as error:
            why = str(error).partition("; with force=True")[0]
            raise UnsupportedModelError(
                f"{method} is not available: queries and keys of {block.name} cannot be followed to what it "
                f"reads: {why}"
            ) from error
    first, second = (
        SideMap(vector.detach().cpu().double(), slope.detach().cpu().double())
        for vector, slope in zip(vectors, slopes, strict=True)
    )
    return first, second


def _splitting(module: nn.Module, kernels: list[Kernel]) -> Callable[..., None]:
    """Return a hook on the projection of queries, keys and values that a module splits by its own code."""

    def see(_: nn.Module, __: Any, projected: Tensor) -> None:
        kernels.append(lightning_attention(module, projected, torch.ones_like(projected[..., :1])).kernel)

    return see
