"""bertviz' calls: `from attnwidgets.compat.bertviz import ...` instead of `from bertviz import ...`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets.compat.display import check_action, handed_over
from attnwidgets.explanations.mixing.attention import attention as attention_map
from attnwidgets.explanations.results.bertviz import to_bertviz
from attnwidgets.tracing.from_attentions import from_attentions
from attnwidgets.views.heads.head_grid import HeadGrid
from attnwidgets.views.heads.head_view import HeadView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.tracing.from_attentions import GivenTrace
    from attnwidgets.tracing.text.units import TokenAxis

__all__ = ["head_view", "model_view", "to_bertviz"]

_MODES = ("dark", "light")
_HEAD_VIEW = HeadView
_MODEL_VIEW = HeadGrid


def head_view(
    attention: Any = None,
    tokens: Sequence[str] | None = None,
    sentence_b_start: int | None = None,
    prettify_tokens: bool = True,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    encoder_attention: Any = None,
    decoder_attention: Any = None,
    cross_attention: Any = None,
    encoder_tokens: Sequence[str] | None = None,
    decoder_tokens: Sequence[str] | None = None,
    include_layers: Sequence[int] | None = None,
    html_action: str = "view",
) -> Any:
    """Show attention as bertviz' `head_view` is called.

    Args:
        attention: What the model returned: one array (1, head, token, token) a layer; whatever else
            `aw.from_attentions` reads is taken too (numpy, no batch axis, steps of a generation).
        tokens: One string for each token.
        sentence_b_start: Index of the first token of the second text of a pair.
        prettify_tokens: Show "Ġ", "▁" and "##" as what they stand for, and bytes as characters.
        layer: The layer shown first; the first that is included by default.
        heads: The heads chosen first.
        encoder_attention: Of an encoder-decoder, instead of `attention`.
        decoder_attention: The same.
        cross_attention: The same.
        encoder_tokens: Its input's tokens.
        decoder_tokens: Its output's tokens.
        include_layers: The layers that are shown; they keep their numbers.
        html_action: "view" displays it and returns the view; "return" returns an HTML object, whose `.data`
            is a page that needs neither kernel nor network.

    Raises:
        ValueError: Where arguments are missing or exclude each other, in bertviz' cases; weights that are not
            there (a model loaded with sdpa attention) or do not fit the tokens.
        IndexError: For a layer or head that there is not.
    """
    check_action(html_action)
    trace = _trace(
        attention,
        tokens,
        sentence_b_start,
        stacks={
            "encoder": (encoder_attention, encoder_tokens, None),
            "decoder": (decoder_attention, None, decoder_tokens),
            "cross": (cross_attention, encoder_tokens, decoder_tokens),
        },
        prettify=prettify_tokens,
    )
    if layer is not None and include_layers is not None and layer not in include_layers:
        raise ValueError(f"layer {layer} is not in include_layers: {list(include_layers)}")
    chosen = [] if heads is None else [int(head) for head in heads]
    first = chosen[0] if chosen else None
    view = _HEAD_VIEW(_maps(trace, include_layers, None), layer=layer, head=first, heads=chosen)
    return handed_over(view, html_action)


def model_view(
    attention: Any = None,
    tokens: Sequence[str] | None = None,
    sentence_b_start: int | None = None,
    prettify_tokens: bool = True,
    display_mode: str = "dark",
    encoder_attention: Any = None,
    decoder_attention: Any = None,
    cross_attention: Any = None,
    encoder_tokens: Sequence[str] | None = None,
    decoder_tokens: Sequence[str] | None = None,
    include_layers: Sequence[int] | None = None,
    include_heads: Sequence[int] | None = None,
    html_action: str = "view",
) -> Any:
    """Show every layer and head as bertviz' `model_view` is called.

    Args:
        attention: See `head_view`, as for the arguments that are not named here.
        tokens: See `head_view`.
        sentence_b_start: See `head_view`.
        prettify_tokens: See `head_view`.
        display_mode: "dark" or "light"; taken and not followed, for views have the colours of the notebook.
        encoder_attention: See `head_view`.
        decoder_attention: See `head_view`.
        cross_attention: See `head_view`.
        encoder_tokens: See `head_view`.
        decoder_tokens: See `head_view`.
        include_layers: The layers that are shown; they keep their numbers.
        include_heads: The heads that are shown; they keep their numbers.
        html_action: See `head_view`.

    Raises:
        ValueError, IndexError: As `head_view`; and for another `display_mode`.
    """
    check_action(html_action)
    if display_mode not in _MODES:
        near = suggest(str(display_mode), _MODES)
        raise ValueError(f"display_mode {display_mode!r} is not 'dark' or 'light'.{near}")
    trace = _trace(
        attention,
        tokens,
        sentence_b_start,
        stacks={
            "encoder": (encoder_attention, encoder_tokens, None),
            "decoder": (decoder_attention, None, decoder_tokens),
            "cross": (cross_attention, encoder_tokens, decoder_tokens),
        },
        prettify=prettify_tokens,
    )
    return handed_over(_MODEL_VIEW(_maps(trace, include_layers, include_heads)), html_action)


def _trace(
    attention: Any,
    tokens: Sequence[str] | None,
    second: int | None,
    *,
    stacks: dict[str, tuple[Any, Sequence[str] | None, Sequence[str] | None]],
    prettify: bool,
) -> GivenTrace:
    """Return the arguments of both calls as a trace: one stack, or those of an encoder-decoder.

    Args:
        attention: Of a model with one stack.
        tokens: Its tokens.
        second: Where its second text begins.
        stacks: For "encoder", "decoder" and "cross": weights, tokens of the input, tokens of the output.
        prettify: Whether tokens are shown as text rather than as the vocabulary spells them.
    """
    given = {name: weights for name, (weights, _, _) in stacks.items() if weights is not None}
    sides = {"encoder_tokens": stacks["cross"][1], "decoder_tokens": stacks["cross"][2]}
    if attention is not None:
        if tokens is None:
            raise ValueError("tokens is required: one string for each token of attention.")
        if also := [f"{name}_attention" for name in given] + [n for n, t in sides.items() if t is not None]:
            raise ValueError(f"attention is for models with one stack: {also[0]} cannot stand beside it.")
        trace = from_attentions(attention, list(tokens), second_text=second)
    else:
        if not given:
            raise ValueError(
                "give attention (with tokens), or encoder_attention, decoder_attention or cross_attention."
            )
        for name, (weights, *labels) in stacks.items():
            for side, label in zip(sides, labels, strict=True):
                needs = name == "cross" or side.startswith(name)
                if weights is not None and needs and label is None:
                    raise ValueError(f"{side} is required where {name}_attention is given.")
        trace = from_attentions(
            given,
            query_tokens=None if sides["decoder_tokens"] is None else list(sides["decoder_tokens"]),
            key_tokens=None if sides["encoder_tokens"] is None else list(sides["encoder_tokens"]),
        )
    return trace if prettify else _as_spelled(trace, tokens, sides)


def _as_spelled(trace: GivenTrace, tokens: Any, sides: dict[str, Any]) -> GivenTrace:
    """Return the trace with its tokens as they were given."""
    first, second = sides["decoder_tokens"], sides["encoder_tokens"]
    labels = {
        "self": (tokens, tokens),
        "encoder": (second, second),
        "decoder": (first, first),
        "cross": (first, second),
    }
    for name, stack in trace.stack_table.items():
        query = _spelled(stack.query, labels[name][0])
        key = query if stack.key is stack.query else _spelled(stack.key, labels[name][1])
        trace.stack_table[name] = dataclasses.replace(stack, query=query, key=key)
    return trace


def _spelled(axis: TokenAxis, tokens: Sequence[str]) -> TokenAxis:
    # A generation's last token has no row: labels may be one more than the axis is long.
    spelled = tuple(str(token) for token in tokens)[: len(axis)]
    units = {**axis.units, "token": dataclasses.replace(axis.units["token"], labels=spelled)}
    return dataclasses.replace(axis, tokens=spelled, units=units)


def _maps(
    trace: GivenTrace, layers: Sequence[int] | None, heads: Sequence[int] | None
) -> MixingMap | list[MixingMap]:
    """Return the attention of every stack, of the layers and heads that are included."""
    maps = [
        attention_map(trace, stack=name).select(layer=layers, head=heads)
        for name in dict.fromkeys((trace.default_stack, *trace.stacks))
    ]
    return maps[0] if len(maps) == 1 else maps
