"""Assembly of FeatureStats from a tally, and merging of FeatureStats that were counted separately."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.sae.corpus_statistics import exact_sums
from attnwidgets.sae.corpus_statistics.directions import companions
from attnwidgets.sae.corpus_statistics.stats import FeatureStats
from attnwidgets.sae.corpus_statistics.tally import STATE, Tally
from attnwidgets.sae.corpus_statistics.top_examples import NONE
from attnwidgets.sae.dependencies import difference
from attnwidgets.tracing.text.display import scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    # Token ids -> their pieces, and the scheme by which pieces spell text.
    Spell = Callable[[list[int]], tuple[list[str], str]]

DIRECTIONS = ("near", "near.cosine", "promoted", "promoted.effect", "suppressed", "suppressed.effect")
"""Arrays about the features' directions; without an unembedding only the first two."""


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
        "total": exact_sums.to_floats(tally.sums),
        **directions,
        **companions(tally.pairs(), features, about["options"]["neighbours"]),
    }
    ids = {int(number) for name in arrays if name.endswith(".ids") for number in np.unique(arrays[name])}
    ids |= {int(number) for name in ("promoted", "suppressed") for number in np.unique(arrays.get(name, []))}
    known = sorted(ids - {NONE})
    pieces, scheme = spell(known)
    facts = {
        "d_sae": d_sae,
        "tokens": tally.tokens,
        "texts": tally.texts,
        "paired_tokens": tally.paired_tokens,
        "before": tally.before,
        "pieces": dict(zip(map(str, known), pieces, strict=True)),
        "special": sorted(special & set(known)),
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
