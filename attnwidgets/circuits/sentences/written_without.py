"""The answer that a model writes with a part of the text hidden: greedy, every token in its place."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from attnwidgets.intervene.edit_attention import suppress
from attnwidgets.tracing.continuations import continuations
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.inputs import limit_of, text_tokenizer
from attnwidgets.tracing.recording.run import trace as record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.tracing.trace import Trace

_LONGER = 16  # tokens beyond those of the answer


def written_without(trace: Trace, hidden: Sequence[int], answer: Sequence[int]) -> str:
    """Return the text that the model writes in the place of an answer, with some tokens hidden.

    The most probable token is taken at every step, up to 16 tokens more than the answer has.

    Args:
        trace: Trace of a model that continues texts.
        hidden: Tokens that no later token reads; none: nothing is hidden.
        answer: The tokens of the answer; those before its first are read.

    Raises:
        UnsupportedModelError: If the model does not generate, or mixes tokens without attention.
        ValueError: If the text already has as many tokens as the model takes.
    """
    start, new = answer[0], len(answer) + _LONGER
    limit = limit_of(unwrap(trace.model), text_tokenizer(trace.tokenizer))
    if limit is not None:
        new = min(new, limit - start)
    before = record(trace.model, trace.tokenizer, input_ids=trace.inputs["input_ids"][0, :start].tolist())
    change: Any = suppress(before, list(hidden)) if hidden else nullcontext()
    with change:
        return continuations(before, max_new_tokens=new)[0].text.strip()
