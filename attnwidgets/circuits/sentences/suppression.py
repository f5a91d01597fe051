"""The effect of suppressed sentences on the predictions at all later tokens, over a cache of earlier ones."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets.circuits.suffix_runs import BY_TOKEN, CUT
from attnwidgets.intervene.edit_attention import suppress
from attnwidgets.intervene.preview import preview
from attnwidgets.tracing.anatomy.forward import forward_parameters, only_last_logits
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.cache import cache_copies, cache_parameter, cache_returned
from attnwidgets.tracing.recording.recorder import recording

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from typing_extensions import Self

    from attnwidgets.circuits.sentences.sentence_units import Sentences
    from attnwidgets.tracing.trace import Trace

_CLOSE, _CLOSE_IN_HALF = 1e-3, 5e-2  # relative difference of logits with and without a cache
_HALF_BYTES = 2
_ROWS_BYTES = 2**25  # of probabilities that are compared at a time


def effects(trace: Trace, sentences: Sentences, stack: str, temperature: float) -> np.ndarray:
    """Return KL(as it was || suppressed) in nats at every token, for every suppressed sentence.

    A sentence is hidden from all tokens outside it (in causal models, from those after it), in all layers and
    heads. In causal models only tokens after it run, over the keys and values of those before.

    Args:
        trace: A trace with its model and logits.
        sentences: Its sentences.
        stack: Name of the stack.
        temperature: Of both predictions.

    Returns:
        [sentence, token]: 0 where nothing can change.
    """
    n = len(sentences.axis)
    base = trace.logits
    if base is None:  # checked by the caller
        raise AssertionError
    result = np.zeros((len(sentences), n))
    causal = trace.is_causal(stack)
    with Suffixes(trace, stack) as suffixes:
        for number in progress(range(len(sentences)), "suppressing sentences"):
            span = [at for at in sentences.unit.spans[number] if sentences.counted[at]]
            if not span:
                continue
            start = max(span) + 1 if causal else 0
            readers = [at for at in range(start, n) if at not in span]
            if not readers:
                continue
            hidden = suppress(trace, span, readers, stack=stack)
            logits = suffixes.logits(hidden, start) if causal else preview(trace, hidden).logits
            if logits is not None:
                changed = kl_rows(base[start:], logits, temperature)
                result[number, start:] = changed
    return result


def kl_rows(before: torch.Tensor, after: torch.Tensor, temperature: float) -> np.ndarray:
    """Return KL(before || after) in nats of logits [token, vocabulary], in float64: [token], 0 or more."""
    size = max(1, _ROWS_BYTES // (8 * before.shape[-1]))
    parts = []
    for start in range(0, len(before), size):
        first, second = (
            (rows[start : start + size].double() / temperature).log_softmax(-1).cpu()
            for rows in (before, after)
        )
        parts.append((first.exp() * (first - second)).sum(-1).clamp_min(0).numpy())
    return np.concatenate(parts)


class Suffixes:
    """Context manager: runs of the tokens from a position on, over the keys and values of those before.

    Models without a cache that can be cut run whole.

    Args:
        trace: The trace.
        stack: Name of the stack.

    Attributes:
        whole: Why every run reads the whole text; "" if the cache can be cut.
    """

    def __init__(self, trace: Trace, stack: str) -> None:
        self._trace, self._stack_name = trace, stack
        self._model = unwrap(trace.model)
        self._twin: Any = None
        self._cache: Any = None
        self.whole = ""
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            self._twin = exits.enter_context(borrowed(self._model))
            exits.enter_context(no_grad())
            self._cache = self._whole_cache()
            if self._cache is not None:
                middle = len(self._trace.tokens) // 2
                logits = self._run(middle, range(middle, len(self._trace.tokens)))
                expected = cast("torch.Tensor", self._trace.logits)[middle:]
                close = _CLOSE_IN_HALF if logits.element_size() == _HALF_BYTES else _CLOSE
                if (logits.float() - expected.float()).norm() > close * expected.float().norm():
                    self._cache, self.whole = None, "its predictions differ with a cache"
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def logits(self, hidden: Any, start: int) -> torch.Tensor:
        """Return logits [token, vocabulary] of the tokens from a position on, under an intervention."""
        if self._cache is None:
            changed = preview(self._trace, hidden).logits
            if changed is None:  # checked by the caller
                raise AssertionError
            return changed[start:]
        with hidden:
            return self._run(start, range(start, len(self._trace.tokens)))

    def without(self, gone: Collection[int]) -> torch.Tensor:
        """Return logits [token, vocabulary] of the tokens after the first of some, in the text without these.

        Positions close up. The trace has no inputs but tokens and their mask.
        """
        tokens = [at for at in range(len(self._trace.tokens)) if at not in gone]
        start = min(gone)
        if self._cache is None or start == 0:
            ids = self._trace.inputs["input_ids"][0].tolist()
            return logits_of(self._trace, [ids[at] for at in tokens])[start:]
        return self._run(start, [at for at in tokens if at > start])

    def prefix(self, length: int, rows: int) -> Any:
        """Return the keys and values of the first tokens, once for each row; None if the cache cannot be cut.

        Args:
            length: Number of the tokens.
            rows: Number of texts that go on from them.
        """
        if self._cache is None:
            return None
        cache = cache_copies(self._cache, 1)
        cache.crop(length - len(self._trace.tokens))
        return cache_copies(cache, rows)

    def next_logits(self, ids: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
        """Return the logits after the last token of every row [row, vocabulary], and the cache with the rows.

        Args:
            ids: The tokens of every row that are not in the cache [row, token].
            cache: Keys and values of the tokens before; None: there are none.
        """
        takes = forward_parameters(self._model)
        name = cache_parameter(takes)
        options = {"return_dict": True, **only_last_logits(self._model)}
        if "use_cache" in takes:
            options["use_cache"] = name is not None
        if name is not None and cache is not None:
            options[name] = cache
        # Without a mask, as all tokens are read: Mamba takes one of the new tokens, other models of all.
        outputs = self._trace.call(self._twin, {"input_ids": ids}, options, {})
        return outputs.logits[:, -1], cache_returned(outputs) if name is not None else None

    def _whole_cache(self) -> Any:
        takes, inputs = forward_parameters(self._model), self._trace.inputs
        fits = (
            cache_parameter(takes) and "use_cache" in takes and "input_ids" in inputs and set(inputs) <= CUT
        )
        if not fits or self._stack_name != "self":
            self.whole = "it takes no cache of this input"
            return None
        with recording(self._twin):
            outputs = self._trace.call(self._twin, inputs, {"return_dict": True, "use_cache": True}, {})
        cache = cache_returned(outputs)
        if cache is None or not hasattr(cache, "crop") or not hasattr(cache, "layers"):
            self.whole = "its cache cannot be cut"
        elif hasattr(cache, "linear_cache") or any(hasattr(x, "recurrent_states") for x in cache.layers):
            # A state cannot be cut, nor can a source be taken out of it.
            self.whole = "a recurrent state cannot be cut"
        elif any(getattr(cache, "is_sliding", [False])):
            self.whole = "a sliding window has dropped keys that an earlier position needs"
        return None if self.whole else cache

    def _run(self, start: int, tokens: Sequence[int]) -> torch.Tensor:
        """Return the logits of tokens from `start` on, over the keys and values of all before it."""
        cache = cache_copies(self._cache, 1)
        cache.crop(start - len(self._trace.tokens))  # as a negative number: tokens to be removed
        read = list(tokens)
        inputs = {
            name: value[:, read] if name in BY_TOKEN else value[:, [*range(start), *read]]
            for name, value in self._trace.inputs.items()
        }
        name = cast("str", cache_parameter(forward_parameters(self._model)))  # by which it gave its cache
        options = {"return_dict": True, "use_cache": True, name: cache}
        with recording(self._twin):
            outputs = self._trace.call(self._twin, inputs, options, {})
        logits: torch.Tensor = outputs.logits[0].detach().cpu()
        return logits


def logits_of(trace: Trace, ids: list[int]) -> torch.Tensor:
    """Return the logits of a text of token ids [token, vocabulary]."""
    row = trace.inputs["input_ids"].new_tensor([ids])
    inputs = {"input_ids": row, "attention_mask": torch.ones_like(row)}
    inputs = {name: value for name, value in inputs.items() if name in trace.inputs}
    with borrowed(unwrap(trace.model)) as twin, no_grad(), recording(twin):
        outputs = trace.call(twin, inputs, {"return_dict": True}, {})
    logits: torch.Tensor = outputs.logits[0].detach().cpu()
    return logits
