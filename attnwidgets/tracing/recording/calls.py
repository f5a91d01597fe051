"""Recorded calls of attention, and which of them are the layers of a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.anatomy.attention_modules import by_stack, projects
from attnwidgets.tracing.causal_mask import whole
from attnwidgets.tracing.layers import FollowedLayer, RecordedLayer
from attnwidgets.tracing.recording.attention_function import (
    QUERIES,
    allowed,
    attention_weights,
    part_of,
    read_at_all,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from torch import Tensor, nn


@dataclass(frozen=True)
class Call:
    """The inputs of an attention call, from which its weights follow.

    Args:
        name: The module's name in the model.
        query: [batch, head, query, dim] after any rotary embedding.
        key: [batch, kv head, key, dim].
        settings: mask, scaling, softcap, position_bias and sink of the call; a long text's mask as a
            `CausalMask`.
        weights: [batch, head, query, key], only if an edit makes them differ from
            those that follow from query and key.
    """

    name: str
    query: Tensor
    key: Tensor
    settings: Mapping[str, Any]
    weights: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Batch, heads, queries, keys."""
        batch, heads, queries, _ = self.query.shape
        return batch, heads, queries, self.key.shape[2]

    @property
    def kv_heads(self) -> int:
        """Number of key/value heads."""
        return self.key.shape[1]

    @property
    def head_dim(self) -> int:
        """Width of a head's queries."""
        return self.query.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """The model's precision."""
        return self.query.dtype

    def layer(self, sample: int, queries: int, keys: int) -> RecordedLayer:
        """Return the layer of a sample in the batch, without its padding."""
        return RecordedLayer(self, sample, queries, keys)

    def fingerprint(self) -> Tensor:
        """Return the queries of the first sample [head, query, dim], by which passes are told apart."""
        return self.query[0]

    def readable(self) -> Tensor:
        """Return True for every key that a query may read [batch or 1, head or 1, query, key]."""
        return allowed(self.settings.get("mask"), self.shape, self.query.device)

    def of(self, rows: list[int] | slice) -> Call:
        """Return the call of some of its queries."""
        if rows == slice(None):
            return self
        settings = {name: part_of(whole(added), rows, QUERIES) for name, added in self.settings.items()}
        weights = None if self.weights is None else self.weights[:, :, rows]
        return replace(self, query=self.query[:, :, rows], settings=settings, weights=weights)

    def rows(self, dtype: torch.dtype, rows: list[int] | slice = slice(None)) -> Tensor:
        """Return weights of the first sample, of some queries [head, row, key], computed in a precision."""
        call = self.of(rows)
        return attention_weights(call.query.to(dtype), call.key.to(dtype), **call.settings)[0]


@dataclass(frozen=True)
class FollowedCall:
    """The weights and values of an attention that its module computed itself, without its scores.

    Args:
        name: The module's name in the model.
        weights: [batch, head, query, key], as they were multiplied with the values.
        values: [batch, kv head, key, dim].
    """

    name: str
    weights: Tensor
    values: Tensor

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Batch, heads, queries, keys."""
        batch, heads, queries, keys = self.weights.shape
        return batch, heads, queries, keys

    @property
    def kv_heads(self) -> int:
        """Number of key/value heads."""
        return self.values.shape[1]

    @property
    def head_dim(self) -> int:
        """Width of a head's values."""
        return self.values.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """The model's precision."""
        return self.values.dtype

    def layer(self, sample: int, queries: int, keys: int) -> FollowedLayer:
        """Return the layer of a sample in the batch, without its padding."""
        return FollowedLayer(self, sample, queries, keys)

    def fingerprint(self) -> Tensor:
        """Return the weights of the first sample [head, query, key], by which passes are told apart."""
        return self.weights[0]

    def readable(self) -> Tensor:
        """Return True for every key that a query may read [batch, 1, query, key]."""
        return read_at_all(self.weights)

    def of(self, rows: slice) -> FollowedCall:
        """Return the call of some of its queries."""
        return replace(self, weights=self.weights[:, :, rows])

    def rows(self, dtype: torch.dtype, rows: list[int] | slice = slice(None)) -> Tensor:
        """Return the weights of the first sample, of some queries [head, row, key], in a precision."""
        return self.weights[0][:, rows].to(dtype)


def is_even(calls: Sequence[Call | FollowedCall], stacks: Mapping[str, Sequence[int]]) -> bool:
    """Return whether followed calls of a stack are over the same tokens, and not over blocks of them."""
    followed = ([calls[i] for i in of if isinstance(calls[i], FollowedCall)] for of in stacks.values())
    return all(len({call.shape[2:] for call in of_stack}) <= 1 for of_stack in followed)


def stacks_of(
    model: nn.Module, modules: Mapping[str, nn.Module], calls: Sequence[Call | FollowedCall]
) -> dict[str, list[int]]:
    """Return the indices of the calls that are layers, by stack."""
    layers = [index for index in _over_tokens(modules, calls) if not _repeats(calls, index)]
    by_name = by_stack(model, [calls[index].name for index in layers])
    return {stack: [layers[number] for number in numbers] for stack, numbers in by_name.items()}


def _over_tokens(modules: Mapping[str, nn.Module], calls: Sequence[Call | FollowedCall]) -> list[int]:
    """Return the indices of the calls that read tokens.

    A model may also attend from a token to its states after earlier blocks (Inkling 2): such calls mix no
    tokens, and have the tokens on the axis of heads.
    """
    alone = {call.name for call in calls if call.name in modules and not projects(modules[call.name])}
    lengths = {call.shape[2] for call in calls if call.name not in alone}
    return [
        index for index, call in enumerate(calls) if call.name not in alone or call.shape[1] not in lengths
    ]


def _repeats(calls: Sequence[Call | FollowedCall], index: int) -> bool:
    """Return whether a call reads with the scores of the call before it: the same map, other values."""
    if not index:
        return False
    before, call = calls[index - 1], calls[index]
    pairs: tuple[tuple[Tensor, Tensor], ...]
    if isinstance(before, Call) and isinstance(call, Call):
        pairs = ((before.query, call.query), (before.key, call.key))
    elif isinstance(before, FollowedCall) and isinstance(call, FollowedCall):
        pairs = ((before.weights, call.weights),)
    else:
        return False
    return before.name == call.name and all(
        first.shape == second.shape and first.data_ptr() == second.data_ptr() for first, second in pairs
    )
