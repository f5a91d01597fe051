"""The one attention function: equal to eager attention, and the place where it is seen and edited.

Every architecture on transformers' attention interface calls it while a recording is active. Recording,
knocking out heads, editing weights and zeroing values all happen here, so none of them needs code for an
architecture.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import torch

from attnwidgets.tracing.recording.twin import origin
from attnwidgets.tracing.row_selection import blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from torch import Tensor, nn

HEADS, QUERIES = -3, -2
"""Axes of attention weights, and of what is added to scores."""

LONG_BYTES = 2**23
"""Weights of a call beyond which they are computed in blocks of queries."""

BLOCK_BYTES = 2**21
"""Weights of such a block: what a processor's cache holds is fastest."""

NAME = "attnwidgets"

# Keywords that eager attention ignores as well: what they mean is in the mask already, or concerns the
# outputs only.
HARMLESS = frozenset(
    {
        "cache_position",
        "deterministic",
        "interpolate_pos_encoding",
        "is_causal",
        "logits_to_keep",
        "num_items_in_batch",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "position_ids",
        "return_dict",
        "sliding_window",
        "use_cache",
    }
)


class UnsupportedModelError(ValueError):
    """A model whose attention cannot be recorded faithfully; the message says why and what still works."""


class Observer(Protocol):
    """What is told of every attention call, and may replace weights and values."""

    def keep_unread(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, settings: dict[str, Any]
    ) -> bool:
        """Keep a call without its weights; False, and nothing is kept, where they are read or replaced."""

    def see(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        weights: Tensor,
        settings: dict[str, Any],
        *,
        changed: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return weights [batch, head, query, key] and values [batch, kv head, key, dim] to go on with.

        `changed` says that the weights are not what follows from queries and keys.
        """

    def done(self, module: nn.Module, output: Tensor) -> None:
        """Take what the heads return, [batch, head, query, dim]."""


class Changer(Protocol):
    """What changes the attention of a module for whoever calls it from the same thread and task."""

    @property
    def active(self) -> Sequence[object]:
        """What is in force; none where the last has been left."""

    @property
    def modules(self) -> AbstractSet[nn.Module]:
        """The attention modules of the model that it changes."""

    def weigh(
        self, module: nn.Module, query: Tensor, key: Tensor, weights: Tensor, settings: dict[str, Any]
    ) -> Tensor:
        """Return weights [batch, head, query, key] to go on with; the very same where nothing changes."""

    def write(self, module: nn.Module, output: Tensor) -> Tensor:
        """Return what the heads return, [batch, head, query, dim]."""


# Context variables, so that what one thread or task records or changes never concerns a call of another's.
changers: ContextVar[tuple[Changer, ...]] = ContextVar("attnwidgets_changers", default=())
observer: ContextVar[Observer | None] = ContextVar("attnwidgets_observer", default=None)


def changer_of(module: nn.Module) -> Changer | None:
    """Return what changes the attention of a module, or of what it is a twin of; None where nothing does."""
    table = changers.get()
    own = origin(module) if table else module
    # A task that was started inside of a `with` block remembers it after its end.
    return next((one for one in reversed(table) if one.active and own in one.modules), None)


def repeat_heads(states: Tensor, n_heads: int) -> Tensor:
    """Return [batch, n_heads, token, dim]: each key/value head once per query head that shares it."""
    repeats = n_heads // states.shape[1]
    return states if repeats == 1 else states.repeat_interleave(repeats, dim=1)


def attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    mask: Tensor | None = None,
    scaling: float | None = None,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
) -> Tensor:
    """Return softmax(scaling * q k^T + bias + mask) as [batch, head, query, key], in the dtype of `query`.

    Args:
        query: [batch, head, query, dim], after any rotary embedding.
        key: [batch, kv head, key, dim]; fewer heads than `query` means grouped queries.
        mask: Added to the scores: 0 where a key may be read, the dtype's minimum where not.
        scaling: Factor on the scores; None means dim ** -0.5.
        softcap: Scores become softcap * tanh(scores / softcap) (Gemma 2).
        position_bias: Added to the scores before the mask (T5).
    """
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.matmul(query, repeat_heads(key, query.shape[1]).transpose(2, 3)) * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if position_bias is not None:
        scores = scores + position_bias
    if mask is not None:
        scores = scores + mask
    # Half precision is summed in float32, as eager does; float64 stays float64.
    dtype = torch.float32 if scores.element_size() < torch.finfo(torch.float32).bits // 8 else None
    return torch.softmax(scores, dim=-1, dtype=dtype).to(query.dtype)


def part_of(added: Any, chosen: list[int] | slice, axis: int) -> Any:
    """Return the part of a mask or bias that is added to some heads or queries; an axis of one is for all."""
    if not isinstance(added, torch.Tensor) or added.dim() < -axis or added.shape[axis] == 1:
        return added
    return added[..., chosen, :] if axis == QUERIES else added[..., chosen, :, :]


def weights_by_blocks(query: Tensor, key: Tensor, settings: dict[str, Any]) -> Iterator[tuple[slice, Tensor]]:
    """Yield what `attention_weights` returns in blocks of queries, with their place; the same bits.

    On a processor this is several times as fast for long texts, since a block stays in its cache.

    Args:
        query: [batch, head, query, dim].
        key: [batch, kv head, key, dim].
        settings: mask, scaling, softcap and position_bias.
    """
    key = repeat_heads(key, query.shape[1])
    for rows in blocks(query.shape[-2], map_bytes(query, key) // query.shape[-2], BLOCK_BYTES):
        own = {name: part_of(added, rows, QUERIES) for name, added in settings.items()}
        yield rows, attention_weights(query[:, :, rows], key, **own)


def is_long(query: Tensor, key: Tensor) -> bool:
    """Return whether the weights of a call are too large to be held where nobody asks for them."""
    return map_bytes(query, key) > LONG_BYTES


def map_bytes(query: Tensor, key: Tensor) -> int:
    """Return the bytes of a call's weights [batch, head, query, key]."""
    return query.shape[:-1].numel() * key.shape[-2] * query.element_size()


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    **others: object,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention as eager does and tell the active observer.

    Returns:
        Output [batch, query, head, dim] and weights [batch, head, query, key]; None in their place, as sdpa
        returns it, where they are large and nobody reads them.

    Raises:
        UnsupportedModelError: For a keyword that changes attention in a way not known here (as `s_aux`,
            gpt-oss' sinks).
    """
    for name, given in others.items():
        if name not in HARMLESS and given is not None:
            raise UnsupportedModelError(
                f"{type(module).__name__} passes {name!r} to its attention, which is not known here; "
                "leaving it out would change what the model computes"
            )
    settings: dict[str, Any] = {"mask": attention_mask, "scaling": scaling}
    settings |= {"softcap": softcap, "position_bias": position_bias}
    watching, changing = observer.get(), changer_of(module)
    if (
        watching is not None
        and changing is None
        and not (torch.is_grad_enabled() or module.training)
        and is_long(query, key)
        and watching.keep_unread(module, query, key, value, settings)
    ):
        states = repeat_heads(value, query.shape[1])
        output = value.new_empty((*query.shape[:-1], value.shape[-1]))
        for rows, weights in weights_by_blocks(query, key, settings):
            output[:, :, rows] = torch.matmul(weights.to(value.dtype), states)
        watching.done(module, output)
        return output.transpose(1, 2).contiguous(), None
    weights = attention_weights(query, key, **settings)
    plain = weights
    if changing is not None:
        weights = changing.weigh(module, query, key, weights, settings)
    if watching is not None:
        changed = weights is not plain
        weights, value = watching.see(module, query, key, value, weights, settings, changed=changed)
    weights = torch.nn.functional.dropout(weights, p=dropout, training=module.training)
    output = torch.matmul(weights.to(value.dtype), repeat_heads(value, query.shape[1]))
    if changing is not None:
        output = changing.write(module, output)
    if watching is not None:
        watching.done(module, output)
    return output.transpose(1, 2).contiguous(), weights
