"""The attention function: equal to eager attention, and the place where attention is recorded and edited.

Every architecture on transformers' attention interface calls it while a recording is active. Recording,
ablating heads, editing weights and zeroing values all happen here, so none of them needs code for a single
architecture.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.causal_mask import LONG_MASK, CausalMask, whole
from attnwidgets.tracing.recording.borrow import origin
from attnwidgets.tracing.row_selection import blocks
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from attnwidgets.tracing.interventions import Session
    from attnwidgets.tracing.recording.recorder import Recording

HEADS, QUERIES = -3, -2
"""Axes of attention weights, and of masks and biases."""

LONG_BYTES = 2**23
"""Bytes of a call's weights beyond which they are computed in blocks of queries."""

BLOCK_BYTES = 2**21
"""Bytes of such a block's weights: fastest if they fit in a CPU's cache."""

FUSED_BYTES = 2**28
"""Bytes of a call's weights beyond which they are not computed at all, unless they are read: `_unread`."""

NAME = "attnwidgets"

# Keywords that eager attention ignores as well: their effect is in the mask already, or concerns the outputs
# only.
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


# Context variables, so that recordings and changes of one thread or task never affect calls of another.
changers: ContextVar[tuple[Session, ...]] = ContextVar("attnwidgets_changers", default=())
observer: ContextVar[Recording | None] = ContextVar("attnwidgets_observer", default=None)


@dataclass(frozen=True)
class Scored:
    """What the scores of a call are computed from.

    Attributes:
        query: [batch, head, query, dim].
        key: [batch, kv head, key, dim].
        settings: mask, scaling, softcap and position_bias.
    """

    query: Tensor
    key: Tensor
    settings: Mapping[str, Any]


def changer_of(module: nn.Module) -> Session | None:
    """Return what changes the attention of a module, or of what it is a twin of; None if nothing does."""
    in_force = changers.get()
    original = origin(module) if in_force else module
    # A task that was started inside a `with` block remembers it after its end.
    return next(
        (changer for changer in reversed(in_force) if changer.active and original in changer.modules), None
    )


def allowed(mask: Tensor | None, shape: Sequence[int], device: torch.device) -> Tensor:
    """Return True for every key that a query may read by a mask [batch or 1, head or 1, query, key].

    `shape` is [batch, head, query, key].
    """
    if mask is None:
        return torch.ones((1, 1, *shape[2:]), dtype=torch.bool, device=device)
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def read_at_all(weights: Tensor) -> Tensor:
    """Return True for every key that a query reads in any head [batch, 1, query, key].

    The weight of a masked key is exactly 0 in all of them.
    """
    return (weights != 0).any(1, keepdim=True)


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
        mask: Added to the scores: 0 if a key may be read, the dtype's minimum if not.
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
    # Half precision is summed in float32, as eager attention does; float64 stays float64.
    dtype = torch.float32 if scores.element_size() < torch.finfo(torch.float32).bits // 8 else None
    return torch.softmax(scores, dim=-1, dtype=dtype).to(query.dtype)


def part_of(added: Any, chosen: list[int] | slice, axis: int) -> Any:
    """Return the part of a mask or bias for some heads or queries; an axis of size 1 serves all."""
    if isinstance(added, CausalMask):
        return added.rows(chosen) if axis == QUERIES else added
    if not isinstance(added, torch.Tensor) or added.dim() < -axis or added.shape[axis] == 1:
        return added
    return added[..., chosen, :] if axis == QUERIES else added[..., chosen, :, :]


def weights_by_blocks(query: Tensor, key: Tensor, settings: dict[str, Any]) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of queries with their part of `attention_weights`; the same bits.

    On a CPU this is several times as fast for long texts, since a block stays in its cache.

    Args:
        query: [batch, head, query, dim].
        key: [batch, kv head, key, dim].
        settings: mask, scaling, softcap and position_bias.
    """
    key = repeat_heads(key, query.shape[1])
    for rows in blocks(query.shape[-2], map_bytes(query, key) // query.shape[-2], BLOCK_BYTES):
        row_settings = {name: part_of(added, rows, QUERIES) for name, added in settings.items()}
        yield rows, attention_weights(query[:, :, rows], key, **row_settings)


def is_long(query: Tensor, key: Tensor) -> bool:
    """Return whether the weights of a call are too large to hold if nobody reads them."""
    return map_bytes(query, key) > LONG_BYTES


def map_bytes(query: Tensor, key: Tensor) -> int:
    """Return the bytes of a call's weights [batch, head, query, key]."""
    return query.shape[:-1].numel() * key.shape[-2] * query.element_size()


def mask_of(*args: Any, **options: Any) -> Tensor | None:
    """Return the additive mask that eager attention uses; None for a long text's, where sdpa has none either.

    The attention function then knows from the pass that later keys are hidden.
    """
    from transformers.masking_utils import eager_mask, sdpa_mask

    watching = observer.get()
    if watching is not None and watching.fuses and options.get("allow_is_causal_skip"):
        queries, keys = options["q_length"], options["kv_length"]
        if queries == keys and queries * keys > LONG_MASK and sdpa_mask(*args, **options) is None:
            watching.hides_later = True
            return None
    return eager_mask(*args, **options)


def _unread(query: Tensor, key: Tensor, value: Tensor, settings: dict[str, Any]) -> Tensor:
    """Return a call's output [batch, head, query, dim] whose weights nobody reads.

    Those of a long text are computed in blocks of queries, with the bits of `attention_weights`; those of a
    very long one stay inside torch's fused attention, which is many times as fast and differs in rounding.
    """
    # Otherwise torch would make all weights.
    fits = query.shape[-1] == value.shape[-1] and query.dtype == value.dtype
    plain = settings["softcap"] is settings["position_bias"] is None
    if map_bytes(query, key) > FUSED_BYTES and plain and fits:
        mask = settings["mask"]
        hides_later = isinstance(mask, CausalMask)
        return torch.nn.functional.scaled_dot_product_attention(
            query,
            repeat_heads(key, query.shape[1]),
            value,
            attn_mask=None if hides_later else mask,
            is_causal=hides_later,
            scale=settings["scaling"],
        )
    output = value.new_empty((*query.shape[:-1], value.shape[-1]))
    for rows, weights in weights_by_blocks(query, key, settings):
        output[:, :, rows] = torch.matmul(weights.to(value.dtype), value)
    return output


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
    """Compute attention as eager attention does and notify the active observer.

    Returns:
        Output [batch, query, head, dim] and weights [batch, head, query, key]; instead of weights None, as
        sdpa returns it, if they are large and nobody reads them.

    Raises:
        UnsupportedModelError: For a keyword that changes attention in an unknown way (such as `s_aux`,
            gpt-oss' sinks).
    """
    for name, option in others.items():
        if name not in HARMLESS and option is not None:
            raise UnsupportedModelError(
                f"{type(module).__name__} passes {name!r} to its attention, which is not supported; "
                "ignoring it would change what the model computes"
            )
    watching, changing = observer.get(), changer_of(module)
    mask: Any = attention_mask
    if mask is None and watching is not None and watching.hides_later:
        # By the rule of transformers' sdpa attention.
        is_causal_argument = others.get("is_causal")
        is_causal = getattr(module, "is_causal", True) if is_causal_argument is None else is_causal_argument
        if is_causal and query.shape[2] == key.shape[2] > 1:
            mask = CausalMask(query.shape[2], query.dtype, query.device)
    settings: dict[str, Any] = {"mask": mask, "scaling": scaling}
    settings |= {"softcap": softcap, "position_bias": position_bias}
    if (
        watching is not None
        and changing is None
        and not (torch.is_grad_enabled() or module.training)
        and is_long(query, key)
        and watching.keep_unread(module, query, key, value, settings)
    ):
        output = _unread(query, key, repeat_heads(value, query.shape[1]), settings)
        watching.done(module, output)
        return output.transpose(1, 2).contiguous(), None
    settings["mask"] = whole(mask)
    weights = attention_weights(query, key, **settings)
    plain = weights
    if changing is not None:
        weights = changing.weigh(module, weights, Scored(query, key, settings))
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
