"""aw.feature_stats: statistics and examples of every feature on a corpus, streamed."""

from __future__ import annotations

import hashlib
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import deprecated
from attnwidgets._former import former_keywords
from attnwidgets._parcels import parcel, stays
from attnwidgets._progress import observing
from attnwidgets._selecting import pick
from attnwidgets._shards import Finished, run_shards
from attnwidgets.sae.check import hook_point_of
from attnwidgets.sae.corpus import CONTEXT, require_texts
from attnwidgets.sae.corpus_statistics.assembling import assemble, logit_effects, nearest
from attnwidgets.sae.corpus_statistics.counting import (
    Checkpoint,
    CountRequest,
    Shard,
    ShardCounter,
    shards_in,
    shards_of,
)
from attnwidgets.sae.dependencies import sae_fingerprint, states_about
from attnwidgets.sae.sae import SAE, as_sae
from attnwidgets.tracing.content import hooks_of
from attnwidgets.tracing.model_parcel import Reader
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.wrappers import are_second
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


@dataclass(frozen=True, kw_only=True)
class FeatureDashboard:
    """The data that `feature_stats` keeps of every feature, for its page in `FeaturePanel`.

    Args:
        examples: Number of contexts kept of each feature with its largest activations, each from a different
            window.
        per_interval: Number of contexts drawn at random from each of eight intervals of the feature's
            activations; identical contexts are drawn only once.
        window: Number of tokens of a context before and after its central token.
        logits: Number of tokens that a feature promotes and suppresses most, if the model has an unembedding
            and the hook point is in the residual stream.
        neighbours: Number of features with the nearest directions (among all features), and number of
            co-occurring features (among those counted).
        seed: Seed of the random draws.

    Raises:
        ValueError: If `examples` or `per_interval` is less than 1.

    Example:
        >>> aw.FeatureDashboard(examples=50, window=(20, 5)).per_interval
        4
    """

    examples: int = 20
    per_interval: int = 4
    window: tuple[int, int] = (10, 10)
    logits: int = 10
    neighbours: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("examples", "per_interval"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}.")


_DEFAULT = FeatureDashboard()


@former_keywords(
    [option.name for option in fields(FeatureDashboard)],
    "dashboard",
    "aw.FeatureDashboard(...)",
    FeatureDashboard,
)
def feature_stats(
    model: Any,
    tokenizer: Any,
    sae: SAE,
    texts: Iterable[str | Sequence[int] | Mapping[str, Any]],
    *,
    features: int | Iterable[int] | slice | None = None,
    dashboard: FeatureDashboard = _DEFAULT,
    context: int = CONTEXT,
    site: str | None = None,
    prepend_bos: bool | None = None,
    jobs: int | Executor = 1,
    checkpoint: str | Path | None = None,
) -> FeatureStats:
    """Count how every feature of an SAE fires on a corpus, and keep examples.

    Texts are read once, in order, and not stored: memory is bounded by features x examples. They are counted
    in shards of 1,000 texts (fewer if they exceed 2^20 characters), so that results are equal bit for bit for
    any number of workers, provided torch uses the same number of threads in each (one, in processes that
    this function starts). Special tokens do not count, nor does a decoder's first token if it is not a
    beginning-of-text token.

    Args:
        model: The model; run up to the SAE's hook point and left unchanged. A folder or hub id is loaded,
            once in each worker.
        tokenizer: Its tokenizer; None if texts are token ids, or to load the tokenizer of a model given by
            name.
        sae: An SAE, any object `aw.SAE.from_object` accepts, or the folder of an SAE.
        texts: Any number of strings, lists of token ids (read as they are), or rows of a data set with
            "text" or "input_ids"; may be a stream.
        features: Count only these features (others cost nothing, except in topk SAEs).
        dashboard: Data stored of every feature besides its counts: an `aw.FeatureDashboard`.
        context: Tokens the model reads at once, special tokens included.
        site: Hook point to read, instead of `sae.site`; see `attnwidgets.tracing.hooks.hook_point`.
        prepend_bos: Whether texts begin with the beginning-of-text token. None: as the SAE's files say, else
            as the tokenizer does.
        jobs: Number of processes, or any `concurrent.futures.Executor` (Dask's, mpi4py's, loky's).
        checkpoint: Folder to store finished shards in. The same call resumes from it; it is removed when all
            texts are counted.

    Returns:
        FeatureStats: `.feature(j)` for a feature, `.save(path)`, `aw.load(path)` without the model, and
        `aw.results.FeatureStats.merge(parts)` for parts of a corpus counted separately.

    Raises:
        ValueError: If no token counts, the model lacks the hook point, its width differs from the SAE's,
            states are NaN or infinite, or the checkpoint belongs to another model, SAE, corpus or call (the
            message says which).
        RuntimeError: If a shard repeatedly kills its worker; the message names the shard.
        IndexError: If the feature is out of range.

    Source: Bricken et al. 2023, Towards Monosemanticity (the dashboards).

    Example:
        >>> import torch
        >>> generator = torch.Generator().manual_seed(0)
        >>> W_enc = torch.randn(384, 16, generator=generator)
        >>> sae = aw.SAE(W_enc, W_enc.T, torch.zeros(384), torch.zeros(16), site="encoder.layer.2")
        >>> stats = aw.feature_stats(*aw.demo_model("encoder"), sae, ["The cat sat.", "It rained all day."])
        >>> stats.shape, stats.tokens
        ((16,), 9)
    """
    if are_second(tokenizer, sae):
        deprecated("feature_stats(model, tokenizer, sae, texts) takes the SAE third now")
        reordered: Any = (model, tokenizer, sae)
        sae, model, tokenizer = reordered
    require_texts(texts)
    if not isinstance(dashboard, FeatureDashboard):
        raise TypeError(f"dashboard takes an aw.FeatureDashboard, not {dashboard!r:.60}.")
    folder = str(sae) if isinstance(sae, str | Path) else None
    sae = as_sae(sae) if folder is None else SAE.from_pretrained(folder)
    reader = Reader(model, tokenizer)
    inner = unwrap(reader.model)
    hook_point = hook_point_of(sae, inner, site)
    chosen = pick(slice(None) if features is None else features, range(sae.d_sae), "feature")
    before, after = dashboard.window
    drawing = {name: getattr(dashboard, name) for name in ("examples", "per_interval", "seed")}
    request = CountRequest(
        hook_point,
        chosen,
        {"prepend_bos": prepend_bos, "context": context},
        {"before": before, "after": after, **drawing},
    )
    counter = ShardCounter(sae, inner, reader.tokenizer, request)
    corpus = counter.corpus(())
    about = states_about(
        reader.fingerprints,
        corpus,
        hook_point,
        window=[before, after],
        logits=dashboard.logits,
        neighbours=dashboard.neighbours,
        **drawing,
    )
    about |= {
        "sae": sae_fingerprint(sae),
        "features": hashlib.blake2b(repr(chosen).encode(), digest_size=16).hexdigest(),
    }
    finished = Checkpoint(None if checkpoint is None else Path(checkpoint), about)
    total = shards_in(texts)
    jobs = 1 if total == 1 and not isinstance(jobs, Executor) else jobs
    hooks = () if stays(jobs) else hooks_of(inner)
    if hooks:
        names = sorted({hook.split()[0] for hook in hooks})
        raise ValueError(f"model has hooks ({', '.join(names)}) that workers would not have: use jobs=1.")
    tally, count = request.tally(), 0
    ids, shards = _first_window(counter, shards_of(texts, spelled=corpus.tokenizer is not None))
    opening = None if folder is None else partial(SAE.from_pretrained, folder)
    with (
        reader.carried(jobs) as carried,
        parcel(sae, jobs, kind="sae", description="the SAE", check=sae_fingerprint, make=opening) as packed,
    ):
        for number, (shard, new_state) in run_shards(
            _Worker(carried, packed, request, quiet=not stays(jobs)),
            _unfinished(shards, finished),
            jobs,
            desc="feature statistics",
            describe=attrgetter("name"),
            total=total,
            hint=finished.hint,
        ):
            state = finished.get(shard) if new_state is None else new_state
            if state is not None:
                tally.merge(request.tally(state))
            if new_state is not None:
                finished.put(shard, new_state, tally)
            count = number + 1
    if not tally.tokens:
        raise ValueError("texts contain no token that counts; pass at least one text of several words.")
    stats = assemble(
        tally,
        chosen,
        nearest(sae, chosen, dashboard.neighbours)
        | logit_effects(sae, chosen, reader.model, hook_point, ids, dashboard.logits),
        partial(_pieces, corpus.tokenizer),
        about=about,
        special=corpus.special,
        d_sae=sae.d_sae,
        provenance={
            "title": "feature statistics",
            "options": {"sae": repr(sae), "site": hook_point.name, "layer": hook_point.block, **drawing},
            "model": sae.model_name or type(inner).__name__,
            "paper": PAPER,
        },
    )
    finished.remove(count)
    return stats


def _unfinished(shards: Iterable[Shard], finished: Checkpoint) -> Iterator[Shard | Finished[_Counted]]:
    """Yield shards; those in the checkpoint are marked as finished."""
    for shard in shards:
        yield Finished((shard.head, None)) if finished.holds(shard) else shard


def _first_window(counter: ShardCounter, shards: Iterator[Shard]) -> tuple[Sequence[int], Iterable[Shard]]:
    """Return the token ids of the first window, and all of the shards."""
    seen = []
    for shard in shards:
        seen.append(shard)
        first = next(counter.corpus(shard.texts).windows(), None)
        if first is not None:
            return first.ids, chain(seen, shards)
    return (), seen


@dataclass(frozen=True)
class _Worker:
    """Counts shards in any process.

    Args:
        carried: Model and tokenizer.
        sae: The SAE.
        request: The requested counts.
        quiet: Whether to hide progress within a shard, which is invisible in a worker.
    """

    carried: Carried
    sae: Parcel | Here
    request: CountRequest
    quiet: bool

    def __call__(self, shard: Shard) -> _Counted:
        """Return the shard without its texts, and the state of its tally."""
        model, tokenizer = self.carried.open()
        counter = ShardCounter(self.sae.open(), unwrap(model), tokenizer, self.request)
        with observing(lambda *_: None) if self.quiet else nullcontext():
            return shard.head, counter(shard)


def _pieces(tokenizer: Any, ids: list[int]) -> tuple[list[str], str]:
    """Return the pieces of token ids, and the scheme by which they spell text."""
    if tokenizer is None:
        return [str(number) for number in ids], "plain"
    # An unembedding may have more rows than the tokenizer has tokens.
    spelled = tokenizer.convert_ids_to_tokens(ids) if ids else []
    pieces = [
        f"#{number}" if piece is None else str(piece) for number, piece in zip(ids, spelled, strict=True)
    ]
    return pieces, scheme_of(tokenizer, pieces)
