"""The answer that a model writes with a part of the text hidden: greedy, every token in its place."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from attnwidgets.intervene.edit_attention import suppress
from attnwidgets.tracing.continuations import continuations
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.inputs import limit_of, text_tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnwidgets.tracing.trace import Trace

_LONGER = 16  # tokens beyond those of the answer


def written_without(
    trace: Trace, hidden: Sequence[int], answer: Sequence[int], inputs: Mapping[str, Any] | None = None
) -> str:
    """Return the text that the model writes in the place of an answer, with some tokens hidden.

    The most probable token is taken at every step, up to 16 tokens more than the answer has.

    Args:
        trace: Trace of a model that continues texts.
        hidden: Tokens that no other token reads; none: nothing is hidden.
        answer: The tokens of the answer; those before its first are read.
        inputs: The model's inputs with another picture; None: those of the trace.

    Raises:
        UnsupportedModelError: If the model does not generate, or mixes tokens without attention.
        ValueError: If the text already has as many tokens as the model takes.
    """
    start, new = answer[0], len(answer) + _LONGER
    limit = limit_of(unwrap(trace.model), text_tokenizer(trace.tokenizer))
    if limit is not None:
        new = min(new, limit - start)
    given = trace.inputs if inputs is None else inputs
    shape = given["input_ids"].shape
    # Other tensors with the shape of the ids belong to them: masks, and the kinds of tokens.
    cut = {name: x[:, :start] if getattr(x, "shape", None) == shape else x for name, x in given.items()}
    before = copy.copy(trace)
    before.inputs = cut
    stack = trace.default_stack
    with ExitStack() as changes:
        if hidden:
            changes.enter_context(suppress(trace, list(hidden), stack=stack))
            if hidden[0] and not trace.is_causal(stack):
                changes.enter_context(suppress(trace, list(hidden), range(hidden[0]), stack=stack))
        return continuations(before, max_new_tokens=new)[0].text.strip()
