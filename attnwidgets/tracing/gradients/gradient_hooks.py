"""Hooks of a differentiable pass, which change no number, and checks that a model can be differentiated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnwidgets.tracing.anatomy.attention_modules import Turns
from attnwidgets.tracing.block_replay import first_tensor
from attnwidgets.tracing.model_state import named_modules
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.module_calls import HIDDEN_DIMS, is_hidden
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import nn

    from attnwidgets.tracing.anatomy.attention_modules import AttentionModule
    from attnwidgets.tracing.gradients.differentiable import Graph
    from attnwidgets.tracing.trace import Trace

# Marks of quantisation libraries in the names of their modules.
_QUANTISED = ("quantized", "bitsandbytes", "quantlinear", "qlinear", "wqlinear", "hqq", "eetq", "aqlm")


def leaf_at(replacement: Tensor | None, read: Tensor) -> Tensor:
    """Return the tensor at which gradients end: the replacement, or else the tensor that the model read.

    A replacement that is part of a graph stays in it, for derivatives of gradients by tensors before it.
    """
    if replacement is not None and replacement.requires_grad:
        return replacement
    return (read if replacement is None else replacement).detach().clone().requires_grad_()


@dataclass
class EmbeddingHook:
    """Makes the embedding of a stack's token ids the leaf of that stack."""

    graph: Graph
    ids: Mapping[str, Tensor]
    replace: Mapping[str, Tensor]

    def __call__(self, _: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        """Replace an embedding's output: a forward hook."""
        if not args or not is_hidden(output) or not isinstance(args[0], Tensor):
            return output
        for stack, ids in self.ids.items():
            if stack not in self.graph.inputs and args[0].shape == ids.shape and torch.equal(args[0], ids):
                leaf = self.graph.inputs[stack] = leaf_at(self.replace.get(stack), output)
                # A copy, because the model may add positions in place, which a leaf does not allow.
                return leaf.clone()
        return output


@dataclass
class BlockHooks:
    """Stores the inputs of a stack's blocks and passes copies on, so that in-place changes do no harm."""

    graph: Graph
    stack: str
    count: int
    replace: Tensor | None
    ends: bool

    def before(
        self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Store a block's hidden states and its other inputs from the graph: a forward pre-hook."""
        states = self.graph.states[self.stack]
        other_inputs: list[Tensor] = []
        entering: Any = args[0] if args else kwargs.get("hidden_states")
        hidden_seen = isinstance(entering, Tensor) and entering.dim() > HIDDEN_DIMS
        if hidden_seen and self.ends and self.stack not in self.graph.inputs:
            raise UnsupportedModelError(
                f"the states that {type(block).__name__} reads are {list(entering.shape)}, and not [batch, "
                "token, width], at which gradients can end"
            )

        def store(value: Any) -> Any:
            nonlocal hidden_seen
            if is_hidden(value) and not hidden_seen:
                hidden_seen = True
                # Inputs without an embedding, such as patches and frames, get their leaf here.
                if self.ends and not states and self.stack not in self.graph.inputs:
                    value = self.graph.inputs[self.stack] = leaf_at(self.replace, value)
                elif not (self.ends or states or value.requires_grad):
                    # A decoder's tokens, where gradients end at the sound or picture that its encoder reads.
                    value = self.graph.inputs[self.stack] = leaf_at(None, value)
                # A view, for this block alone: others may read the same tensor (Zamba's read its embeddings).
                states.append(value.view_as(value))
                return states[-1].clone()
            if isinstance(value, Tensor) and value.requires_grad:
                other_inputs.append(value.clone())
                return other_inputs[-1]
            return value

        args = tuple(store(value) for value in args)
        order = sorted(kwargs, key=lambda name: name != "hidden_states")
        replaced = {name: store(kwargs[name]) for name in order}
        self.graph.other_inputs[self.stack].append(tuple(other_inputs))
        return args, {name: replaced[name] for name in kwargs}

    def after(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        """Store the output of the last block: a forward hook."""
        states = self.graph.states[self.stack]
        if len(states) == self.count:
            states.append(first_tensor(output))


class AttentionHooks:
    """Stores attention weights and outputs of heads as tensors of the graph, by stack in the order of layers.

    Args:
        graph: The graph.
        table: The attention modules of the trace, by stack and layer.
        keep: "weights", "heads", or both.
    """

    def __init__(
        self, graph: Graph, table: Mapping[str, Mapping[int, AttentionModule]], keep: Sequence[str]
    ) -> None:
        self._graph = graph
        self._turns = {kind: Turns(table) for kind in keep}
        self._stored: dict[tuple[str, str, int], Tensor] = {}

    def weights(self, _: int, module: nn.Module, weights: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store the weights, in the form of an edit that changes no number."""
        # A module that mixes its values in two parts (DiffLlama) does so by the same map.
        return self._store("weights", self._graph.weights, module, weights), values

    def heads(self, module: nn.Module, output: Tensor) -> None:
        """Store the outputs of the heads of a call."""
        if self._store("heads", self._graph.heads, module, output) is not output:
            raise UnsupportedModelError(
                f"outputs of heads are not available: {type(module).__name__} mixes two parts of its values, "
                "one after the other"
            )

    def _store(self, kind: str, where: dict[str, list[Tensor]], module: nn.Module, tensor: Tensor) -> Tensor:
        """Store a tensor, the first of its layer, and return the stored tensor of the layer."""
        turn = self._turns[kind].of(module) if kind in self._turns else None
        if turn is None:
            return tensor
        stack, layer = turn
        if (kind, stack, layer) not in self._stored:
            self._stored[kind, stack, layer] = tensor
            where.setdefault(stack, []).append(tensor)
        return self._stored[kind, stack, layer]


def differentiable_model(trace: Trace, purpose: str) -> nn.Module:
    """Return a trace's model without wrappers, after checking that it is differentiable.

    Raises:
        UnsupportedModelError: If the trace has no model.
        ValueError: If it cannot be differentiated; see `require_gradients`.
    """
    model = traced_model(trace, purpose)
    require_gradients(model, purpose)
    return model


def traced_model(trace: Trace, purpose: str) -> nn.Module:
    """Return a trace's model without wrappers, or raise an UnsupportedModelError if it has none."""
    if getattr(trace, "model", None) is None or not hasattr(trace, "stack_table"):
        raise UnsupportedModelError(
            f"{purpose} runs the model again, but this trace has no model; "
            "make it with aw.trace(model, tokenizer, text)"
        )
    return unwrap(trace.model)


def require_gradients(model: nn.Module, purpose: str) -> None:
    """Raise a ValueError under inference mode, or if the model has quantised weights."""
    if torch.is_inference_mode_enabled():
        raise ValueError(
            f"{purpose} needs gradients, which torch.inference_mode() disables; call it outside that block "
            "(torch.no_grad() is fine)"
        )
    for name, parameter in _parameters_of(model):
        if parameter.is_inference():
            raise ValueError(
                f"{purpose} needs gradients, and {name} was created under torch.inference_mode(); load the "
                "model outside that block"
            )
    quantised = quantised_weights(model)
    if quantised:
        raise ValueError(
            f"{purpose} cannot compute gradients through quantised weights such as {quantised}; load the "
            "model without quantisation"
        )


def _parameters_of(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the names and parameters of a model; those that modules share, for each of them."""
    for path, module in named_modules(model).items():
        for name, parameter in module._parameters.items():  # noqa: SLF001 - `named_parameters()` takes longer
            if parameter is not None:
                yield f"{path}.{name}" if path else name, parameter


def quantised_weights(module: nn.Module) -> str:
    """Return the first quantised weights in a module, in words; "" if there are none."""
    for name, parameter in _parameters_of(module):
        is_quantised = parameter.is_quantized or not (parameter.is_floating_point() or parameter.is_complex())
        if is_quantised or hasattr(parameter, "quant_state") or "torchao" in type(parameter.data).__module__:
            return f"{name} ({str(parameter.dtype).removeprefix('torch.')})"
    for name, part in named_modules(module).items():
        kind = f"{type(part).__module__}.{type(part).__name__}".lower()
        if any(mark in kind for mark in _QUANTISED):
            return f"those of {name} ({type(part).__name__})"
    return ""
