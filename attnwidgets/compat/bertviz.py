"""Functions of bertviz 1.4.1: import them from `attnwidgets.compat.bertviz` instead of `bertviz`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from IPython.display import display

from attnwidgets._errors import require_choice
from attnwidgets._notebook import running_shell
from attnwidgets.explanations.mixing.attention import attention as attention_map
from attnwidgets.explanations.results.bertviz import to_bertviz
from attnwidgets.tracing.from_attentions import from_attentions
from attnwidgets.views.heads.head_view import HeadGrid, HeadView
from attnwidgets.views.page.frame import page_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.tracing.from_attentions import GivenTrace
    from attnwidgets.tracing.text.units import TokenAxis
    from attnwidgets.views.base.view import View

__all__ = ["head_view", "model_view", "to_bertviz"]

_MODES = ("dark", "light")
_HEAD_VIEW = HeadView
_MODEL_VIEW = HeadGrid

ACTIONS = ("view", "return")


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
    """Show attention, with the signature of bertviz' `head_view`.

    Args:
        attention: The model's output: an array (1, head, token, token) per layer; or anything else that
            `aw.from_attentions` accepts (numpy, no batch axis, steps of a generation).
        tokens: A string per token.
        sentence_b_start: Index of the first token of the second text of a pair.
        prettify_tokens: Replace "Ġ", "▁" and "##" by what they stand for, and bytes by characters.
        layer: The layer shown first; by default the first included layer.
        heads: The heads selected first.
        encoder_attention: Encoder attention of an encoder-decoder, instead of `attention`.
        decoder_attention: Decoder attention of an encoder-decoder.
        cross_attention: Cross-attention of an encoder-decoder.
        encoder_tokens: Tokens of its input.
        decoder_tokens: Tokens of its output.
        include_layers: The layers to show; they keep their numbers.
        html_action: "view" displays and returns the view; "return" returns an HTML object, whose `.data` is a
            page that needs neither kernel nor network.

    Raises:
        ValueError: If arguments are missing or exclude each other, as in bertviz; or weights are missing (a
            model loaded with sdpa attention) or do not match the tokens.
        IndexError: If the layer or head is out of range.
    """
    check_action(html_action)
    by_stack = {"encoder": encoder_attention, "decoder": decoder_attention, "cross": cross_attention}
    sides = {"encoder_tokens": encoder_tokens, "decoder_tokens": decoder_tokens}
    trace = _trace(attention, tokens, sentence_b_start, by_stack, sides, prettify=prettify_tokens)
    maps = _maps(trace, include_layers, None)
    main = maps[0] if isinstance(maps, list) else maps
    chosen = [int(head) for head in (main.heads or () if heads is None else heads)]
    first = chosen[0] if heads is not None and chosen else None
    view = _HEAD_VIEW(maps, layer=layer, head=first, heads=chosen)
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
    """Show every layer and head, with the signature of bertviz' `model_view`.

    Args:
        attention: See `head_view`.
        tokens: See `head_view`.
        sentence_b_start: See `head_view`.
        prettify_tokens: See `head_view`.
        display_mode: "dark" or "light"; has no effect, because views use the colours of the notebook.
        encoder_attention: See `head_view`.
        decoder_attention: See `head_view`.
        cross_attention: See `head_view`.
        encoder_tokens: See `head_view`.
        decoder_tokens: See `head_view`.
        include_layers: The layers to show; they keep their numbers.
        include_heads: The heads to show; they keep their numbers.
        html_action: See `head_view`.

    Raises:
        ValueError: As for `head_view`, or if `display_mode` is unknown.
        IndexError: If the layer or head is out of range.
    """
    check_action(html_action)
    require_choice("display_mode", display_mode, _MODES)
    by_stack = {"encoder": encoder_attention, "decoder": decoder_attention, "cross": cross_attention}
    sides = {"encoder_tokens": encoder_tokens, "decoder_tokens": decoder_tokens}
    trace = _trace(attention, tokens, sentence_b_start, by_stack, sides, prettify=prettify_tokens)
    return handed_over(_MODEL_VIEW(_maps(trace, include_layers, include_heads)), html_action)


def _trace(
    attention: Any,
    tokens: Sequence[str] | None,
    second: int | None,
    by_stack: dict[str, Any],
    sides: dict[str, Sequence[str] | None],
    *,
    prettify: bool,
) -> GivenTrace:
    """Return the arguments of both functions as a trace, of a single stack or of an encoder-decoder.

    Args:
        attention: Attention of a model with a single stack.
        tokens: Its tokens.
        second: Index of the first token of the second text.
        by_stack: Attention of the stacks "encoder", "decoder" and "cross".
        sides: Tokens of input and output, "encoder_tokens" and "decoder_tokens".
        prettify: Whether tokens are shown as text rather than as spelled in the vocabulary.
    """
    passed = {name: weights for name, weights in by_stack.items() if weights is not None}
    if attention is not None:
        if tokens is None:
            raise ValueError("tokens is required: one string for each token of attention.")
        if also := [f"{name}_attention" for name in passed] + [n for n, t in sides.items() if t is not None]:
            raise ValueError(f"attention is for models with one stack and excludes {also[0]}.")
        trace = from_attentions(attention, list(tokens), second_text=second)
    else:
        if not passed:
            raise ValueError(
                "pass attention (with tokens), or encoder_attention, decoder_attention or cross_attention."
            )
        for name in passed:
            for side, labels in sides.items():
                if labels is None and (name == "cross" or side.startswith(name)):
                    raise ValueError(f"{side} is required with {name}_attention.")
        query, key = sides["decoder_tokens"], sides["encoder_tokens"]
        trace = from_attentions(
            passed,
            query_tokens=None if query is None else list(query),
            key_tokens=None if key is None else list(key),
        )
    return trace if prettify else _with_spelling(trace, tokens, sides)


def _with_spelling(trace: GivenTrace, tokens: Any, sides: dict[str, Any]) -> GivenTrace:
    """Return the trace with its tokens as the user spelled them."""
    output, source = sides["decoder_tokens"], sides["encoder_tokens"]
    queries = {"self": tokens, "encoder": source, "decoder": output, "cross": output}
    for name, stack in trace.stack_table.items():
        query = _spelled_axis(stack.query, queries[name])
        key = query if stack.key is stack.query else _spelled_axis(stack.key, source)
        trace.stack_table[name] = dataclasses.replace(stack, query=query, key=key)
    return trace


def _spelled_axis(axis: TokenAxis, tokens: Sequence[str]) -> TokenAxis:
    # The last generated token has no row, so there may be one more token than the axis has elements.
    spelled = tuple(str(token) for token in tokens)[: len(axis)]
    units = {**axis.units, "token": dataclasses.replace(axis.units["token"], labels=spelled)}
    return dataclasses.replace(axis, tokens=spelled, units=units)


def _maps(
    trace: GivenTrace, layers: Sequence[int] | None, heads: Sequence[int] | None
) -> MixingMap | list[MixingMap]:
    """Return the attention of every stack, restricted to the included layers and heads."""
    maps = [
        attention_map(trace, stack=name).select(layer=layers, head=heads)
        for name in dict.fromkeys((trace.default_stack, *trace.stacks))
    ]
    return maps[0] if len(maps) == 1 else maps


def check_action(html_action: str) -> None:
    """Raise ValueError unless `html_action` is an action of bertviz."""
    require_choice("html_action", html_action, ACTIONS)


def handed_over(view: View, html_action: str) -> Any:
    """Return a view, already displayed if in a notebook ("view"), or its page ("return")."""
    if html_action == "return":
        page = page_of(view)
        view.close()
        return page
    shell = running_shell()
    if shell is None or not hasattr(shell, "kernel"):
        return view
    display(view)
    cell = shell.execution_count

    # As the last line of the same cell the view would be shown twice; in later cells it is shown.
    def later() -> None:
        if shell.execution_count != cell:
            view.__dict__.pop("_ipython_display_", None)
            display(view)

    view.__dict__["_ipython_display_"] = later
    return view
