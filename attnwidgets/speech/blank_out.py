"""What a word is worth without its cue: the cue silenced in the sound, blanked in the text, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from attnwidgets._gradients import no_grad
from attnwidgets._selecting import position
from attnwidgets._tables import Table
from attnwidgets.evaluate.removals.sound_operators import refusal_of, silenced_inputs
from attnwidgets.explanations.targets.resolve import tokenizer_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.speech.word_times import WordTimes

PAPER = (
    "Mohebbi et al. 2023, Homophone Disambiguation Reveals Patterns of Context Mixing in Speech Transformers"
)
CONDITIONS = ("as it is", "cue silenced", "cue blanked in the text", "both")
_PURPOSE = "speech.blank_out"


@dataclass(frozen=True, eq=False, repr=False)
class BlankedOut(Table):
    """The probability of a word with and without its cue; `aw.speech.blank_out` makes it.

    Args:
        target: The word.
        cue: The words that were removed.
        probability: Mean probability of the word's tokens [condition], in the order of `conditions`.
        note: What readers must know; "" if nothing.
    """

    target: str
    cue: tuple[str, ...]
    probability: NDArray[np.float64]
    note: str = ""
    conditions: tuple[str, ...] = CONDITIONS

    @property
    def drop(self) -> NDArray[np.float64]:
        """How much of the probability is lost in each condition [condition]: 0 as it is."""
        return self.probability[0] - self.probability

    def _columns(self) -> Iterator[Columns]:
        """Yield condition, probability and drop."""
        names = np.asarray(self.conditions, dtype=object)
        yield {"condition": names, "probability": self.probability, "drop": self.drop}

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{name} {p:.3f}" for name, p in zip(self.conditions, self.probability, strict=True)
        )
        note = f"; {self.note}" if self.note else ""
        return f"<BlankedOut p({self.target!r}) without {' and '.join(map(repr, self.cue))}: {parts}{note}>"


def blank_out(times: WordTimes, target: int, cue: int | Sequence[int]) -> BlankedOut:
    """Return the probability of a word with its cue silenced in the sound, blanked in the text, and both.

    "He ate a pear": *pear* and *pair* sound alike, and *ate* tells them apart. The sound of the cue is
    replaced by zeros from its start to its end; its tokens in the decoder are replaced by the tokenizer's
    unknown token. A probability that falls says that the model used the cue, and from where: the sound, or
    what it wrote before.

    Args:
        times: Result of `aw.speech.align` for an encoder-decoder.
        target: Number of the word, from 0.
        cue: Number of the word that is removed, or several.

    Raises:
        ValueError: If the trace has no decoder, no model or no processor, or target and cue are one word.
        IndexError: If the word is out of range.

    Source: Mohebbi et al. 2023, section 5 (blanking out cues).

    Example:
        >>> import numpy as np
        >>> noise = np.random.default_rng(0).normal(0, 0.1, 16_000).astype("float32")
        >>> trace = aw.trace(*aw.demo_model("speech"), audio=noise, target_text=" Rain on leaves.")
        >>> aw.speech.blank_out(aw.speech.align(trace), target=2, cue=0).conditions
        ('as it is', 'cue silenced', 'cue blanked in the text', 'both')
    """
    import torch

    from attnwidgets.tracing.pass_memory import room_for_pass
    from attnwidgets.tracing.predictions import logits_in
    from attnwidgets.tracing.recording.borrow import borrowed, unwrap
    from attnwidgets.tracing.same_model import require_same_model

    trace = times.trace
    if times.how != "cross-attention" or trace.model is None:
        raise ValueError(
            "blank_out() needs an encoder-decoder, whose text aw.speech.align aligned by its heads."
        )
    if refusal := refusal_of(trace, "encoder"):
        raise ValueError(f"the cue cannot be silenced: {refusal}.")
    word = position(target, range(len(times)), "target")
    cues = [position(one, range(len(times)), "cue") for one in ([cue] if isinstance(cue, int) else cue)]
    if word in cues or not cues:
        raise ValueError(f"cue must name words other than the target, {times.words[word]!r}.")
    unit = trace.axes("encoder")[0].units["frame"]
    gone = np.zeros((4, len(unit)), dtype=bool)
    begins = np.array([np.inf if span is None else span[0] for span in unit.times or ()]) + 1e-6
    for one in cues:
        inside = (times.start[one] <= begins) & (begins < times.end[one])
        gone[1] |= inside
        gone[3] |= inside
    inputs = silenced_inputs(trace, "encoder", gone)
    ids: Any = inputs["decoder_input_ids"].clone()
    places = _places(times)
    blank = _unknown(trace)
    for one in cues:
        for token in range(*times.tokens[one]):
            ids[[2, 3], places[token]] = blank
    inputs["decoder_input_ids"] = ids
    require_same_model(trace, _PURPOSE)
    model = unwrap(trace.model)
    with borrowed(model) as twin, room_for_pass(model, trace, _PURPOSE), no_grad():
        outputs = trace.call(twin, inputs, {"return_dict": True, "use_cache": False}, {})
    chosen = [places[token] for token in range(*times.tokens[word])]
    log_p = cast("torch.Tensor", logits_in(outputs)).double().log_softmax(-1)
    # Every token is written by the row before it; what it is did not change, as the target is not a cue.
    own = [log_p[:, place - 1, int(ids[0, place])].exp() for place in chosen]
    later = [times.words[one] for one in cues if one > word]
    note = f"{', '.join(map(repr, later))} follows the target, whose text cannot see it" if later else ""
    return BlankedOut(
        times.words[word],
        tuple(times.words[one] for one in cues),
        np.asarray(torch.stack(own).mean(0).cpu()),
        note,
    )


def _places(times: WordTimes) -> list[int]:
    """Return the places of the text's tokens among the decoder's ids."""
    special = times.trace.axes("decoder")[0].units["token"].special
    extra = len(special) - int(times.trace.inputs["decoder_input_ids"].shape[1])
    return [place - extra for place in range(len(special)) if not special[place]]


def _unknown(trace: Any) -> int:
    """Return the id of the tokenizer's unknown token, or else of its end."""
    reader = tokenizer_of(trace)
    for holder in (reader, getattr(trace.model, "config", None)):
        for name in ("unk_token_id", "eos_token_id"):
            number = getattr(holder, name, None)
            if isinstance(number, int):
                return number
    return 0
