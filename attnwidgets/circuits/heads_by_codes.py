"""aw.circuits.heads_by_codes: heads of a task, by sparse codes of their outputs in examples of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets._selecting import at_most
from attnwidgets._tables import Table, cells
from attnwidgets.circuits.patching import Patching
from attnwidgets.explanations.results.trace_protocol import resolve_stack
from attnwidgets.intervene.heads import head_outputs
from attnwidgets.sae.training.objective import Weights, topk_loss
from attnwidgets.statistics.table import RankedHead
from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.recording.run import trace as record
from attnwidgets.tracing.text.given_texts import listed_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets._tables import Columns

    Float = NDArray[np.float64]

_NAME = "heads_by_codes"
_FEWEST = 8
_BATCH = 256
_SILENT = 50  # steps without a code after which it is revived
_TWO = 2


@dataclass(frozen=True, repr=False)
class CodedHeads(Table):
    """How much every head's codes tell examples of a task from others.

    Attributes:
        scores: [layer, head], from -1 to 1; 0 by chance. NaN for heads that a layer does not have.
        codes: How many different codes each head used [layer, head].
        explained: Share of the variance of heads' outputs that the codes explain.
        positive: Number of examples of the task.
        negative: Number of others.
    """

    scores: Float
    codes: Float
    explained: float
    positive: int
    negative: int

    def _columns(self) -> Iterator[Columns]:
        """Yield layer, head, score, codes."""
        layers, heads = self.scores.shape
        axes = {"layer": range(layers), "head": range(heads)}
        yield cells(axes, {"score": self.scores, "codes": self.codes})

    def top(self, k: int | None = 10) -> list[RankedHead]:
        """Return the heads with the highest scores, the highest first.

        Args:
            k: Largest number of heads; None: all.

        Returns:
            (layer, head, value) for each.

        Raises:
            ValueError: If `k` is below 1.
        """
        scores = [
            RankedHead(layer, head, float(score))
            for (layer, head), score in np.ndenumerate(self.scores)
            if not np.isnan(score)
        ]
        return at_most(sorted(scores, key=lambda head: -head.value), k)

    def agreement(self, patched: Any, share: float = 0.1) -> float:
        """Return how often a head with a large patching share scores above another head (area under the ROC).

        Args:
            patched: Result of `aw.circuits.patch(...)` with site "head"; or shares [layer, head].
            share: Smallest size of a share that counts as large.

        Returns:
            0 to 1; 0.5 by chance. NaN if all shares are large, or none.

        Raises:
            ValueError: If the shapes differ.
        """
        heads = patched.heads if isinstance(patched, Patching) else np.asarray(patched, dtype=np.float64)
        if heads is None or heads.shape != self.scores.shape:
            shape = None if heads is None else heads.shape
            raise ValueError(f"patched has heads {shape}; these are {self.scores.shape}.")
        defined = ~np.isnan(self.scores) & ~np.isnan(heads)
        result, scores = np.abs(heads[defined]) >= share, self.scores[defined]
        if result.all() or not result.any():
            return float("nan")
        pairs = scores[result][:, None] - scores[~result][None]
        return float((np.sign(pairs) / _TWO + 0.5).mean())

    def __repr__(self) -> str:
        shown = "; ".join(f"head {layer}.{head} {score:.2f}" for layer, head, score in self.top(3))
        return f"<CodedHeads [layer {self.scores.shape[0]}, head {self.scores.shape[1]}]: {shown}>"


def heads_by_codes(
    model: Any,
    tokenizer: Any,
    positive: Sequence[str],
    negative: Sequence[str],
    *,
    position: int = -1,
    d_sae: int = 128,
    k: int = 2,
    steps: int = 400,
    seed: int = 0,
    stack: str | None = None,
) -> CodedHeads:
    """Return the heads whose outputs differ between examples of a task and others, by sparse codes.

    The output of every head to the residual stream at a token (times W_O, scaled layer by layer) is encoded
    by a sparse autoencoder, which is trained on the outputs of all heads in all examples; a code is a feature
    that is active or not. Of each head, the codes that occur in some positive example and in no negative
    example are collected on half of the examples. The score is, on the other half,

        share of positive examples with such a code - share of negative examples with such a code

    averaged over both ways to divide: 1 if the head always tells them apart, 0 by chance. The authors count
    the codes on the examples that they were collected on, where rare codes count as well.

    No gradient and no pairs of texts of equal length are needed. The score is of heads whose *output* differs
    at this token; the effects of earlier heads at other tokens are not included. Compare with patching
    (`.agreement`).

    Args:
        model: A model with self-attention.
        tokenizer: Its tokenizer.
        positive: Examples of the task, 8 or more.
        negative: Examples without it, as alike as possible otherwise, 8 or more.
        position: Token whose outputs are encoded; -1 is the last.
        d_sae: Number of codes.
        k: Number of active codes at a time.
        steps: Number of training steps, of 256 outputs each.
        seed: Seed of the training and of the halves.
        stack: Which blocks, in models with several stacks.

    Returns:
        CodedHeads: `.scores` [layer, head], `.top(10)`, `.agreement(patching)`.

    Raises:
        ValueError: For fewer than 8 examples of a kind, a text without token `position`, or an option out of
            range.
        UnsupportedModelError: If the output projection of this family is not described.

    Source: O'Neill and Bui 2024, Sparse Autoencoders Enable Scalable and Reliable Circuit Identification in
    Language Models.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> repeated = ["abcda", "hgfeh", "cbdec", "dfgcd", "bhcfb", "gabhg", "fecaf", "ehgbe"]
        >>> others = ["abcde", "hgfed", "cbdea", "dfgch", "bhcfa", "gabhc", "fecab", "ehgba"]
        >>> aw.circuits.heads_by_codes(model, tokenizer, repeated, others, steps=100).top(1)[0][:2]
        (1, 0)
    """
    texts = [listed_texts(positive, "positive"), listed_texts(negative, "negative")]
    for name, some in zip(("positive", "negative"), texts, strict=True):
        if isinstance(positive if name == "positive" else negative, str) or len(some) < _FEWEST:
            raise ValueError(f"{name} takes {_FEWEST} texts or more, not {len(some)}.")
    for name, number in (("d_sae", d_sae), ("k", k), ("steps", steps)):
        if number < 1:
            raise ValueError(f"{name} must be 1 or more, not {number}.")
    if k > d_sae:
        raise ValueError(f"k must be at most d_sae, {d_sae}, not {k}.")
    written = _written(model, tokenizer, [*texts[0], *texts[1]], position, stack)
    heads = [len(of_layer[0]) for of_layer in written]
    scaled = [of_layer / _scale(of_layer) for of_layer in written]
    every = torch.cat([of_layer.flatten(0, 1) for of_layer in scaled])
    weights = _trained(every, d_sae, k, steps, seed)
    is_positive = np.arange(len(texts[0]) + len(texts[1])) < len(texts[0])
    scores = np.full((len(heads), max(heads)), np.nan)
    codes = np.full(scores.shape, np.nan)
    halves = _halves(is_positive, seed)
    with no_grad():
        for layer, of_layer in enumerate(scaled):
            active = (weights.activations(of_layer.flatten(0, 1), k) > 0).view(*of_layer.shape[:2], -1)
            for head in range(heads[layer]):
                of_head = active[:, head].numpy()
                scores[layer, head] = _score(of_head, is_positive, halves)
                codes[layer, head] = int(of_head.any(0).sum())
        rest = every - (weights.activations(every, k) @ weights.decoder + weights.b_dec)
        explained = 1 - float(rest.square().sum() / (every - every.mean(0)).square().sum().clamp_min(1e-30))
    return CodedHeads(scores, codes, explained, len(texts[0]), len(texts[1]))


def _written(model: Any, tokenizer: Any, texts: list[str], position: int, stack: str | None) -> list[Tensor]:
    """Return the outputs of heads to the residual stream at a token, by layer [text, head, dim]."""
    matrices: list[Tensor] = []
    rows: list[list[Tensor]] = []
    for number, text in enumerate(progress(texts, desc=_NAME)):
        trace = record(model, tokenizer, text)
        name = resolve_stack(trace, stack)
        count = len(trace.axes(name)[0])
        if not -count <= position < count:
            kind = f"text {number}, {text!r}, has {count} tokens"
            raise ValueError(f"position {position} is out of range: {kind}.")
        if not matrices:
            blocks = [block_of(trace, layer, name, _NAME) for layer in trace.layers(name)]
            with no_grad():
                matrices = [block.projection[0].unflatten(0, (block.n_heads, -1)).cpu() for block in blocks]
        outputs = head_outputs(trace, name)
        rows.append(
            [
                torch.einsum("hv,hvd->hd", outputs[layer][:, position].to(matrix), matrix).float()
                for layer, matrix in zip(trace.layers(name), matrices, strict=True)
            ]
        )
    return [torch.stack([row[layer] for row in rows]) for layer in range(len(matrices))]


def _scale(written: Tensor) -> Tensor:
    """Return the root mean square length of vectors [text, head, dim], at least a tiny number."""
    return written.square().sum(-1).mean().sqrt().clamp_min(torch.finfo(written.dtype).tiny)


def _trained(states: Tensor, d_sae: int, k: int, steps: int, seed: int) -> Weights:
    """Return an autoencoder of states [row, dim] with k active codes."""
    generator = torch.Generator().manual_seed(seed)
    # Codes begin as the directions of some states, from which no code is far.
    drawn = states[torch.randint(len(states), (d_sae,), generator=generator)] - states.mean(0)
    noise = torch.randn(drawn.shape, generator=generator) / drawn.shape[1] ** 0.5
    decoder = torch.nn.functional.normalize(drawn + 0.1 * noise, dim=-1)
    weights = Weights(decoder.clone(), torch.zeros(d_sae), decoder, states.mean(0))
    for tensor in weights.all:
        tensor.requires_grad_()
    optimiser = torch.optim.Adam(weights.all, lr=2e-3)
    since = torch.zeros(d_sae)
    for _ in progress(range(steps), desc=f"{_NAME}: training"):
        batch = states[torch.randint(len(states), (_BATCH,), generator=generator)]
        with no_grad():
            loss = topk_loss(weights, batch, k, since > _SILENT)
        since = torch.where(loss.active, 0.0, since + 1)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        with no_grad():
            weights.decoder.copy_(torch.nn.functional.normalize(weights.decoder, dim=-1))
    return weights


def _halves(is_positive: NDArray[np.bool_], seed: int) -> NDArray[np.bool_]:
    """Return which examples are in the first half, which has the same number of each kind as the second."""
    rng = np.random.default_rng(seed)
    first = np.zeros(len(is_positive), dtype=bool)
    for kind in (is_positive, ~is_positive):
        numbers = rng.permutation(np.flatnonzero(kind))
        first[numbers[: len(numbers) // 2]] = True
    return first


def _score(active: NDArray[np.bool_], is_positive: NDArray[np.bool_], first: NDArray[np.bool_]) -> float:
    """Return the score of a head's codes [text, code]."""
    scores = []
    for chosen in (first, ~first):
        specific = active[chosen & is_positive].any(0) & ~active[chosen & ~is_positive].any(0)
        shown = np.atleast_1d(active[:, specific].any(axis=1))
        scores.append(shown[~chosen & is_positive].mean() - shown[~chosen & ~is_positive].mean())
    return float(np.mean(scores))
