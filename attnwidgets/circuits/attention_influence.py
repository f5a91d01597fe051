"""aw.circuits.attention_influence: how much worse a model predicts each text without some heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from attnwidgets._errors import require_choice
from attnwidgets._progress import progress
from attnwidgets._tables import Table
from attnwidgets.explanations.results.trace_protocol import resolve_stack
from attnwidgets.intervene.edit_attention import edit_attention
from attnwidgets.intervene.heads import ablate_heads, chosen_heads, describe_heads
from attnwidgets.tracing.anatomy.attention_modules import sites
from attnwidgets.tracing.recording.run import trace as record
from attnwidgets.tracing.text.given_texts import listed_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

Masking = Literal["zero", "uniform"]
MASKINGS: tuple[Masking, ...] = ("zero", "uniform")
_TOKENS = 2  # dimensions of logits [token, vocabulary]


@dataclass(frozen=True, repr=False)
class AttentionInfluence(Table):
    """Losses of texts with and without some heads.

    Attributes:
        texts: The texts.
        loss: Mean loss of the next token, in nats, of the whole model [text].
        masked: The same without the heads [text].
        control: The same without an equal number of other heads, drawn by chance [draw, text].
        heads: The heads, as (layer, head).
        drawn: The heads of every draw.
    """

    texts: tuple[str, ...]
    loss: Float
    masked: Float
    control: Float
    heads: tuple[tuple[int, int], ...]
    drawn: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def influence(self) -> Float:
        """(masked - loss) / loss [text]."""
        return (self.masked - self.loss) / self.loss

    @property
    def control_influence(self) -> Float:
        """The same of every draw [draw, text]."""
        return (self.control - self.loss) / self.loss

    def _columns(self) -> Iterator[Columns]:
        """Yield text, loss, masked, influence, control_influence (mean over draws)."""
        yield {
            "text": self.texts,
            "loss": self.loss,
            "masked": self.masked,
            "influence": self.influence,
            "control_influence": self.control_influence.mean(axis=0),
        }

    def ranked(self) -> list[tuple[str, float, float]]:
        """Return (text, influence, mean influence of the controls), the largest influence first."""
        influence, by_chance = self.influence, self.control_influence.mean(axis=0)
        order = np.argsort(-influence, kind="stable")
        return [(self.texts[i], float(influence[i]), float(by_chance[i])) for i in order]

    def __repr__(self) -> str:
        mean, by_chance = self.influence.mean(), self.control_influence.mean()
        return (
            f"<AttentionInfluence of {len(self.heads)} heads on {len(self.texts)} texts: mean {mean:.3g}, "
            f"random heads {by_chance:.3g}>"
        )


def attention_influence(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    heads: Any,
    *,
    how: Masking = "zero",
    draws: int = 3,
    seed: int = 0,
) -> AttentionInfluence:
    """Return how much worse a model predicts each text without some of its heads, compared with random heads.

        influence = (loss without the heads - loss) / loss

    The authors mask the retrieval heads of a small model, and select texts on which that costs most as good
    data for training. Any heads serve: the measure ranks texts by their need of these heads. As a control,
    an equal number of other heads, drawn by chance, is masked, since any loss of heads costs something.

    Args:
        model: A decoder that predicts tokens.
        tokenizer: Its tokenizer.
        texts: Texts of two tokens or more.
        heads: (layer, head), a list of such pairs, or heads by layer; see `aw.ablate_heads`.
        how: "zero" (heads write nothing) or "uniform" (they read all tokens alike).
        draws: Number of random sets of heads.
        seed: Seed of the draws.

    Returns:
        AttentionInfluence: `.influence` [text], `.control_influence` [draw, text], `.ranked()`.

    Raises:
        ValueError: If texts or heads are empty, a text is too short, `draws` is below 1, or too few other
            heads are left; if the model does not predict the next token.
        IndexError: If the layer or head is out of range.

    Source: Hua et al. 2025, AttentionInfluence: Adopting Attention Head Influence for Weak-to-Strong
    Pretraining Data Selection (relative loss; the control is ours).

    Example:
        >>> model, tokenizer = aw.zoo.trained("induction")
        >>> texts = ["abcdefgabcdefgabcdefg", "qhzwoykbrtlmcpae"]
        >>> aw.circuits.attention_influence(model, tokenizer, texts, (1, 1), draws=1).ranked()[0][0]
        'abcdefgabcdefgabcdefg'
    """
    require_choice("how", how, MASKINGS)
    texts = listed_texts(texts)
    if not texts:
        raise ValueError("texts is empty.")
    if draws < 1:
        raise ValueError(f"draws must be 1 or more, not {draws}.")
    sets: list[tuple[tuple[int, int], ...]] = []
    losses: list[list[float]] = []
    for text in progress(texts, desc="attention influence"):
        trace = record(model, tokenizer, text)
        of_text = [_loss(trace, text)]
        sets = sets or _sets(trace, heads, draws, seed)
        for chosen in sets:
            change = (
                ablate_heads(trace, list(chosen))
                if how == "zero"
                else edit_attention(trace, list(chosen), "uniform")
            )
            of_text.append(_loss(trace.rerun(change), text))
        losses.append(of_text)
    values = np.array(losses).T
    return AttentionInfluence(tuple(texts), values[0], values[1], values[2:], sets[0], tuple(sets[1:]))


def _sets(trace: Trace, heads: Any, draws: int, seed: int) -> list[tuple[tuple[int, int], ...]]:
    """Return the chosen heads, and an equal number of other heads for every draw."""
    stack = resolve_stack(trace, None)
    modules = sites(trace)[stack]
    by_layer = chosen_heads(heads, modules)
    chosen = [(layer, head) for layer, some in by_layer.items() for head in some]
    others = [
        head
        for layer in trace.layers(stack)
        for head in ((layer, number) for number in range(trace.n_heads(stack, layer)))
        if head not in chosen
    ]
    if not chosen or len(others) < len(chosen):
        raise ValueError(
            f"heads are {describe_heads(by_layer)}; {len(others)} others are too few for a control."
        )
    rng = np.random.default_rng(seed)
    drawn = [rng.choice(len(others), size=len(chosen), replace=False) for _ in range(draws)]
    return [tuple(chosen), *(tuple(others[i] for i in sorted(numbers)) for numbers in drawn)]


def _loss(trace: Trace, text: str) -> float:
    """Return the mean loss of a text's next tokens, in nats."""
    ids = trace.inputs.get("input_ids")
    stack = resolve_stack(trace, None)
    if trace.logits is None or trace.logits.dim() != _TOKENS or ids is None or not trace.is_causal(stack):
        raise ValueError("attention_influence needs a decoder that predicts the next token.")
    tokens = ids[0].cpu()
    if len(tokens) < _TOKENS:
        raise ValueError(f"text {text!r} has {len(tokens)} tokens: nothing is predicted.")
    logits = torch.as_tensor(trace.logits)[:-1].double()
    return float(torch.nn.functional.cross_entropy(logits, tokens[1:]))
