"""aw.feature_stats: what every feature does on a corpus, streamed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sized
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as dump_tensors

from attnwidgets._files import write_bytes
from attnwidgets._progress import progress
from attnwidgets.explanations.selecting import pick
from attnwidgets.sae.check import corpus_for, require_width, site_of
from attnwidgets.sae.corpus import CONTEXT, batches, by_token, require_texts
from attnwidgets.sae.sae import SAE, as_sae
from attnwidgets.sae.statistics.meaning import companions, logit_effects, nearest
from attnwidgets.sae.statistics.slots import NONE
from attnwidgets.sae.statistics.stats import FeatureStats
from attnwidgets.sae.statistics.tally import Chunk, Tally
from attnwidgets.sae.tap import reading
from attnwidgets.tracing.recording.borrow import borrowed, borrowed_tokenizer, unwrap
from attnwidgets.tracing.text.display import scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch import Tensor

    from attnwidgets.sae.corpus import Corpus, Window
    from attnwidgets.sae.site import Site

PAPER = "Bricken et al. 2023, Towards Monosemanticity"
_ACTIVATIONS = 2**22  # of a chunk: what is held at once
_TOKENS = (256, 4096)  # of a chunk, at least and at most
_BATCH = 2048  # tokens the model reads at once, with padding
_SECONDS = 30.0


def feature_stats(
    sae: SAE,
    model: Any,
    tokenizer: Any,
    texts: Iterable[str | Sequence[int]],
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
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = _SECONDS,
) -> FeatureStats:
    """Count what every feature of an SAE does on a corpus, and keep examples of it.

    Texts are read once, in order, and not kept: memory is bounded by features x examples. Special tokens, and
    the first token of a decoder's text where it has no beginning-of-text token, do not count.

    Args:
        sae: Anything `aw.SAE.from_object` takes.
        model: Run up to the SAE's site; comes back as it was.
        tokenizer: Its tokenizer; None where texts are token ids.
        texts: Any number of texts, or lists of token ids, which are read as they are.
        features: Only these (all others cost nothing, except in topk SAEs).
        examples: Contexts with the largest activations kept of a feature, each of another window.
        per_interval: Contexts drawn at random of each of eight intervals of its activations.
        window: Tokens of a context before and after its own.
        context: Tokens the model reads at once, special ones included.
        logits: How many tokens that a feature promotes and suppresses, where the model has an unembedding
            and the site is in the residual stream.
        neighbours: How many nearest directions (of all features), and how many features that fire along (of
            those that are looked at).
        seed: Of the draws.
        site: Where the states are, instead of `sae.site`; see `attnwidgets.sae.site`.
        prepend_bos: Whether texts begin with the beginning-of-text token; None as the SAE's files say, or
            else as the tokenizer does.
        checkpoint: A file to keep the counts in while they grow. Where it is there, they go on from it with
            the same texts; it is removed when all are read.
        checkpoint_seconds: How often it is written.

    Returns:
        FeatureStats; `.feature(j)` for one feature, `.save(path)`, and `aw.load(path)` without the model.

    Raises:
        ValueError: Where no token counts, the site is not in the model or has another width than the SAE
            (both are named), or a checkpoint is of something else.
        IndexError: If there is no such feature.

    Source: Bricken et al. 2023, Towards Monosemanticity (the dashboards).
    """
    sae = as_sae(sae)
    require_texts(texts)
    inner = unwrap(model)
    place = site_of(sae, inner, site)
    chosen = pick(slice(None) if features is None else features, range(sae.d_sae), "feature")
    options = {"examples": examples, "per_interval": per_interval, "seed": seed}
    _require_positive(examples=examples, per_interval=per_interval)
    before, after = window
    tally = Tally(len(chosen), before=before, after=after, **options)
    read = _Texts(texts)
    corpus = corpus_for(sae, inner, tokenizer, read, prepend_bos=prepend_bos, context=context)
    about = _fingerprint(sae, inner, place.name, chosen, [*options.items(), window, corpus.context])
    kept = None if checkpoint is None else _Checkpoint(Path(checkpoint), about, checkpoint_seconds)
    first: Sequence[int] = ()
    with borrowed(inner), borrowed_tokenizer(corpus.tokenizer):
        encode = _encoder(sae, inner, corpus, place, chosen)
        for windows, done in _chunks(corpus, read, kept, tally):
            first = first or windows[0].ids
            tally.add(encode(windows))
            if kept is not None:
                kept.after(tally, read, done)
    if not tally.tokens:
        raise ValueError("texts hold no token that counts; give at least one text of several words.")
    arrays = _arrays(tally, sae, chosen, neighbours)
    arrays |= logit_effects(sae, chosen, model, place, first, logits)
    found = FeatureStats(
        arrays,
        _facts(tally, corpus, arrays, sae, read.count, before),
        provenance={
            "title": "feature statistics",
            "options": {"sae": repr(sae), "site": place.name, "layer": place.block, **options},
            "model": type(inner).__name__ if not sae.model_name else sae.model_name,
            "paper": PAPER,
        },
        warning=_warning(tally),
    )
    if kept is not None:
        kept.remove()
    return found


class _Texts:
    """Texts as they are read: how many, and a digest of them by which a checkpoint knows them again."""

    def __init__(self, texts: Iterable[str | Sequence[int]]) -> None:
        self._texts = texts
        self._digest = hashlib.sha256()
        self.count = 0
        self.expected: dict[int, str] = {}

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def __iter__(self) -> Iterator[str | Sequence[int]]:
        total = len(self._texts) if isinstance(self._texts, Sized) else None
        for text in progress(self._texts, "feature statistics", total):
            ids = text if isinstance(text, str) else " ".join(str(int(number)) for number in text)
            self._digest.update(ids.encode("utf-8", "surrogatepass") + b"\0")
            self.count += 1
            if self.expected.get(self.count, self.digest) != self.digest:
                raise ValueError("checkpoint: the texts are not those that were counted; remove it first.")
            yield text


class _Checkpoint:
    """A file that counts are kept in while they grow."""

    def __init__(self, path: Path, about: str, seconds: float) -> None:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"checkpoint {str(path)!r} lies in a folder that does not exist.")
        self.path, self.about, self.seconds = path, about, seconds
        self._last = time.monotonic()

    def load(self, tally: Tally, read: _Texts) -> tuple[int, int]:
        """Return how many texts, and windows of the next, are counted; the tally goes on from there."""
        if not self.path.exists():
            return 0, 0
        try:
            with safe_open(self.path, framework="numpy") as file:
                described = json.loads((file.metadata() or {})["attnwidgets"])
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise ValueError(
                f"checkpoint {str(self.path)!r} is damaged or something else; remove it."
            ) from error
        if described["about"] != self.about:
            raise ValueError(
                f"checkpoint {str(self.path)!r} is of another SAE, model or options; remove it, or name "
                "another file."
            )
        tally.restore(state)
        read.expected = {described["read"]: described["digest"]}
        return described["texts"], described["windows"]

    def after(self, tally: Tally, read: _Texts, done: tuple[int, int]) -> None:
        """Write the counts if it is time to."""
        if time.monotonic() - self._last < self.seconds:
            return
        described = {
            "about": self.about,
            "texts": done[0],
            "windows": done[1],
            "read": read.count,
            "digest": read.digest,
        }
        state = {name: np.ascontiguousarray(array) for name, array in tally.state().items()}
        write_bytes(self.path, dump_tensors(state, metadata={"attnwidgets": json.dumps(described)}))
        self._last = time.monotonic()

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)


def _chunks(
    corpus: Corpus, read: _Texts, kept: _Checkpoint | None, tally: Tally
) -> Iterator[tuple[list[Window], tuple[int, int]]]:
    """Yield windows of a chunk, and how many texts, and windows of the last, are read with it."""
    texts, done = (0, 0) if kept is None else kept.load(tally, read)
    size = min(max(_ACTIVATIONS // tally.features, _TOKENS[0]), _TOKENS[1])
    chunk: list[Window] = []
    tokens = 0
    for item in islice(corpus.windows(skip=texts), done, None):
        if chunk and tokens + len(item.ids) > size:
            yield chunk, (texts, done)
            chunk, tokens = [], 0
        done = done + 1 if item.text == texts else 1
        texts = item.text
        chunk.append(item)
        tokens += len(item.ids)
    if chunk:
        yield chunk, (texts, done)


def _encoder(
    sae: SAE, model: Any, corpus: Corpus, place: Site, features: tuple[int, ...]
) -> Callable[[list[Window]], Chunk]:
    """Return what makes a chunk of windows, with the features' activations on all of their tokens."""
    some = None if len(features) == sae.d_sae else features

    def encode(windows: list[Window]) -> Chunk:
        ends = np.cumsum([len(window.ids) for window in windows])
        states: Tensor | None = None
        order = {id(window): number for number, window in enumerate(windows)}
        with reading(model, place) as read:
            for batch in batches(windows, _BATCH, sort=len(windows)):
                found = by_token(read(**corpus.inputs(batch)), batch)
                if states is None:
                    require_width(sae, found.shape[-1], place, model)
                    states = torch.empty(int(ends[-1]), found.shape[-1], dtype=sae.dtype, device=sae.device)
                for row, window in enumerate(batch):
                    end = int(ends[order[id(window)]])
                    states[end - len(window.ids) : end] = found[row, : len(window.ids)]
        if states is None:  # chunks are not empty
            raise AssertionError
        activations = sae.encode(states, features=some).float().cpu().numpy()
        sizes = [len(window.ids) for window in windows]
        return Chunk(
            activations=activations,
            ids=np.array([number for window in windows for number in window.ids]),
            counts=np.array([counts for window in windows for counts in window.counts]),
            window=np.repeat(np.arange(len(windows)), sizes),
            text=np.repeat([window.text for window in windows], sizes),
            place=np.concatenate([window.begin + np.arange(len(window.ids)) for window in windows]),
        )

    return encode


def _arrays(tally: Tally, sae: SAE, features: tuple[int, ...], k: int) -> dict[str, Any]:
    """Return what `FeatureStats` keeps."""
    arrays: dict[str, Any] = {"features": np.array(features, dtype=np.int64)}
    for name in ("count", "total", "maxima", "exponent", "histogram"):
        arrays[name] = getattr(tally, name)
    for name, slots in (("top", tally.top), ("drawn", tally.drawn)):
        arrays |= {f"{name}.{field}": array for field, array in slots.fields.items() if field != "key"}
    return arrays | nearest(sae, features, k) | companions(tally.pairs(), features, k)


def _facts(
    tally: Tally, corpus: Corpus, arrays: dict[str, Any], sae: SAE, texts: int, before: int
) -> dict[str, Any]:
    """Return what spells the tokens, and what was counted."""
    ids = {int(number) for name in arrays if name.endswith(".ids") for number in np.unique(arrays[name])}
    ids |= {int(number) for name in ("promoted", "suppressed") for number in np.unique(arrays.get(name, []))}
    known = sorted(ids - {NONE})
    tokenizer = corpus.tokenizer
    if tokenizer is None:
        pieces, scheme = [str(number) for number in known], "plain"
    else:
        # An unembedding may have more rows than the tokenizer has tokens.
        found = tokenizer.convert_ids_to_tokens(known) if known else []
        pieces = [
            f"#{number}" if piece is None else str(piece) for number, piece in zip(known, found, strict=True)
        ]
        scheme = scheme_of(tokenizer, pieces)
    return {
        "d_sae": sae.d_sae,
        "tokens": tally.tokens,
        "texts": texts,
        "paired_tokens": tally.paired_tokens,
        "before": before,
        "pieces": dict(zip(map(str, known), pieces, strict=True)),
        "special": sorted(corpus.special & set(known)),
        "scheme": scheme,
    }


def _warning(tally: Tally) -> str:
    if tally.paired_tokens == tally.tokens:
        return ""
    return f"features that fire along were counted on {tally.paired_tokens} of {tally.tokens} tokens"


def _fingerprint(sae: SAE, model: Any, site: str, features: tuple[int, ...], options: Any) -> str:
    """Return a digest of what statistics are of, but for the texts."""
    digest = hashlib.sha256()
    for _, tensor in sorted(sae.state_dict().items()):
        digest.update(tensor.detach().cpu().double().numpy().tobytes())
    said = {name: value for name, value in sae.options().items() if name not in ("metadata", "origin")}
    digest.update(repr((said, type(model).__name__, site, features, options)).encode())
    return digest.hexdigest()


def _require_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, not {number}.")
