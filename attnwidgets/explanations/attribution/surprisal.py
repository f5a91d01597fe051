"""Surprisal: how unexpected every token of a text was to the model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._progress import progress
from attnwidgets.explanations.registry.documentation import documented
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.tracing.trace import Trace

PAPER = "Hale 2001, A Probabilistic Earley Parser as a Psycholinguistic Model"
PSEUDO = "Salazar et al. 2020, Masked Language Model Scoring"

MEASURES = {"bits": math.log(2), "nats": 1.0}
_ROWS = 64  # of logits that are turned into probabilities at a time


@documented
def surprisal(
    trace: Trace, *, measure: Literal["bits", "nats"] = "bits", pseudo: bool = False, batch_size: int = 16
) -> Attributions:
    """Return -log p of every token given the tokens before it, from the trace's logits.

    Surprisals of a word's pieces add up to the word's (`.to("word")`), those of a text to -log p of the text
    given its first token. The first token follows nothing and has no surprisal: it counts as 0, and `warning`
    says so.

    Args:
        trace: {trace} For an encoder-decoder model, the decoder's text is read.
        measure: "bits" (logarithm to base 2) or "nats".
        pseudo: For a masked language model, which predicts no next token: -log p of every token from all
            others, with the token itself masked; the model runs once for each (Salazar et al. 2020). These
            are not conditional probabilities of a text, and their sum is not its surprisal.
        batch_size: With `pseudo`, the number of masked copies that run together.

    Returns:
        Attributions [source], 0 or more. Special tokens are predicted like any other, and 0 with `pseudo`.

    Raises:
        ValueError: If the model does not predict tokens from those before them, if all but the last logits
            were dropped to save memory, or if `pseudo` is given for a model without a mask token.

    Example:
        >>> trace = aw.trace(*aw.demo_model("decoder"), "The capital of France is Paris.")
        >>> aw.surprisal(trace).warning
        'the first token follows nothing and has no surprisal: it counts as 0'
    """
    require_trace(trace, "surprisal")
    require_choice("measure", measure, tuple(MEASURES))
    stack = "decoder" if "decoder" in trace.stacks else trace.default_stack
    axis = trace.axes(stack)[0]
    if pseudo:
        values, note, paper = _pseudo_surprisals(trace, batch_size), "", PSEUDO
    else:
        values, paper = surprisals(trace), PAPER
        note = "the first token follows nothing and has no surprisal: it counts as 0"
    if len(values) != len(axis):
        raise ValueError(
            f"the input has {len(axis) - len(values)} positions that stand for no token and have no surprisal"
        )
    common = provenance_of(
        trace,
        stack,
        "surprisal",
        title=f"{'pseudo-' if pseudo else ''}surprisal in {measure}",
        paper=paper,
        options={"measure": measure, "pseudo": pseudo},
        notes=[note],
    )
    return Attributions(np.nan_to_num(values) / MEASURES[measure], axis=axis, **common)


def surprisals(trace: Trace) -> NDArray[np.float64]:
    """Return -log p of every token given those before it, in nats [token]; NaN for the first.

    Raises:
        ValueError: See `surprisal`.
    """
    import torch

    from attnwidgets.tracing.anatomy.forward import can_generate
    from attnwidgets.tracing.predictions import read_ids
    from attnwidgets.tracing.recording.borrow import unwrap

    logits = trace.logits
    if logits is None or logits.dim() == 1 or trace.model is None:
        raise ValueError(
            "surprisal needs a model that predicts tokens; load it with a language-model head "
            "(AutoModelForCausalLM)"
        )
    if not can_generate(unwrap(trace.model)):
        raise ValueError(
            f"surprisal is -log p of a token given those before it, and {type(unwrap(trace.model)).__name__} "
            "sees the whole text; aw.surprisal(trace, pseudo=True) masks one token after the other instead"
        )
    ids = read_ids(trace)
    if len(logits) != len(ids):
        raise ValueError(
            "surprisal needs the logits of every token, and only the last were kept; "
            "aw.trace(..., memory='4GB') keeps all"
        )
    following = torch.tensor(ids)[1:, None]
    parts = zip(logits[:-1].split(_ROWS), following.split(_ROWS), strict=True)
    rows = [part.double().log_softmax(-1).gather(-1, tokens)[:, 0] for part, tokens in parts]
    return np.concatenate([[np.nan], *(-row.numpy() for row in rows)])


def _pseudo_surprisals(trace: Trace, batch_size: int) -> NDArray[np.float64]:
    """Return -log p of every token from all others, in nats [token]; 0 for special tokens."""
    import torch

    from attnwidgets.tracing.recording.batch import in_copies
    from attnwidgets.tracing.recording.borrow import borrowed, unwrap
    from attnwidgets.tracing.recording.inputs import text_tokenizer

    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more, not {batch_size}")
    mask: Any = getattr(text_tokenizer(trace.tokenizer), "mask_token_id", None)
    logits = trace.logits
    masked_model = logits is not None and logits.dim() > 1 and mask is not None
    if trace.model is None or trace.input_ids is None or not masked_model:
        raise ValueError(
            "pseudo=True needs a masked language model and its tokenizer, which has a mask token "
            "(AutoModelForMaskedLM)"
        )
    special = trace.units["token"].special
    in_text = [position for position in range(len(trace.input_ids)) if not special[position]]
    surprisal = np.zeros(len(trace.input_ids))
    with borrowed(unwrap(trace.model)) as model:
        for start in progress(range(0, len(in_text), batch_size), desc="masking one token after the other"):
            positions = in_text[start : start + batch_size]
            inputs = in_copies(trace.inputs, len(positions))
            masked = inputs["input_ids"].clone()
            cells = torch.arange(len(positions)), torch.tensor(positions)
            tokens = masked[cells].clone()[:, None]
            masked[cells] = mask
            logits = model(**(inputs | {"input_ids": masked})).logits[cells]
            log_p = logits.double().log_softmax(-1).gather(-1, tokens)
            surprisal[positions] = -log_p[:, 0].cpu().numpy()
    return surprisal
