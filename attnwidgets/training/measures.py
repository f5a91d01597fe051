"""The curves that have a name: measures of a model, step by step, on texts that repeat."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._gradients import no_grad
from attnwidgets.circuits.head_circuits import head_circuits
from attnwidgets.intervene.heads import ablate_heads
from attnwidgets.tracing.recording.run import trace as record

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from attnwidgets.training.repeats import Repeats

    Float = NDArray[np.float64]

OFFSETS = (-1, 0, 1, 2, 3)
"""Distances from the earlier copy of a query's token at which attention is measured; 1: induction."""


@dataclass(frozen=True)
class Look:
    """A model at a step, and the texts on which it is measured. Shared intermediate values are computed once.

    Attributes:
        model: The model.
        tokenizer: Its tokenizer.
        texts: The rows that repeat.
    """

    model: Any
    tokenizer: Any
    texts: Repeats

    @cached_property
    def attention(self) -> list[Float]:
        """Attention of every layer [row, head, query, key]."""
        traces = record(self.model, self.tokenizer, input_ids=self.texts.ids.tolist())
        layers = traces[0].layers()
        return [np.stack([np.asarray(trace.attention_layer(n), float) for trace in traces]) for n in layers]

    @cached_property
    def composition(self) -> dict[str, Float]:
        """Composition [layer, head, earlier layer, earlier head] by "query", "key" and "value"."""
        counts = [weights.shape[1] for weights in self.attention]
        shape = (len(counts), max(counts)) * 2
        circuits = [
            [head_circuits(self.model, self.tokenizer, layer, head) for head in range(count)]
            for layer, count in enumerate(counts)
        ]
        result = {kind: np.full(shape, np.nan) for kind in COMPOSITIONS}
        for head, earlier in product(chain(*circuits), repeat=2):
            if earlier.layer < head.layer:
                for kind, share in head.composition(earlier).items():
                    result[kind][head.layer, head.head, earlier.layer, earlier.head] = share
        return result

    def logits(self) -> Float:
        """Return the logits [row, token, vocabulary].

        Raises:
            ValueError: If the model does not predict the next token.
        """
        import torch

        config = getattr(self.model, "config", None)
        ids = torch.as_tensor(self.texts.ids, device=next(self.model.parameters()).device)
        with no_grad():
            out: Any = getattr(self.model(input_ids=ids), "logits", None)
        fits = out is not None and out.dim() == 3 and out.shape[1] == ids.shape[1]  # noqa: PLR2004
        if getattr(config, "is_encoder_decoder", False) or not fits or out.shape[-1] <= int(ids.max()):
            raise ValueError(
                f"{type(self.model).__name__} does not predict the next token of these texts, which "
                "behaviour, in-context loss and cause are about; measure a function of your own: "
                "run.curve(lambda model: ..., name=...)."
            )
        result: Float = out.double().cpu().numpy()
        return result

    def accuracy(self) -> float:
        """Return the share of positions of the second copy at which the next token has the largest logit."""
        predicted = self.logits()[:, self.texts.second : -1].argmax(-1)
        return float((predicted == self.texts.ids[:, self.texts.second + 1 :]).mean())


def at_offset(look: Look, offset: int) -> Float:
    """Return the mean weight on the key `offset` after the earlier copy of the query [layer, head]."""
    distance = look.texts.period - offset
    queries = look.texts.queries
    queries = queries[queries >= distance]
    if distance < 0 or not len(queries):
        return np.full((len(look.attention), look.attention[0].shape[1]), np.nan)
    return _stacked([weights[:, :, queries, queries - distance].mean((0, 2)) for weights in look.attention])


def _stacked(layers: list[Float]) -> Float:
    """Return [layer, head]; NaN where a layer has fewer heads."""
    heads = max(len(layer) for layer in layers)
    return np.stack([np.pad(layer, (0, heads - len(layer)), constant_values=np.nan) for layer in layers])


def _previous(look: Look) -> Float:
    return at_offset(look, look.texts.period - 1)


def _induction(look: Look) -> Float:
    return at_offset(look, 1)


def _offset(look: Look) -> Float:
    return np.stack([at_offset(look, k) for k in OFFSETS], -1)


def _behaviour(look: Look) -> Float:
    return np.asarray(look.accuracy())


def _in_context_loss(look: Look) -> Float:
    """Return the loss of the tokens of the second copy less that of the first."""
    logits, ids = look.logits()[:, :-1], look.texts.ids[:, 1:]
    logits -= logits.max(-1, keepdims=True)
    chosen = np.take_along_axis(logits, ids[..., None], -1)[..., 0]
    losses = np.log(np.exp(logits).sum(-1)) - chosen  # of the token after each position
    first, second = losses[:, : look.texts.second], losses[:, look.texts.second :]
    return np.asarray(second.mean() - first.mean())


def _cause(look: Look) -> Float:
    whole = look.accuracy()
    counts = [weights.shape[1] for weights in look.attention]
    layers = []
    for layer, count in enumerate(counts):
        lost = []
        for head in range(count):
            with ablate_heads(look.model, {layer: [head]}):
                lost.append(whole - look.accuracy())
        layers.append(np.asarray(lost))
    return _stacked(layers)


class Measure(NamedTuple):
    """The measure that a curve shows.

    Attributes:
        of: Returns its numbers for a model at a step.
        axes: The names of the axes of these numbers.
        meaning: Its definition, in words.
    """

    of: Callable[[Look], Float]
    axes: tuple[str, ...]
    meaning: str


def _composition(kind: str) -> Measure:
    meaning = f"share of what the earlier head writes that can reach the head's {kind}, by their weights"
    return Measure(lambda look: look.composition[kind], PAIRS, meaning)


HEADS = ("layer", "head")
PAIRS = (*HEADS, "earlier layer", "earlier head")
COMPOSITIONS = ("query", "key", "value")
MEASURES = {
    "behaviour": Measure(_behaviour, (), "share of the second copy that the model continues"),
    "in-context loss": Measure(_in_context_loss, (), "loss at the second copy less loss at the first"),
    "previous": Measure(_previous, HEADS, "attention to the token before"),
    "induction": Measure(_induction, HEADS, "attention to the token after the earlier copy"),
    "offset": Measure(_offset, (*HEADS, "offset"), "attention around the earlier copy, by offset"),
    "cause": Measure(_cause, HEADS, "behaviour lost without the head"),
    **{f"{kind} composition": _composition(kind) for kind in COMPOSITIONS},
}
"""The curves that have a name, by their name."""
