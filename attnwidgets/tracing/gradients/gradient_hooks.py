"""Taps on a pass: hooks that make leaves of a graph, or keep tensors of it, and change no number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnwidgets.tracing.block_replay import first_tensor
from attnwidgets.tracing.recording.module_calls import is_hidden

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn

    from attnwidgets.tracing.gradients.differentiable import Graph


@dataclass
class EmbeddingTap:
    """Makes what an embedding returns for a stack's token ids the leaf of that stack."""

    graph: Graph
    ids: Mapping[str, Tensor]
    replace: Mapping[str, Tensor]

    def __call__(self, _: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        """Replace an embedding's output: a forward hook."""
        if not args or not is_hidden(output) or not isinstance(args[0], Tensor):
            return output
        for stack, ids in self.ids.items():
            given = args[0]
            if stack not in self.graph.inputs and given.shape == ids.shape and torch.equal(given, ids):
                leaf = self.replace.get(stack, output).detach().clone().requires_grad_()
                self.graph.inputs[stack] = leaf
                # A copy: the model may add positions in place, which a leaf does not allow.
                return leaf.clone()
        return output


@dataclass
class BlockTaps:
    """Keeps what the blocks of a stack are given, on copies, so that nothing done in place changes it."""

    graph: Graph
    stack: str
    count: int
    replace: Tensor | None
    ends: bool

    def before(
        self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Keep a block's hidden states and what else of the graph it is given: a forward pre-hook."""
        states = self.graph.states[self.stack]
        beside: list[Tensor] = []
        seen = False

        def kept(value: Any) -> Any:
            nonlocal seen
            if is_hidden(value) and not seen:
                seen = True
                # What no embedding stands before ends here: patches, frames.
                if self.ends and not states and self.stack not in self.graph.inputs:
                    value = value if self.replace is None else self.replace
                    value = value.detach().clone().requires_grad_()
                    self.graph.inputs[self.stack] = value
                states.append(value)
                return value.clone()
            if isinstance(value, Tensor) and value.requires_grad:
                beside.append(value.clone())
                return beside[-1]
            return value

        args = tuple(kept(value) for value in args)
        order = sorted(kwargs, key=lambda name: name != "hidden_states")
        changed = {name: kept(kwargs[name]) for name in order}
        self.graph.beside[self.stack].append(tuple(beside))
        return args, {name: changed[name] for name in kwargs}

    def after(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        """Keep what the last block returns: a forward hook."""
        states = self.graph.states[self.stack]
        if len(states) == self.count:
            states.append(first_tensor(output))


@dataclass
class AttentionTaps:
    """Keeps attention weights and what heads return, as they stand in the graph."""

    graph: Graph
    owner: Mapping[str, str]
    keep: Sequence[str]
    names: Mapping[int, str]

    def weights(self, _: int, module: nn.Module, weights: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keep weights: an edit that changes nothing."""
        self._put("weights", self.graph.weights, module, weights)
        return weights, values

    def heads(self, module: nn.Module, output: Tensor) -> None:
        """Keep what the heads of one call return."""
        self._put("heads", self.graph.heads, module, output)

    def _put(self, what: str, where: dict[str, list[Tensor]], module: nn.Module, tensor: Tensor) -> None:
        stack = self.owner.get(self.names.get(id(module), ""))
        if what in self.keep and stack is not None:
            where.setdefault(stack, []).append(tensor)
