"""Surprisal: how unexpected every token of a text was to the model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._progress import progress
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.tracing.trace import Trace

PAPER = "Hale 2001, A Probabilistic Earley Parser as a Psycholinguistic Model"
PSEUDO = "Salazar et al. 2020, Masked Language Model Scoring"

MEASURES = {"bits": math.log(2), "nats": 1.0}


def surprisal(
    trace: Trace, *, measure: Literal["bits", "nats"] = "bits", pseudo: bool = False, batch_size: int = 16
) -> Attributions:
    """Return -log p of every token given those before it, from the logits that the trace has.

    Surprisals of a word's pieces add up to the word's (`.to("word")`), those of a text to -log p of the text
    given its first token. The first token follows nothing: it has none, counts as 0, and `warning` says so.

    Args:
        trace: What `aw.trace` returned. Of an encoder-decoder model the decoder's text is read.
        measure: "bits" (logarithm to base 2) or "nats".
        pseudo: Of a masked language model, which predicts no next token: -log p of every token from all
            others, itself masked, and the model run once for each (Salazar et al. 2020). These are not
            conditional probabilities of one text and their sum is no surprisal of it.
        batch_size: Of `pseudo`: how many masked copies run together.

    Returns:
        Attributions [source], 0 or more. Special tokens are predicted as any other, and 0 with `pseudo`.

    Raises:
        ValueError: The model predicts no tokens from those before them; or all but the last logits were
            dropped for memory; or `pseudo` is asked of a model without a mask token.
    """
    require_trace(trace, "surprisal")
    if measure not in MEASURES:
        known = ", ".join(map(repr, MEASURES))
        raise ValueError(f"measure={measure!r} is not one of {known}.{suggest(measure, MEASURES)}")
    stack = "decoder" if "decoder" in trace.stacks else trace.default_stack
    axis = trace.axes(stack)[0]
    if pseudo:
        values, notes, paper = _pseudo(trace, batch_size), [], PSEUDO
    else:
        values = surprisals(trace)
        notes, paper = ["the first token follows nothing and has no surprisal: it counts as 0"], PAPER
    if len(values) != len(axis):
        raise ValueError(
            f"the model was given {len(axis) - len(values)} positions that stand for no token, which have no "
            "surprisal"
        )
    common = provenance_of(
        trace, stack, "surprisal", paper=paper, options={"measure": measure, "pseudo": pseudo}
    )
    common["provenance"]["title"] = f"{'pseudo-' if pseudo else ''}surprisal in {measure}"
    common["warning"] = "; ".join(note for note in (common["warning"], *notes) if note)
    return Attributions(np.nan_to_num(values) / MEASURES[measure], axis=axis, **common)


def surprisals(trace: Trace) -> NDArray[np.float64]:
    """Return -log p of every token given those before it, in nats [token]; NaN of the first.

    Raises:
        ValueError: See `surprisal`.
    """
    import torch

    from attnwidgets.tracing.recording.borrow import unwrap
    from attnwidgets.tracing.recording.recorder import can_generate
    from attnwidgets.tracing.top_logits import read_ids

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
    found = np.full(len(ids), np.nan)
    for place, part in enumerate(logits[:-1].split(64)):
        following = torch.tensor(ids[64 * place + 1 : 64 * place + 1 + len(part)])
        log = part.double().log_softmax(-1)
        rows = log.gather(-1, following[:, None])[:, 0]
        found[64 * place + 1 : 64 * place + 1 + len(part)] = -rows.numpy()
    return found


def _pseudo(trace: Trace, batch_size: int) -> NDArray[np.float64]:
    """Return -log p of every token from all others, in nats; 0 of special ones."""
    import torch

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
    wanted = [i for i in range(len(trace.input_ids)) if not special[i]]
    found = np.zeros(len(trace.input_ids))
    with borrowed(unwrap(trace.model)) as twin:
        for start in progress(range(0, len(wanted), batch_size), desc="masking one token after the other"):
            places = wanted[start : start + batch_size]
            inputs = {name: _copies(value, len(places)) for name, value in trace.inputs.items()}
            masked = inputs["input_ids"].clone()
            rows = torch.arange(len(places), device=masked.device)
            at = torch.tensor(places, device=masked.device)
            own = masked[rows, at].clone()
            masked[rows, at] = mask
            out = twin(**(inputs | {"input_ids": masked})).logits[rows, at]
            found[places] = -out.double().log_softmax(-1).gather(-1, own[:, None])[:, 0].cpu().numpy()
    return found


def _copies(value: Any, n: int) -> Any:
    return value.expand(n, *value.shape[1:]) if hasattr(value, "expand") else value
