"""Baselines that Expected Gradients draws: other texts or pictures, or words of the vocabulary.

Erion et al. 2021, Improving Performance of Deep Learning Models with Axiomatic Attribution Priors and
Expected Gradients, section 2.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.attribution.baselines import baseline_embeddings, reading_baselines, word_table
from attnwidgets.explanations.attribution.embedding_gradients import leaf_of
from attnwidgets.explanations.results.trace_protocol import is_trace

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.explanations.attribution.embedding_gradients import EmbeddingGradients

_MATRIX = 2  # axes of [token, dim]


@reading_baselines()
def drawn_baselines(
    model: EmbeddingGradients, baseline: Any, draws: int, seed: int
) -> tuple[Tensor, Tensor, str]:
    """Return baselines [baseline, token, dim], the one that every draw takes [draw], and their name.

    Args:
        model: The model, borrowed, with the trace that is explained.
        baseline: A list of traces or of numbers [token, dim]; None: random words; else a single baseline, see
            `baseline_embeddings`.
        draws: Number of draws.
        seed: Their seed.

    Raises:
        ValueError: If numbers or traces have another shape, or random words are drawn for a model that reads
            none.
    """
    import torch

    embeddings, run = model.embeddings, model.run
    generator = np.random.default_rng((seed, 0))
    if baseline is None:
        words = _random_words(model, draws, generator)
        return words, torch.arange(draws), "random words"
    if not _is_several(baseline):
        one, name = baseline_embeddings(run.trace, run.model, embeddings, baseline, run.purpose)
        return one[None], torch.zeros(draws, dtype=torch.long), name
    several = torch.stack([_whole(each, model) for each in baseline])
    name = f"{len(several)} baselines"
    return several, torch.as_tensor(generator.integers(len(several), size=draws)), name


def _is_several(baseline: Any) -> bool:
    return (
        isinstance(baseline, (list, tuple))
        and len(baseline) > 0
        and all(is_trace(each) or np.ndim(each) == _MATRIX for each in baseline)
    )


def _whole(baseline: Any, model: EmbeddingGradients) -> Tensor:
    """Return the embeddings [token, dim] of a trace, or the same numbers as a tensor."""
    import torch

    from attnwidgets.tracing.gradients.differentiable import differentiable

    expected = model.embeddings
    values = baseline
    if is_trace(baseline):
        with differentiable(baseline, model.run.purpose, back=False, entry=model.stack) as run:
            values = leaf_of(run(), model.stack, model.run.purpose).detach()[0]
    values = torch.as_tensor(values, dtype=expected.dtype, device=expected.device)
    if values.shape != expected.shape:
        raise ValueError(
            f"baseline: a baseline has {len(values)} tokens of width {values.shape[-1]}, and the input "
            f"{len(expected)} of width {expected.shape[-1]}; take traces with as many tokens, or "
            "baseline=None, which draws words."
        )
    return values


def _random_words(model: EmbeddingGradients, draws: int, generator: np.random.Generator) -> Tensor:
    """Return embeddings of random words [draw, token, dim]; special tokens stay."""
    import torch

    embeddings, trace = model.embeddings, model.run.trace
    table = word_table(trace, model.run.model)
    if table is None:
        raise ValueError(
            'integrated_gradients: rule="expected" draws words, and this model reads none; pass traces of '
            "other inputs, baseline=[...]."
        )
    unit = next(iter(trace.axes(model.stack)[0].units.values()))
    ids = generator.integers(table.num_embeddings, size=(draws, len(embeddings)))
    words = torch.stack([table(torch.as_tensor(row, device=embeddings.device)[None])[0] for row in ids])
    stays = torch.as_tensor(unit.special, device=embeddings.device)
    return torch.where(stays[None, :, None], embeddings[None], words.detach().to(embeddings))
