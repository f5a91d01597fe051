"""What the directions of an SAE say by themselves: which logits they move, and which lie near each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.sae.corpus_statistics.top_examples import NONE
from attnwidgets.tracing.algebra.modules import Norm
from attnwidgets.tracing.algebra.output_heads import head_of
from attnwidgets.tracing.algebra.steps import Affine, Pointwise, Scale
from attnwidgets.tracing.recording.attention_function import UnsupportedModelError
from attnwidgets.tracing.recording.run import trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.sae.sae import SAE
    from attnwidgets.tracing.hooks.hook_point import HookPoint

_CHUNK = 2**24  # numbers of a table that are held at once


@torch.no_grad()
def nearest(sae: SAE, features: Sequence[int], k: int) -> dict[str, NDArray[Any]]:
    """Return the features whose directions have the largest cosine with those of some [feature, k]."""
    unit = torch.nn.functional.normalize(sae.directions.float(), dim=-1)
    k = min(k, sae.d_sae - 1)
    rows, cosines = [], []
    for part in torch.tensor(list(features)).split(max(1, _CHUNK // sae.d_sae)):
        table = unit[part] @ unit.T
        table[torch.arange(len(part)), part] = -torch.inf
        best = table.topk(k, dim=-1)
        rows.append(best.indices)
        cosines.append(best.values)
    return {
        "near": torch.cat(rows).cpu().numpy().astype("int32"),
        "near.cosine": torch.cat(cosines).cpu().numpy(),
    }


def companions(pairs: Any, features: Sequence[int], k: int) -> dict[str, NDArray[Any]]:
    """Return the features that fire on the same tokens most often, by tokens of both over tokens of either.

    Args:
        pairs: How often two fire on one token, sparse [feature, feature]; by places in `features`.
        features: Their numbers.
        k: How many.
    """
    import numpy as np

    k = min(k, len(features) - 1)
    numbers = np.asarray(features, dtype=np.int32)
    count = pairs.diagonal().astype(np.int64)
    along = np.full((len(features), k), NONE, dtype=np.int32)
    together = np.zeros((len(features), k), dtype=np.int64)
    for row in range(len(features)):
        inside = slice(pairs.indptr[row], pairs.indptr[row + 1])
        others, both = pairs.indices[inside], pairs.data[inside].astype(np.int64)
        others, both = others[pairs.indices[inside] != row], both[pairs.indices[inside] != row]
        jaccard = both / np.maximum(count[row] + count[others] - both, 1)
        best = np.lexsort((others, -jaccard))[:k]
        along[row, : len(best)], together[row, : len(best)] = numbers[others[best]], both[best]
    return {"along": along, "along.count": together, "paired.count": count}


@torch.no_grad()
def logit_effects(
    sae: SAE, features: Sequence[int], model: Any, site: HookPoint, ids: Sequence[int], k: int
) -> dict[str, NDArray[Any]]:
    """Return the tokens whose logits directions raise and lower most [feature, k], and by how much.

    A direction is read by the unembedding as the final norm lets it through: its mean is taken away where the
    norm does so, and it is multiplied by the norm's weights; the division by the state's size is left out.

    Args:
        sae: Of the residual stream, or of what is added to it.
        features: Which.
        model: As it was given.
        site: Where its states are.
        ids: A few tokens that the model can read.
        k: How many.

    Returns:
        "promoted" and "suppressed" token ids, and ".effect" of both; nothing where the model has no logits of
        tokens, or more than a norm and a projection stands before them.
    """
    if not site.residual or not k:
        return {}
    try:
        traced = trace(model, None, list(ids)) if len(ids) else None
        if traced is None or traced.logits is None or traced.logits.dim() < 2:  # noqa: PLR2004 - [token, vocabulary]
            return {}
        stack = "decoder" if "decoder" in traced.stacks else traced.default_stack
        steps = list(head_of(traced, stack, "feature_stats", 0).steps)
    except UnsupportedModelError:
        return {}
    norm = steps[0] if isinstance(steps[0], Norm) else None
    projection, *after = steps if norm is None else steps[1:]
    if not isinstance(projection, Affine) or not all(isinstance(step, (Scale, Pointwise)) for step in after):
        return {}
    directions = sae.directions[list(features)].to(projection.matrix)
    directions = directions if norm is None else norm.direct(directions)
    matrix = projection.matrix
    for step in after:
        matrix = step(matrix) if isinstance(step, Scale) else matrix  # a cap bends large logits only
    return _extremes(directions.float(), matrix.float(), min(k, matrix.shape[1]))


def _extremes(directions: Tensor, matrix: Tensor, k: int) -> dict[str, NDArray[Any]]:
    found: dict[str, list[Tensor]] = {}
    for part in directions.split(max(1, _CHUNK // matrix.shape[1])):
        effects = part @ matrix
        for name, largest in (("promoted", True), ("suppressed", False)):
            best = effects.topk(k, dim=-1, largest=largest)
            found.setdefault(name, []).append(best.indices.to(torch.int32))
            found.setdefault(f"{name}.effect", []).append(best.values)
    return {name: torch.cat(parts).cpu().numpy() for name, parts in found.items()}
