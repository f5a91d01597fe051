"""Assembly and merging of FeatureStats, with statistics of an SAE's directions and of co-occurrence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnwidgets._gradients import no_grad
from attnwidgets.sae.corpus_statistics.stats import FeatureStats
from attnwidgets.sae.corpus_statistics.summary import NONE
from attnwidgets.sae.corpus_statistics.tally import STATE, Tally, to_floats
from attnwidgets.sae.dependencies import difference
from attnwidgets.tracing.algebra.steps import Affine, Norm, Pointwise, Scale
from attnwidgets.tracing.anatomy.output_heads import head_of
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.text.display import scheme_of
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.sae.sae import SAE
    from attnwidgets.tracing.hooks.hook_point import HookPoint

    # Token ids -> their pieces, and the scheme by which pieces spell text.
    Spell = Callable[[list[int]], tuple[list[str], str]]

DIRECTIONS = ("near", "near.cosine", "promoted", "promoted.effect", "suppressed", "suppressed.effect")
"""Arrays about the features' directions; without an unembedding only the first two."""

_CHUNK = 2**24  # numbers of a table in memory at once


def assemble(
    tally: Tally,
    features: Sequence[int],
    directions: Mapping[str, NDArray[Any]],
    spell: Spell,
    *,
    about: Mapping[str, Any],
    special: frozenset[int],
    d_sae: int,
    **common: Any,
) -> FeatureStats:
    """Return a tally as FeatureStats.

    Args:
        tally: The counts.
        features: The features counted.
        directions: The arrays named in `DIRECTIONS`, for these features.
        spell: Returns the pieces of token ids.
        about: Everything the counts depend on; see `attnwidgets.sae.dependencies`.
        special: Ids of special tokens.
        d_sae: Number of features of the SAE.
        common: Further arguments of `FeatureStats`.
    """
    arrays: dict[str, Any] = {
        "features": np.array(features, dtype=np.int64),
        **tally.state(),
        "total": to_floats(tally.sums),
        **directions,
        **companions(tally.pairs(), features, about["options"]["neighbours"]),
    }
    ids = {int(number) for name in arrays if name.endswith(".ids") for number in np.unique(arrays[name])}
    ids |= {int(number) for name in ("promoted", "suppressed") for number in np.unique(arrays.get(name, []))}
    shown = sorted(ids - {NONE})
    pieces, scheme = spell(shown)
    facts = {
        "d_sae": d_sae,
        "tokens": tally.tokens,
        "texts": tally.texts,
        "paired_tokens": tally.paired_tokens,
        "before": tally.before,
        "pieces": dict(zip(map(str, shown), pieces, strict=True)),
        "special": sorted(special & set(shown)),
        "scheme": scheme,
        "about": dict(about),
    }
    warning = ""
    if tally.paired_tokens < tally.tokens:
        warning = f"co-occurring features were counted on {tally.paired_tokens} of {tally.tokens} tokens"
    return FeatureStats(arrays, facts, warning=warning, **common)


def merge(parts: Iterable[FeatureStats | str | Path]) -> FeatureStats:
    """Return the statistics of a corpus from those of its parts; see `FeatureStats.merge`."""
    first: FeatureStats | None = None
    tally: Tally | None = None
    directions: dict[str, NDArray[Any]] = {}
    names: dict[int, str] = {}
    pieces: dict[str, str] = {}
    special: set[int] = set()
    schemes: list[str] = []
    for number, item in enumerate(parts):
        part = _part(item, number, first)
        arrays = part.to_description()[1]
        part_tally = _restore_tally(part, arrays)
        if first is None or tally is None:
            first, tally = part, part_tally
            directions = {name: arrays[name] for name in DIRECTIONS if name in arrays}
        else:
            tally.merge(part_tally)
        names = part.names | names
        pieces |= part.facts["pieces"]
        special.update(part.facts["special"])
        schemes.append(part.facts["scheme"])
    if first is None or tally is None:
        raise ValueError("parts is empty: pass at least one FeatureStats, or its file.")

    def spell(ids: list[int]) -> tuple[list[str], str]:
        # Parts may disagree without a fast tokenizer; all pieces together then tell the scheme.
        scheme = schemes[0] if len(set(schemes)) == 1 else scheme_of(None, list(pieces.values()))
        return [pieces[str(number)] for number in ids], scheme

    common = first._common() | {"names": names, "trace_id": ""}  # noqa: SLF001 - same class
    return assemble(
        tally,
        first.features,
        directions,
        spell,
        about=first.facts["about"],
        special=frozenset(special),
        d_sae=first.d_sae,
        **{name: value for name, value in common.items() if name != "warning"},
    )


def _part(item: Any, number: int, first: FeatureStats | None) -> FeatureStats:
    """Return a part, loaded if it is a file; raise an error if it cannot be merged with the first."""
    from attnwidgets.explanations.results.archive import load

    part = load(item) if isinstance(item, str | Path) else item
    if not isinstance(part, FeatureStats):
        raise TypeError(f"parts[{number}] must be FeatureStats or their file, not {type(part).__name__}.")
    if "about" not in part.facts or set(STATE) - set(part.to_description()[1]):
        raise ValueError(
            f"parts[{number}] was saved by an earlier version and lacks data needed for merging; count its "
            "texts again."
        )
    if first is not None and (other := difference(part.facts["about"], first.facts["about"])):
        raise ValueError(
            f"parts[{number}] is of {other} than parts[0]; parts may differ only in their texts."
        )
    return part


def _restore_tally(part: FeatureStats, arrays: Mapping[str, NDArray[Any]]) -> Tally:
    options = part.facts["about"]["options"]
    before, after = options["window"]
    names = ("examples", "per_interval", "seed")
    tally = Tally(len(part.features), before=before, after=after, **{name: options[name] for name in names})
    tally.restore(arrays)
    return tally


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
        sae: An SAE of the residual stream, or of the outputs that are added to it.
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
