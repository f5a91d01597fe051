"""Continuations: a model's next tokens, greedy, sampled or by beam search, with their probabilities."""

from __future__ import annotations

import math
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from attnwidgets._errors import quoted, suggest
from attnwidgets._progress import progress
from attnwidgets._tensors import widened
from attnwidgets.tracing.anatomy.forward import can_generate
from attnwidgets.tracing.recording.borrow import borrowed, quietly, unwrap
from attnwidgets.tracing.recording.continuation import greedy
from attnwidgets.tracing.recording.inputs import display_tokens, limit_of, text_tokenizer
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn

    from attnwidgets.tracing.trace import Trace

How = Literal["greedy", "sample", "beam"]
WAYS = ("greedy", "sample", "beam")


@dataclass(frozen=True, repr=False)
class Continuation:
    """One continuation of a traced text.

    Attributes:
        text: The generated text, without special tokens.
        tokens: Display strings of its tokens, including the token that ended it.
        ids: Their ids.
        log_probabilities: Natural logarithm of each token's probability given everything before it, by the
            model: at temperature 1 and among its whole vocabulary, however the token was chosen.
        ended: Whether the model ended it; otherwise it reached the number of tokens.
    """

    text: str
    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    ended: bool

    @property
    def log_probability(self) -> float:
        """Natural logarithm of the probability of the whole continuation."""
        return math.fsum(self.log_probabilities)

    @property
    def probability(self) -> float:
        """The probability of the whole continuation: the product over its tokens."""
        return math.exp(self.log_probability)

    def __repr__(self) -> str:
        count = f"{len(self.ids)} token{'' if len(self.ids) == 1 else 's'}"
        size = f"{count}, {'ended by the model' if self.ended else 'not ended'}"
        return f"<Continuation {quoted(self.text)}: {size}, probability {self.probability:.3g}>"


def continuations(
    trace: Trace,
    how: How = "greedy",
    n: int = 1,
    *,
    max_new_tokens: int = 20,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    beams: int | None = None,
    seed: int = 0,
) -> tuple[Continuation, ...]:
    """Return continuations of a traced text; the model, and torch's random numbers, are left as they were.

    transformers' `generate` makes them, without the beams, penalties and stops that a checkpoint may set.

    Args:
        trace: Trace returned by `aw.trace`, of a model that generates. An encoder-decoder model continues its
            decoder's text.
        how: "greedy" takes the most probable token at every step, "sample" draws, "beam" keeps the `beams`
            most probable beginnings.
        n: Number of continuations: 1 for "greedy"; for "beam" the most probable, without a length
            penalty.
        max_new_tokens: Largest number of tokens of a continuation.
        temperature: For "sample": logits are divided by it.
        top_k: For "sample": draw among this many most probable tokens; None: among all.
        top_p: For "sample": draw among the fewest tokens whose probabilities reach this sum, after
            temperature and `top_k`.
        beams: For "beam": the number of beams; None: 4, or `n` if that is more.
        seed: For "sample": the same seed draws the same.

    Returns:
        The continuations: samples in the order they were drawn, beams with the most probable first.

    Raises:
        UnsupportedModelError: The trace has no model, or it does not generate.
        ValueError: An option is out of its range, or so many tokens exceed the model's limit.

    Example:
        >>> trace = aw.trace(*aw.demo_model("decoder"), "The capital of France is")
        >>> aw.continuations(trace, max_new_tokens=2)[0].text
        ' Paris.'
    """
    model, reader, inputs, begins = _start(trace, max_new_tokens)
    beams = max(4, n) if beams is None and how == "beam" else beams
    _check(how, n, temperature, top_k, top_p, beams)
    options = greedy(model, max_new_tokens)
    options.return_dict_in_generate = options.output_logits = True
    options.num_return_sequences = n
    if how == "sample":
        options.do_sample, options.temperature, options.top_p = True, float(temperature), float(top_p)
        options.top_k = top_k or 0
    elif how == "beam":
        options.num_beams, options.length_penalty = beams, 0.0
    with borrowed(model) as twin, _seeded(model, seed), quietly(), _watched(max_new_tokens) as watch:
        out: Any = twin.generate(  # type: ignore[operator]  # transformers' models have it
            **inputs, generation_config=options, stopping_criteria=watch
        )
    ends = options.eos_token_id
    return _read(out, begins, set(ends if isinstance(ends, list) else [ends]), reader)


def _start(trace: Trace, new: int) -> tuple[Any, Any, dict[str, Any], int]:
    """Return the model, its tokenizer, its inputs, and how many tokens of a result are already in them."""
    if trace.model is None:
        raise UnsupportedModelError(
            "continuations need a model, but this trace has no model; "
            "make it with aw.trace(model, tokenizer, text)"
        )
    model: Any = unwrap(trace.model)
    if not can_generate(model):
        raise UnsupportedModelError(
            f"continuations need a model that generates, and {type(model).__name__} does not; "
            "load it with a language-model head (AutoModelForCausalLM or AutoModelForSeq2SeqLM)"
        )
    if new < 1:
        raise ValueError(f"max_new_tokens must be 1 or more, not {new}")
    inputs = {name: value for name, value in trace.inputs.items() if name != "decoder_attention_mask"}
    ids = inputs.get("decoder_input_ids", inputs.get("input_ids"))
    if ids is None:
        raise UnsupportedModelError("continuations need a text to continue, but this trace has no text")
    if "input_ids" in inputs:
        inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    reader = text_tokenizer(trace.tokenizer)
    limit = limit_of(model, reader)
    if limit is not None and ids.shape[1] + new > limit:
        raise ValueError(
            f"max_new_tokens is {new}, but the model takes {limit} tokens, and the text has {ids.shape[1]}"
        )
    return model, reader, inputs, int(ids.shape[1])


def _check(how: str, n: int, temperature: float, top_k: int | None, top_p: float, beams: int | None) -> None:
    if how not in WAYS:
        raise ValueError(f"how={how!r} is not one of {', '.join(map(repr, WAYS))}.{suggest(how, WAYS)}")
    if n < 1 or (how == "greedy" and n > 1):
        raise ValueError(f"n must be {'1: greedy is one text' if how == 'greedy' else '1 or more'}, not {n}")
    if how != "sample" and (temperature != 1 or top_k or top_p != 1):
        raise ValueError(f"temperature, top_k and top_p are for how='sample', and how is {how!r}")
    require_sampling(temperature, top_p)
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be 1 or more, or None for all tokens, not {top_k}")
    if beams is not None and (how != "beam" or beams < max(2, n)):
        raise ValueError(f"beams are for how='beam', at least 2 and at least n; given {beams} for {how!r}")


def require_sampling(temperature: float, top_p: float) -> None:
    """Raise a ValueError unless tokens can be drawn at this temperature, among this share of probability."""
    if not temperature > 0:
        raise ValueError(
            f"temperature must be above 0, not {temperature}: 0 is greedy decoding, which draws nothing"
        )
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p is a sum of probabilities, above 0 and at most 1, not {top_p}")


@contextmanager
def _seeded(model: nn.Module, seed: int) -> Iterator[None]:
    """Draw with this seed, and leave torch's generators as they were."""
    devices = {p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(sorted(devices)):
        torch.manual_seed(seed)
        yield


@contextmanager
def _watched(new: int) -> Iterator[Any]:
    """Yield a stopping criterion that reports each step's progress, whose observer may cancel the work."""
    from transformers import StoppingCriteria, StoppingCriteriaList

    with closing(progress(range(new), desc="continuing")) as steps:

        class Report(StoppingCriteria):
            def __call__(self, input_ids: Tensor, *_: Any, **__: Any) -> Tensor:
                next(steps, None)
                return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

        yield StoppingCriteriaList([Report()])


def _read(out: Any, begins: int, ends: set[Any], reader: Any) -> tuple[Continuation, ...]:
    results = []
    beams = getattr(out, "beam_indices", None)
    steps: Sequence[Tensor] = out.logits
    for number, row in enumerate(out.sequences[:, begins:].tolist()):
        length = next((i + 1 for i, token in enumerate(row) if token in ends), len(row))
        ids = row[: min(length, len(steps))]
        rows = [number] * len(ids) if beams is None else beams[number, : len(ids)].tolist()
        logs = tuple(
            float(widened(steps[step][beam]).log_softmax(-1)[token])
            for step, (beam, token) in enumerate(zip(rows, ids, strict=True))
        )
        text = " ".join(map(str, ids)) if reader is None else reader.decode(ids, skip_special_tokens=True)
        tokens = tuple(map(str, ids)) if reader is None else display_tokens(reader, ids)
        results.append(Continuation(text, tokens, tuple(ids), logs, bool(ids) and ids[-1] in ends))
    if beams is not None:
        results.sort(key=lambda result: -result.log_probability)
    return tuple(results)
