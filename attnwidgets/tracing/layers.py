"""The layers of a trace: attention weights that were recorded or given, with the axes of their maps.

A `RecordedLayer` computes its weights again from queries and keys, only the rows that are requested. A
`FollowedLayer` and a `GivenLayer` hold weights. A `Stack` has the layers of a stack with its axes and blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from attnwidgets._gradients import no_grad
from attnwidgets._tensors import as_array, is_tensor, kept_dtype
from attnwidgets.tracing.causal_mask import CausalMask, whole
from attnwidgets.tracing.row_selection import blocks, numbers, positions, to_compute

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.tracing.anatomy.blocks import Block
    from attnwidgets.tracing.mixers.mix import MixedBlock
    from attnwidgets.tracing.recording.calls import Call, FollowedCall
    from attnwidgets.tracing.row_selection import Chosen
    from attnwidgets.tracing.text.units import TokenAxis
    from attnwidgets.tracing.trace import Trace

MAPS = 4
"""Dimensions of attention weights: [batch, head, query, key]."""

HIDDEN = -1e30  # far below any score: its softmax weight is exactly 0


class Layer(Protocol):
    """A layer of a stack: the source of its weights."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the weights: float64 if they were computed in it, else float32."""

    def weights(self, heads: Chosen = None, queries: Chosen = None) -> NDArray[np.floating]:
        """Return [head, query, key], of the selected heads and queries."""


class SoftmaxLayer:
    """A layer with queries and keys, from which its weights follow by a softmax."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        raise NotImplementedError

    def query_key(self) -> tuple[Any, Any]:
        """Return queries [head, query, dim] and keys [kv head, key, dim], after any rotary embedding."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return mask, scaling, softcap, position bias and sink."""
        raise NotImplementedError

    def is_softmax(self) -> bool:
        """Return whether its weights are the softmax's, with no change after it."""
        return True

    def hides_later_keys(self) -> bool:
        """Return True if the mask alone proves that no query reads a later key; otherwise False."""
        return False

    @property
    def has_sink(self) -> bool:
        """Whether a row may give a part of its attention to no key."""
        return self.settings().get("sink") is not None


@dataclass(frozen=True)
class ModelLayer:
    """A layer of a recorded pass, which a model can run again and interventions can change.

    Args:
        call: The attention call of the whole batch.
        sample: Index in the batch.
        queries: Number of query positions before the padding.
        keys: Number of key positions before the padding.
    """

    call: Any
    sample: int
    queries: int
    keys: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        return (self.call.shape[1], self.queries, self.keys)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the weights: float64 if they were computed in it, else float32."""
        return kept_dtype(self.call.dtype)

    def fingerprint(self) -> Tensor:
        """Return numbers by which passes are told apart."""
        raise NotImplementedError


@dataclass(frozen=True)
class FollowedLayer(ModelLayer):
    """A layer whose weights were recorded where its module multiplied them with the values.

    It has no queries and keys: the module may compute its scores in any way.
    """

    call: FollowedCall

    def fingerprint(self) -> Tensor:
        """Return the weights [head, query, key]."""
        return self.call.weights[self.sample, :, : self.queries, : self.keys]

    def hides_later_keys(self) -> bool:
        """Return whether no query reads a later key."""
        return not bool(self.fingerprint().triu(1).any())

    def weights(self, heads: Chosen = None, queries: Chosen = None) -> NDArray[np.floating]:
        """Return [head, query, key], of the selected heads and queries."""
        return GivenLayer(self.fingerprint()).weights(heads, queries).astype(self.dtype, copy=False)


@dataclass(frozen=True)
class RecordedLayer(ModelLayer, SoftmaxLayer):
    """A layer whose weights are recomputed from recorded queries and keys, by the function that ran."""

    call: Call

    def fingerprint(self) -> Tensor:
        """Return the queries [head, query, dim]."""
        return self.query_key()[0]

    def _part(self, added: Any) -> Any:
        """Return this sample's part of a mask, bias or sink [batch or 1, head or 1, query or 1, key or 1]."""
        if isinstance(added, CausalMask):
            return added.cut(self.keys)
        if not is_tensor(added) or added.dim() != MAPS:
            return added
        part = added[self.sample : self.sample + 1] if added.shape[0] > 1 else added
        return part[:, :, : self.queries, : self.keys]

    def query_key(self) -> tuple[Tensor, Tensor]:
        """Return queries [head, query, dim] and keys [kv head, key, dim], after any rotary embedding."""
        query, key = self.call.query[self.sample], self.call.key[self.sample]
        return query[:, : self.queries], key[:, : self.keys]

    def settings(self) -> dict[str, Any]:
        """Return this sample's part of the call's mask, scaling, softcap, position bias and sink."""
        return {name: self._part(value) for name, value in self.call.settings.items()}

    def is_softmax(self) -> bool:
        """Return whether its weights are the softmax's, with no change after it."""
        return self.call.weights is None

    def weights(self, heads: Chosen = None, queries: Chosen = None) -> NDArray[np.floating]:
        """Return [head, query, key], computed on the device of the model.

        If heads or queries are given, only their scores are computed, with the same bits as in the whole
        layer (on a CPU, in float32 and half precision; see `row_selection.to_compute`).
        """
        import torch

        from attnwidgets.tracing.recording.attention_function import (
            HEADS,
            QUERIES,
            attention_weights,
            is_long,
            of_queries,
            part_of,
            weights_by_blocks,
        )

        n_heads, n_queries, _ = self.shape
        head_numbers = positions(heads, n_heads, "head")
        rows = positions(queries, n_queries, "query")
        if self.call.weights is not None:
            changed = self.call.weights[self.sample, :, : self.queries, : self.keys]
            return as_array(changed[head_numbers][:, rows]).astype(self.dtype)
        query, key = self.query_key()
        computed, selected = to_compute(rows, n_queries)
        settings = {name: part_of(added, head_numbers, HEADS) for name, added in self.settings().items()}
        if heads is not None:
            shared = n_heads // len(key)
            key = key[[head // shared for head in numbers(head_numbers)]]
        query, key = query[head_numbers][None, :, computed], key[None]
        with no_grad():
            if not is_long(query, key):
                key, settings = of_queries(key, settings, computed)
                settings = {name: whole(added) for name, added in settings.items()}
                computed_weights = attention_weights(query, key, **settings)[0][:, selected]
                later = self.keys - computed_weights.shape[-1]
                if later:
                    computed_weights = torch.nn.functional.pad(computed_weights, (0, later))
                return as_array(computed_weights).astype(self.dtype, copy=False)
            if computed != slice(0, n_queries):
                settings = {name: part_of(added, computed, QUERIES) for name, added in settings.items()}
            weights = torch.empty((*query.shape[1:-1], self.keys), dtype=getattr(torch, self.dtype.name))
            for block, block_weights in weights_by_blocks(query, key, settings):
                n_seen = block_weights.shape[-1]
                weights[:, block, :n_seen] = block_weights[0]
                weights[:, block, n_seen:] = 0
            return weights[:, selected].numpy()

    def hides_later_keys(self) -> bool:
        """Return True if the mask alone proves that no query reads a later key; otherwise False.

        It does if the numbers added to later keys are so far below those added to some earlier key that
        their weights are exactly 0.
        """
        import torch

        from attnwidgets.tracing.recording.attention_function import QUERIES, part_of

        settings = self.settings()
        biases = (settings.get(name) for name in ("position_bias", "mask"))
        added = [bias for bias in biases if bias is not None]
        if self.call.weights is not None or not added:
            return False
        if isinstance(added[-1], CausalMask) and len(added) == 1:
            return True
        first = [part_of(part, slice(0, 1), QUERIES) for part in added]
        for rows in blocks(self.queries, sum(part.nbytes for part in first)):
            total = sum(part_of(part, rows, QUERIES).detach().float() for part in added)
            query_numbers = torch.arange(rows.start, rows.stop, device=total.device)
            later = torch.arange(self.keys, device=total.device) > query_numbers[:, None]
            hidden = total.masked_fill(~later, -torch.inf).amax() <= HIDDEN
            if not hidden or (total.masked_fill(later, -torch.inf).amax(-1) < HIDDEN / 10).any():
                return False
        return True


@dataclass(frozen=True)
class GivenLayer:
    """A layer with weights [head, query, key] in memory, an array or a tensor."""

    given: NDArray[np.floating] | Tensor

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        heads, queries, keys = self.given.shape
        return heads, queries, keys

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the weights: float64 if the array has it, else float32."""
        return kept_dtype(self.given.dtype)

    def weights(self, heads: Chosen = None, queries: Chosen = None) -> NDArray[np.floating]:
        """Return [head, query, key], of the selected heads and queries."""
        n_heads, n_queries, _ = self.shape
        # Queries first: blocks of them are views, while a list of heads copies every row that is left.
        rows = self.given[:, positions(queries, n_queries, "query")]
        return as_array(rows[positions(heads, n_heads, "head")]).astype(self.dtype, copy=False)


@dataclass(frozen=True)
class Stack:
    """The layers of a stack, with the query and key axes of its maps.

    Args:
        layers: A layer for each block whose attention was recorded.
        query: Axis of the maps' rows.
        key: Axis of their columns.
        blocks: All blocks of the stack; by default a block for each layer.
        mixing: By number of the block, the vectors that its mixers other than attention add from token to
            token.
    """

    layers: tuple[Layer, ...]
    query: TokenAxis
    key: TokenAxis
    blocks: tuple[Block, ...] = ()
    mixing: Mapping[int, MixedBlock] = field(default_factory=dict)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Traces that were pickled before other mixers than attention were recorded have no `mixing`.
        vars(self).update({"mixing": {}} | state)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The model's number of every layer."""
        recorded = tuple(block.number for block in self.blocks if block.is_recorded)
        return recorded or tuple(range(len(self.layers)))

    @property
    def without_attention(self) -> bool:
        """Whether its blocks mix tokens, and none of them by attention; no model is needed for their maps."""
        return bool(self.mixing) and not self.layers

    @property
    def mixing_numbers(self) -> tuple[int, ...]:
        """The model's numbers of all blocks with recorded mixing, by attention or otherwise."""
        return tuple(sorted({*self.numbers, *self.mixing}))


def is_trace(value: object) -> TypeGuard[Trace]:
    """Return whether a value is a trace, without importing `Trace`, whose module imports this one."""
    return hasattr(value, "stack_table")
