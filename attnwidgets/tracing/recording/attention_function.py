"""The attention function: equal to eager attention, with attention recorded and edited in it.

Every architecture on transformers' attention interface calls it while a recording is active. Recording,
ablating heads, editing weights and zeroing values all happen here, so none of them needs code for a single
architecture.
"""

from __future__ import annotations

from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from attnwidgets._gradients import enable_grad
from attnwidgets.tracing.causal_mask import LONG_MASK, CausalMask, readable, whole
from attnwidgets.tracing.recording.borrow import origin
from attnwidgets.tracing.row_selection import blocks
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from attnwidgets.tracing.interventions import Session
    from attnwidgets.tracing.recording.recorder import Recording

HEADS, QUERIES = -3, -2
"""Axes of attention weights, and of masks and biases."""

LONG_BYTES = 2**23
"""Bytes of a call's weights beyond which they are computed in parts unless they are read: `_unread`."""

BLOCK_BYTES = 2**21
"""Bytes of the weights of a block of queries: fastest if they fit in a CPU's cache."""

AGAIN_BYTES = 2**25
"""Bytes of a call's weights beyond which a gradient computes them again instead of keeping them."""

FUSED_BYTES = 2**28
"""Bytes of a call's weights up to which those of a model that is set to eager attention keep its bits."""

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
        "vision_aspect_ratio",
        "vision_feature_layer",
        "vision_feature_select_strategy",
    }
)


# Context variables, so that recordings and changes of one thread or task never affect calls of another.
changers: ContextVar[tuple[Session, ...]] = ContextVar("attnwidgets_changers", default=())
observer: ContextVar[Recording | None] = ContextVar("attnwidgets_observer", default=None)


@dataclass(frozen=True)
class Scored:
    """The inputs from which the scores of a call are computed.

    Attributes:
        query: [batch, head, query, dim].
        key: [batch, kv head, key, dim].
        settings: mask, scaling, softcap, position_bias and sink.
    """

    query: Tensor
    key: Tensor
    settings: Mapping[str, Any]


def changer_of(module: nn.Module) -> Session | None:
    """Return the session that changes the attention of a module or of its original; None if none does."""
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
    by_mask: Tensor = readable(mask)
    return by_mask


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
    sink: Tensor | None = None,
) -> Tensor:
    """Return softmax(scaling * q k^T + bias + mask) as [batch, head, query, key], in the dtype of `query`.

    With a sink, the softmax is over an additional score, and rows sum to 1 minus the share of the sink.

    Args:
        query: [batch, head, query, dim], after any rotary embedding.
        key: [batch, kv head, key, dim]; fewer heads than `query` means grouped queries.
        mask: Added to the scores: 0 if a key may be read, the dtype's minimum if not.
        scaling: Factor on the scores; None means dim ** -0.5.
        softcap: Scores become softcap * tanh(scores / softcap) (Gemma 2).
        position_bias: Added to the scores before the mask (T5).
        sink: The score of a row that no key has [batch or 1, head, query or 1, 1] (gpt-oss).
    """
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.matmul(query, repeat_heads(key, query.shape[1]).transpose(2, 3)) * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if position_bias is not None:
        scores = scores + position_bias
    if mask is not None:
        scores = scores + mask
    if sink is not None:
        scores = torch.cat([scores, sink.to(scores.dtype).expand(*scores.shape[:-1], 1)], dim=-1)
        # As gpt-oss does: half precision rounds here, and in full precision the softmax does the same.
        scores = scores - scores.amax(dim=-1, keepdim=True)
    # Half precision is summed in float32, as eager attention does; float64 stays float64.
    dtype = torch.float32 if scores.element_size() < torch.finfo(torch.float32).bits // 8 else None
    weights = torch.softmax(scores, dim=-1, dtype=dtype)
    return (weights if sink is None else weights[..., :-1]).to(query.dtype)


def part_of(added: Any, chosen: list[int] | slice, axis: int) -> Any:
    """Return the part of a mask or bias for some heads or queries; an axis of size 1 serves all."""
    if isinstance(added, CausalMask):
        return added.rows(chosen) if axis == QUERIES else added
    if not isinstance(added, torch.Tensor) or added.dim() < -axis or added.shape[axis] == 1:
        return added
    return added[..., chosen, :] if axis == QUERIES else added[..., chosen, :, :]


def weights_by_blocks(query: Tensor, key: Tensor, settings: dict[str, Any]) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of queries with their part of `attention_weights`, for the keys of `of_queries`.

    On a CPU this is several times as fast for long texts, since a block stays in its cache.

    Args:
        query: [batch, head, query, dim].
        key: [batch, kv head, key, dim].
        settings: mask, scaling, softcap, position_bias and sink.
    """
    key = repeat_heads(key, query.shape[1])
    for rows in blocks(query.shape[-2], map_bytes(query, key) // query.shape[-2], BLOCK_BYTES):
        seen, row_settings = of_queries(key, settings, rows)
        yield rows, attention_weights(query[:, :, rows], seen, **row_settings)


def of_queries(key: Tensor, settings: Mapping[str, Any], queries: list[int] | slice) -> tuple[Tensor, Any]:
    """Return the keys that some queries may see [batch, kv head, key, dim], and their part of the settings.

    Consecutive queries of a long causal text have those up to the last of them, half of all on average.
    """
    mask = settings.get("mask")
    if (
        not isinstance(mask, CausalMask)
        or isinstance(queries, list)
        or settings.get("position_bias") is not None
    ):
        return key, {name: part_of(added, queries, QUERIES) for name, added in settings.items()}
    seen = slice(0, queries.stop)
    others = {name: part_of(added, queries, QUERIES) for name, added in settings.items() if name != "mask"}
    return key[:, :, seen], {**others, "mask": mask.rows(queries, seen)}


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


def _left_out_mask(module: nn.Module, query: Tensor, key: Tensor, is_causal: Any) -> CausalMask | None:
    """Return the causal mask that a pass has left out, by the rule of transformers' sdpa attention."""
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if is_causal and query.shape[2] == key.shape[2] > 1:
        return CausalMask(query.shape[2], query.dtype, query.device)
    return None


def _only_chosen(mask: Any, indices: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Return a mask [batch, head or 1, query, key] that hides the keys that are not among `indices` as well.

    A query with fewer keys to read than it names names later ones too, which stay hidden.
    """
    n_keys = key.shape[2]
    # An additional column takes the indices that stand for no key.
    numbers = torch.where(indices < 0, n_keys, indices).long()
    hidden = numbers.new_ones((*numbers.shape[:-1], n_keys + 1), dtype=torch.bool)
    hidden = hidden.scatter(-1, numbers, value=False)[:, None, :, :n_keys]
    added = query.new_zeros(()) if mask is None else whole(mask)
    return added.masked_fill(hidden, torch.finfo(added.dtype).min)


def _unread(query: Tensor, key: Tensor, value: Tensor, settings: dict[str, Any], *, is_fused: bool) -> Tensor:
    """Return a call's output [batch, head, query, dim] whose weights nobody reads.

    They stay inside torch's fused attention, which is several times as fast and gives the bits of a model
    that is set to sdpa, as most are. Those of a model that is set to eager attention are computed in blocks
    of queries, with its bits, as long as they are not too many; and so are those that fused attention cannot
    compute without making them all.
    """
    if is_fused and _can_fuse(query, value, settings):
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
        output[:, :, rows] = torch.matmul(weights.to(value.dtype), value[:, :, : weights.shape[-1]])
    return output


def _can_fuse(query: Tensor, value: Tensor, settings: Mapping[str, Any]) -> bool:
    """Return whether torch's fused attention computes a call, which knows nothing but a mask and a scale."""
    fits = query.shape[-1] == value.shape[-1] and query.dtype == value.dtype
    return fits and all(settings.get(name) is None for name in ("softcap", "position_bias", "sink"))


class _Again(torch.autograd.Function):
    """A call's output [batch, head, query, dim] with a gradient that keeps no weights.

    Both passes go through blocks of queries, and the backward pass computes the weights of each again: a long
    text needs no more memory than a block. The gradients of keys and values are sums over the blocks.
    """

    @staticmethod
    def forward(
        ctx: Any,
        context: Callable[[], AbstractContextManager[Any]],
        settings: Mapping[str, Any],
        query: Tensor,
        key: Tensor,
        value: Tensor,
    ) -> Tensor:
        """Compute the output; `context` is that in which the backward pass computes it again."""
        ctx.context, ctx.settings = context, settings
        ctx.save_for_backward(query, key, value)
        output = value.new_empty((*query.shape[:-1], value.shape[-1]))
        for rows, seen, row_settings in _parts_of(query, key, settings):
            parts = query[:, :, rows], key[:, :, seen], value[:, :, seen]
            output[:, :, rows] = _output_of(row_settings, *parts)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of the queries, keys and values that need one."""
        query, key, value = ctx.saved_tensors
        needed = ctx.needs_input_grad[2:]
        sums = [torch.zeros_like(given) for given in (query, key, value)]
        for rows, seen, row_settings in _parts_of(query, key, ctx.settings):
            parts = query[:, :, rows], key[:, :, seen], value[:, :, seen]
            with enable_grad(), ctx.context():
                leaves = [
                    part.detach().requires_grad_(need) for part, need in zip(parts, needed, strict=True)
                ]
                output = _output_of(row_settings, *leaves)
            reached = [leaf for leaf in leaves if leaf.requires_grad]
            gradients = iter(torch.autograd.grad(output, reached, gradient[:, :, rows], allow_unused=True))
            for total, where, need in zip(sums, (rows, seen, seen), needed, strict=True):
                part_gradient = next(gradients) if need else None
                if part_gradient is not None:
                    total[:, :, where] += part_gradient
        return None, None, *(total if need else None for total, need in zip(sums, needed, strict=True))


def _parts_of(
    query: Tensor, key: Tensor, settings: Mapping[str, Any]
) -> Iterator[tuple[slice, slice, dict[str, Any]]]:
    """Yield slices of queries, with those of the keys that they may see and their part of the settings."""
    for rows in blocks(query.shape[-2], map_bytes(query, key) // query.shape[-2], LONG_BYTES):
        seen, row_settings = of_queries(key, settings, rows)
        yield rows, slice(0, seen.shape[-2]), row_settings


def _output_of(settings: dict[str, Any], query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return the outputs of heads [batch, head, query, dim]."""
    weights = attention_weights(query, key, **settings)
    return torch.matmul(weights.to(value.dtype), repeat_heads(value, query.shape[1]))


def _require_harmless(module: nn.Module, others: Mapping[str, object]) -> None:
    """Raise an UnsupportedModelError for a keyword that changes attention in an unknown way."""
    for name, option in others.items():
        if name not in HARMLESS and option is not None:
            raise UnsupportedModelError(
                f"{type(module).__name__} passes {name!r} to its attention, which is not supported; "
                "ignoring it would change what the model computes"
            )


def _in_parts(
    watching: Recording,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    settings: dict[str, Any],
) -> Tensor | None:
    """Return a long call's output [batch, head, query, dim] if nobody reads its weights; None otherwise."""
    again = watching.again if torch.is_grad_enabled() else None
    if again is None and torch.is_grad_enabled():
        return None
    n_bytes = map_bytes(query, key)
    if n_bytes <= (LONG_BYTES if again is None else AGAIN_BYTES):
        return None
    if not watching.keep_unread(module, query, key, value, settings):
        return None
    is_fused = watching.fuses_weights(n_bytes)
    # Without rules, the gradient of fused attention is that of any other; with a mask made whole, torch may
    # keep all weights for it.
    has_gradient = again is nullcontext and is_fused and _can_fuse(query, value, settings)
    if again is not None and not (has_gradient and isinstance(settings["mask"], CausalMask | None)):
        output: Tensor = _Again.apply(again, settings, query, key, value)  # type: ignore[no-untyped-call]
        return output
    return _unread(query, key, repeat_heads(value, query.shape[1]), settings, is_fused=is_fused)


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
    s_aux: Tensor | None = None,
    sinks: Tensor | None = None,
    indices: Tensor | None = None,
    **others: object,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention as eager attention does and notify the active observer.

    Besides the arguments that transformers passes for every model, it takes those by which a row reads less
    than all keys or gives less than all to keys.

    Args:
        module: The attention module.
        query: [batch, head, query, dim].
        key: [batch, kv head, key, dim].
        value: [batch, kv head, key, value dim].
        attention_mask: Added to the scores.
        scaling: Factor on the scores.
        dropout: Share of the weights that is dropped in training.
        softcap: Bound of the scores.
        position_bias: Added to the scores before the mask.
        s_aux: A score of every head that no key has [head] (gpt-oss).
        sinks: A score of every row that no key has [batch, head, query, 1] (Inkling).
        indices: Numbers of the keys that a query may read, as far as its mask allows it
            [batch, query, number]; negative ones stand for none (DeepSeek V3.2).
        others: Keywords that change nothing here.

    Returns:
        Output [batch, query, head, dim] and weights [batch, head, query, key]; instead of weights None, as
        sdpa returns it, if they are large and nobody reads them.

    Raises:
        UnsupportedModelError: For a keyword that changes attention in an unknown way.
    """
    _require_harmless(module, others)
    watching, changing = observer.get(), changer_of(module)
    mask: Any = attention_mask
    if mask is None and watching is not None and watching.hides_later:
        mask = _left_out_mask(module, query, key, others.get("is_causal"))
    if indices is not None:
        mask = _only_chosen(mask, indices, query, key)
    settings: dict[str, Any] = {"mask": mask, "scaling": scaling}
    settings |= {"softcap": softcap, "position_bias": position_bias}
    settings["sink"] = sinks if s_aux is None else s_aux.reshape(1, -1, 1, 1)
    if watching is not None and changing is None and not module.training:
        unread = _in_parts(watching, module, query, key, value, settings)
        if unread is not None:
            watching.done(module, unread)
            return unread.transpose(1, 2).contiguous(), None
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
