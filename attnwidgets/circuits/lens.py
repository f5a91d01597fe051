"""aw.circuits.lens: predictions from the states after each layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from attnwidgets._gradients import no_grad
from attnwidgets.circuits.lens_result import Lens
from attnwidgets.circuits.translator import Translator
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace, without_clause
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.explanations.targets.resolve import TOKENS, spell
from attnwidgets.tracing.algebra.steps import apply_steps
from attnwidgets.tracing.anatomy.output_heads import head_of
from attnwidgets.tracing.block_replay import every_block
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from attnwidgets.tracing.anatomy.output_heads import Head
    from attnwidgets.tracing.trace import Trace

PAPER = "nostalgebraist 2020, interpreting GPT: the logit lens"
_BYTES = 2**25  # of a layer's logits in memory at a time


def lens(trace: Any, answer: Any = None, *, translator: Translator | None = None, top: int = 5) -> Lens:
    """Return the predictions of every token's state after each layer, by the model's head: the logit lens.

        p_l = softmax(W_U norm(h_l))

    h_l is the input of block l; row L is the model's output, bit for bit. In layers far from the last,
    states are written in other directions than those the head reads, so that the lens can show tokens that
    mean nothing (in SmolLM2, "," and "." until the last layers): a low rank of the answer there does not say
    that the model lacks it. A translator rewrites each layer's states in the directions of the last layer
    first. Decoded in float32, some tokens at a time.

    Args:
        trace: Trace returned by `aw.trace`, of a model that predicts tokens.
        answer: A token, by its string or id, whose rank and probability are followed; by default the model's
            prediction.
        translator: Result of `aw.circuits.fit_translator` for this model, or `Translator.load` opened
            (published tuned lenses, too); by default states are read as they are.
        top: Number of the most probable tokens that are stored for each layer and token.

    Returns:
        Lens: `.rank` (0 for the most probable), `.probability`, `.entropy` (nats) and `.kl`,
        KL(model || lens) in nats, each [layer, token] with layers 0 to L; `.top_tokens(k)` are the most
        probable tokens.

    Raises:
        ValueError: If the answer is not a single token, `top` is below 1, or the translator is of another
            model.
        UnsupportedModelError: If the model has no head that predicts tokens, or a head that is not described.
        TypeError: If `trace` is not a trace.

    Source: nostalgebraist 2020, interpreting GPT: the logit lens; Belrose et al. 2023, section 2.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> lens = aw.circuits.lens(aw.trace(model, tokenizer, "fadebcfadeb"), "c")
        >>> lens.rank[:, -1].tolist()
        [0, 0, 0]
        >>> [round(float(share), 2) for share in lens.probability[:, -1]]
        [0.11, 0.11, 1.0]
    """
    require_trace(trace, "circuits.lens")
    if top < 1:
        raise ValueError(f"top must be 1 or more, not {top}.")
    traced = cast("Trace", trace)
    _require_tokens(traced)
    target = resolve_target(traced, answer, method="lens", name="answer", logit=True)
    stack = "decoder" if "decoder" in traced.stacks else traced.default_stack
    blocks = every_block(traced, stack, "lens")
    head = head_of(traced, stack, "lens", target.position)
    states = [block.hidden[0] for block in blocks.layers.values()]
    options: dict[str, Any] = {}
    if translator is not None:
        _require_translator(translator, traced, states)
        options["translator"] = translator.said
    numbers: dict[str, Any] = _read(head, states, int(cast("int", target.index)), top, translator)
    labels = {index: spell(traced, index) for index in np.unique(numbers["top_ids"]).tolist()}
    common = provenance_of(traced, stack, "circuits.lens", paper=PAPER, options=options, notes=[target.note])
    # States are read, and no map of how tokens mix, which blocks without attention could be missing from.
    for attention in (True, False):
        common["warning"] = without_clause(common["warning"], traced.left_out(stack, attention=attention))
    return Lens(
        **numbers,
        answer=target.label,
        labels=labels,
        tokens=traced.axes(stack)[0].tokens,
        answer_id=int(cast("int", target.index)),
        made_of=(traced, translator),
        **common,
    )


def _require_tokens(traced: Trace) -> None:
    if traced.logits is None or traced.logits.dim() != TOKENS:
        reason = "returns no logits" if traced.logits is None else "predicts classes, not tokens"
        raise UnsupportedModelError(
            f"lens decodes states by the model's head, and {traced.model_id or 'this model'} {reason}; "
            "load it with a head that predicts tokens (AutoModelForCausalLM, AutoModelForMaskedLM)."
        )


def _require_translator(translator: Any, traced: Trace, states: list[Tensor]) -> None:
    if not isinstance(translator, Translator):
        raise TypeError(
            f"translator is a {type(translator).__name__}; make one with aw.circuits.fit_translator."
        )
    translator.require_model(traced.model, len(states), states[0].shape[-1])


def decoded(
    traced: Trace, rows: slice, method: str, translator: Translator | None = None
) -> Iterator[Tensor]:
    """Yield the logits of some tokens' states before every block, and last the model's [token, vocabulary].

    Args:
        traced: A trace of a model that predicts tokens.
        rows: The tokens.
        method: The method's name, for messages.
        translator: Rewrites the states of a layer first.

    Raises:
        UnsupportedModelError: If the model predicts no tokens, or its head is not described.
        TypeError: If the translator is none.
    """
    _require_tokens(traced)
    stack = "decoder" if "decoder" in traced.stacks else traced.default_stack
    head = head_of(traced, stack, method, rows.start)
    states = [block.hidden[0] for block in every_block(traced, stack, method).layers.values()]
    if translator is not None:
        _require_translator(translator, traced, states)
    for layer, state in enumerate(states):
        yield _logits(head, state[rows], layer, translator)
    yield head.logits[rows].float()


def _logits(head: Head, state: Tensor, layer: int, translator: Translator | None) -> Tensor:
    state = state.to(head.hidden)
    state = state if translator is None else translator(layer, state)
    return apply_steps((*head.before, *head.steps), state).float().cpu()


def _read(
    head: Head, states: list[Tensor], answer: int, top: int, translator: Translator | None
) -> dict[str, np.ndarray]:
    """Return the numbers of every layer [layer, token] and the most probable tokens [layer, token, k]."""
    n_tokens, n_words = head.logits.shape
    shape = (len(states) + 1, n_tokens)
    top = min(top, n_words)
    numbers: dict[str, np.ndarray] = {name: np.zeros(shape) for name in ("probability", "entropy", "kl")}
    numbers["rank"] = np.zeros(shape, dtype=np.int64)
    numbers |= {
        "top_ids": np.zeros((*shape, top), dtype=np.int64),
        "top_probabilities": np.zeros((*shape, top)),
    }
    size = max(1, _BYTES // (4 * n_words))
    with no_grad():
        for start in range(0, n_tokens, size):
            rows = slice(start, start + size)
            final = head.logits[rows].float().log_softmax(-1)
            for layer in range(shape[0]):
                logits = head.logits[rows].float()
                if layer < len(states):
                    logits = _logits(head, states[layer][rows], layer, translator)
                for name, value in _row_numbers(logits, final, answer, top).items():
                    numbers[name][layer, rows] = value.numpy()
    return numbers


def _row_numbers(logits: Tensor, final: Tensor, answer: int, top: int) -> dict[str, Tensor]:
    """Return the numbers of some tokens from their logits [token, vocabulary] and the model's log p."""
    log_p, p = logits.log_softmax(-1), logits.softmax(-1)  # equal to the model's predictions, bit for bit
    best = p.topk(top, dim=-1)
    return {
        "probability": p[:, answer],
        "rank": (logits > logits[:, [answer]]).sum(-1),
        "entropy": -torch.special.xlogy(p, p).sum(-1),
        "kl": (final.exp() * (final - log_p)).sum(-1),
        "top_ids": best.indices,
        "top_probabilities": best.values,
    }
