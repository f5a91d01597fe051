"""Explorer: heads, heatmap, text and controls of one trace, composed and linked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.base import View

if TYPE_CHECKING:
    from collections.abc import Sequence


class Explorer(View):
    """The four views in one output, with a choice of method and unit and the model's predictions.

    Offers attention and rollout of a trace, by token, word and sentence. `methods=` and `units=` restrict
    it, so that an assignment need not show its answer; `methods=` takes any name of `aw.methods()`.
    Arguments are those of `View`.
    """

    _VIEW = "Explorer"
    _MANY_METHODS = True
    _MARKS = "both"


def explore(
    model: Any,
    tokenizer: Any,
    text: Any,
    *,
    methods: Sequence[str] = (),
    units: Sequence[str] = (),
    index_base: int = 0,
    title: str = "",
    **trace_options: Any,
) -> Explorer:
    """Trace a text and return the Explorer of it.

    Args:
        model: A model, or the name or folder of one; see `aw.trace`.
        tokenizer: Its tokenizer, or None where `model` is a name.
        text: What to read.
        methods: Methods offered; empty: attention and rollout.
        units: Units offered; empty: all.
        index_base: Whether layers and heads are shown counted from 0 or 1.
        title: Heading.
        **trace_options: Everything else `aw.trace` takes (text_pair, words, max_new_tokens, ...).
    """
    from attnwidgets.tracing.run import trace

    traced = trace(model, tokenizer, text, **trace_options)
    if isinstance(traced, list):
        raise TypeError(
            f"explore() shows one text and was given {len(traced)}; for several: "
            "[aw.Explorer(t) for t in aw.trace(model, tokenizer, texts)]."
        )
    return Explorer(traced, methods=methods, units=units, index_base=index_base, title=title)
