"""Statistics of an SAE's directions: nearest neighbours, effects on logits; and co-occurring features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attnwidgets._gradients import no_grad
from attnwidgets.sae.corpus_statistics.top_examples import NONE
from attnwidgets.tracing.algebra.modules import Norm
from attnwidgets.tracing.algebra.steps import Affine, Pointwise, Scale
from attnwidgets.tracing.anatomy.output_heads import head_of
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.sae.sae import SAE
    from attnwidgets.tracing.hooks.hook_point import HookPoint

_CHUNK = 2**24  # numbers of a table in memory at once


@no_grad()
def nearest(sae: SAE, features: Sequence[int], k: int) -> dict[str, NDArray[Any]]:
    """Return the features whose directions have the largest cosine with those of `features` [feature, k]."""
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
    """Return the features that co-occur most often with each feature, by Jaccard index of their tokens.

    Args:
        pairs: Number of tokens on which two features fire, sparse [feature, feature].
        features: The features' numbers, in the order of `pairs`.
        k: Number of companions of each feature.
    """
    import numpy as np

    k = min(k, len(features) - 1)
    numbers = np.asarray(features, dtype=np.int32)
    count = pairs.diagonal().astype(np.int64)
    along = np.full((len(features), k), NONE, dtype=np.int32)
    together = np.zeros((len(features), k), dtype=np.int64)
    for row in range(len(features)):
        inside = slice(pairs.indptr[row], pairs.indptr[row + 1])
        different = pairs.indices[inside] != row
        others, both = pairs.indices[inside][different], pairs.data[inside][different].astype(np.int64)
        jaccard = both / np.maximum(count[row] + count[others] - both, 1)
        best = np.lexsort((others, -jaccard))[:k]
        along[row, : len(best)], together[row, : len(best)] = numbers[others[best]], both[best]
    return {"along": along, "along.count": together, "paired.count": count}


@no_grad()
def logit_effects(
    sae: SAE, features: Sequence[int], model: Any, hook_point: HookPoint, ids: Sequence[int], k: int
) -> dict[str, NDArray[Any]]:
    """Return the tokens whose logits the directions raise and lower most [feature, k], and by how much.

    Directions pass the final norm on their way to the unembedding: their mean is subtracted if the norm does
    so, and they are multiplied by the norm's weights; the division by the norm of the state is left out.

    Args:
        sae: An SAE of the residual stream, or of what is added to it.
        features: The features.
        model: The model as the user passed it.
        hook_point: Where the SAE's states are read.
        ids: A few tokens that the model can read.
        k: Number of tokens of each kind.

    Returns:
        Token ids under "promoted" and "suppressed", effects under "promoted.effect" and "suppressed.effect";
        empty if the model has no token logits, or computes them by more than a norm and a projection.
    """
    if not hook_point.residual or not k:
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
        matrix = step(matrix) if isinstance(step, Scale) else matrix  # a softcap only bends large logits
    return _extremes(directions.float(), matrix.float(), min(k, matrix.shape[1]))


def _extremes(directions: Tensor, matrix: Tensor, k: int) -> dict[str, NDArray[Any]]:
    parts_by_name: dict[str, list[Tensor]] = {}
    for part in directions.split(max(1, _CHUNK // matrix.shape[1])):
        effects = part @ matrix
        for name, largest in (("promoted", True), ("suppressed", False)):
            best = effects.topk(k, dim=-1, largest=largest)
            parts_by_name.setdefault(name, []).append(best.indices.to(torch.int32))
            parts_by_name.setdefault(f"{name}.effect", []).append(best.values)
    return {name: torch.cat(parts).cpu().numpy() for name, parts in parts_by_name.items()}
