"""aw.feature_stats: what every feature does on a corpus, streamed."""

from __future__ import annotations

import hashlib
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._parcels import parcel, stays
from attnwidgets._progress import observing
from attnwidgets._selecting import pick
from attnwidgets._shards import Finished, run_shards
from attnwidgets.sae.check import site_of
from attnwidgets.sae.corpus import CONTEXT
from attnwidgets.sae.corpus_statistics.assembling import assembled
from attnwidgets.sae.corpus_statistics.checkpoint import Checkpoint
from attnwidgets.sae.corpus_statistics.counting import Asked, Count, Shard, shards_in, shards_of
from attnwidgets.sae.corpus_statistics.directions import logit_effects, nearest
from attnwidgets.sae.dependencies import sae_fingerprint, states_about
from attnwidgets.sae.sae import SAE, as_sae
from attnwidgets.sae.texts import require_texts
from attnwidgets.tracing.fingerprint import hooks_of
from attnwidgets.tracing.model_parcel import Reader
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.text.display import scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets._parcels import Here, Parcel
    from attnwidgets.sae.corpus_statistics.stats import FeatureStats
    from attnwidgets.tracing.model_parcel import Carried

    # A shard without its texts, and the state of its tally; None where that is in the checkpoint.
    _Counted = tuple[Shard, Mapping[str, NDArray[Any]] | None]

PAPER = "Bricken et al. 2023, Towards Monosemanticity"


def feature_stats(
    sae: SAE,
    model: Any,
    tokenizer: Any,
    texts: Iterable[str | Sequence[int] | Mapping[str, Any]],
    *,
    features: int | Iterable[int] | slice | None = None,
    examples: int = 20,
    per_interval: int = 4,
    window: tuple[int, int] = (10, 10),
    context: int = CONTEXT,
    logits: int = 10,
    neighbours: int = 5,
    seed: int = 0,
    site: str | None = None,
    prepend_bos: bool | None = None,
    jobs: int | Executor = 1,
    checkpoint: str | Path | None = None,
) -> FeatureStats:
    """Count what every feature of an SAE does on a corpus, and keep examples of it.

    Texts are read once, in order, and not kept: memory is bounded by features x examples. They are counted in
    shards of 1,000 texts (of fewer where these have more than 2^20 characters), so that results are equal bit
    for bit however many workers share them, as long as torch computes in as many threads in each (one in
    processes that are started here). Special tokens, and the first token of a decoder's text where it
    has no beginning-of-text token, do not count.

    Args:
        sae: Anything `aw.SAE.from_object` takes, or the folder of one.
        model: Run up to the SAE's site; comes back as it was. A folder or hub id is loaded, once in a worker.
        tokenizer: Its tokenizer; None where texts are token ids, or for that of a model given by name.
        texts: Any number of texts, lists of token ids, which are read as they are, or rows of a data set with
            "text" or "input_ids"; a stream is read as it comes.
        features: Only these (all others cost nothing, except in topk SAEs).
        examples: Contexts with the largest activations kept of a feature, each of another window.
        per_interval: Contexts drawn at random of each of eight intervals of its activations, each of other
            tokens: of a text that comes again and again, one.
        window: Tokens of a context before and after its own.
        context: Tokens the model reads at once, special ones included.
        logits: How many tokens that a feature promotes and suppresses, where the model has an unembedding
            and the site is in the residual stream.
        neighbours: How many nearest directions (of all features), and how many features that fire along (of
            those that are looked at).
        seed: Of the draws.
        site: Where the states are, instead of `sae.site`; see `attnwidgets.tracing.hooks.hook_point`.
        prepend_bos: Whether texts begin with the beginning-of-text token; None as the SAE's files say, or
            else as the tokenizer does.
        jobs: How many processes share the shards; or any `concurrent.futures.Executor` (Dask's, mpi4py's,
            loky's).
        checkpoint: A folder to keep shards in that are counted. The same call goes on from them; it is
            removed when all texts are counted.

    Returns:
        FeatureStats; `.feature(j)` for one feature, `.save(path)`, and `aw.load(path)` without the model;
        `aw.FeatureStats.merge(parts)` for parts of a corpus that were counted apart.

    Raises:
        ValueError: Where no token counts, the site is not in the model or has another width than the SAE
            (both are named), states are NaN or infinite, or a checkpoint is of another model, SAE, corpus or
            call, which is named.
        RuntimeError: Where a shard ends its worker again and again; the shard is named.
        IndexError: If there is no such feature.

    Source: Bricken et al. 2023, Towards Monosemanticity (the dashboards).
    """
    require_texts(texts)
    _require_positive(examples=examples, per_interval=per_interval)
    folder = str(sae) if isinstance(sae, str | Path) else None
    sae = as_sae(sae) if folder is None else SAE.from_pretrained(folder)
    reader = Reader(model, tokenizer)
    inner = unwrap(reader.model)
    place = site_of(sae, inner, site)
    chosen = pick(slice(None) if features is None else features, range(sae.d_sae), "feature")
    before, after = window
    drawn = {"examples": examples, "per_interval": per_interval, "seed": seed}
    asked = Asked(
        place,
        chosen,
        {"prepend_bos": prepend_bos, "context": context},
        {"before": before, "after": after, **drawn},
    )
    here = Count(sae, inner, reader.tokenizer, asked)
    corpus = here.corpus(())
    about = states_about(
        reader.fingerprints,
        corpus,
        place,
        window=[before, after],
        logits=logits,
        neighbours=neighbours,
        **drawn,
    ) | {"sae": sae_fingerprint(sae), "features": _digest(chosen)}
    kept = Checkpoint(None if checkpoint is None else Path(checkpoint), about)
    total = shards_in(texts)
    jobs = 1 if total == 1 and not isinstance(jobs, Executor) else jobs
    hooks = () if stays(jobs) else hooks_of(inner)
    if hooks:
        names = sorted({hook.split()[0] for hook in hooks})
        raise ValueError(f"model has hooks ({', '.join(names)}), which workers do not see: use jobs=1.")
    tally, count = asked.tally(), 0
    ids, shards = _peeked(here, shards_of(texts, spelled=corpus.tokenizer is not None))
    opening = None if folder is None else partial(SAE.from_pretrained, folder)
    with (
        reader.carried(jobs) as carried,
        parcel(sae, jobs, kind="sae", what="the SAE", check=sae_fingerprint, make=opening) as packed,
    ):
        for number, (shard, found) in run_shards(
            _Worker(carried, packed, asked, quiet=not stays(jobs)),
            _open(shards, kept),
            jobs,
            desc="feature statistics",
            describe=_name,
            total=total,
            kept=kept.said,
        ):
            state = kept.get(shard) if found is None else found
            if state is not None:
                tally.merge(asked.tally(state))
            if found is not None:
                kept.put(shard, found, tally)
            count = number + 1
    if not tally.tokens:
        raise ValueError("texts hold no token that counts; give at least one text of several words.")
    stats = assembled(
        tally,
        chosen,
        nearest(sae, chosen, neighbours) | logit_effects(sae, chosen, reader.model, place, ids, logits),
        partial(_spelled, corpus.tokenizer),
        about=about,
        special=corpus.special,
        d_sae=sae.d_sae,
        provenance={
            "title": "feature statistics",
            "options": {"sae": repr(sae), "site": place.name, "layer": place.block, **drawn},
            "model": sae.model_name or type(inner).__name__,
            "paper": PAPER,
        },
    )
    kept.remove(count)
    return stats


def _open(shards: Iterable[Shard], kept: Checkpoint) -> Iterator[Shard | Finished[_Counted]]:
    """Yield shards, as finished where they are in the checkpoint."""
    for shard in shards:
        yield Finished((shard.head, None)) if kept.holds(shard) else shard


def _peeked(count: Count, shards: Iterator[Shard]) -> tuple[Sequence[int], Iterable[Shard]]:
    """Return the first window that the model reads, and all of the shards."""
    seen = []
    for shard in shards:
        seen.append(shard)
        first = next(count.corpus(shard.texts).windows(), None)
        if first is not None:
            return first.ids, chain(seen, shards)
    return (), seen


@dataclass(frozen=True)
class _Worker:
    """Counts shards in any process.

    Args:
        carried: Model and tokenizer.
        sae: The SAE.
        asked: What is asked.
        quiet: Whether progress within a shard is not told: nobody looks there.
    """

    carried: Carried
    sae: Parcel | Here
    asked: Asked
    quiet: bool

    def __call__(self, shard: Shard) -> _Counted:
        """Return the shard without its texts, and the state of its tally."""
        model, tokenizer = self.carried.open()
        count = Count(self.sae.open(), unwrap(model), tokenizer, self.asked)
        with observing(_unheard) if self.quiet else nullcontext():
            return shard.head, count(shard)


def _unheard(*_: Any) -> None:
    """Take in the progress of a worker."""


def _name(shard: Shard) -> str:
    return shard.name


def _spelled(tokenizer: Any, ids: list[int]) -> tuple[list[str], str]:
    """Return how a tokenizer spells ids, and how that spells text."""
    if tokenizer is None:
        return [str(number) for number in ids], "plain"
    found = tokenizer.convert_ids_to_tokens(ids) if ids else []
    # An unembedding may have more rows than the tokenizer has tokens.
    pieces = [f"#{number}" if piece is None else str(piece) for number, piece in zip(ids, found, strict=True)]
    return pieces, scheme_of(tokenizer, pieces)


def _digest(features: Sequence[int]) -> str:
    return hashlib.blake2b(repr(features).encode(), digest_size=16).hexdigest()


def _require_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, not {number}.")
