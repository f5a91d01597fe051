"""Cue contribution: the share of a token's context that a method attributes to the words that decide it.

Mohebbi et al. 2023, Quantifying Context Mixing in Transformers. Examples are read in shards, whose scores are
cached and can be computed by several processes (`_Scorer`); `_Score` turns the rows of an example into its
scores and those of the baselines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._former import former_keywords
from attnwidgets._selecting import pick
from attnwidgets._shards import workers_of
from attnwidgets.evaluate.examples import cues
from attnwidgets.evaluate.examples.cues import BASELINES, rows_read
from attnwidgets.evaluate.examples.explained_input import functions_by_name, labelled, rows_of
from attnwidgets.evaluate.metrics.ranking import average_precision, expected_average_precision
from attnwidgets.evaluate.scorecards.build import beside, scored
from attnwidgets.evaluate.scoring import MethodKeys, ScoreCache, Scores, score_shards
from attnwidgets.tracing.content import key_of
from attnwidgets.tracing.model_parcel import Reader
from attnwidgets.tracing.recording.run import BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor

    from attnwidgets.evaluate.arrays import Float, Order
    from attnwidgets.evaluate.examples.examples import Example
    from attnwidgets.evaluate.examples.explained_input import Specs
    from attnwidgets.evaluate.metrics.ranking import Ties
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.evaluate.scoring import Group
    from attnwidgets.tracing.model_parcel import Carried

Ranked = Literal["all", "others", "words"]
_FAMILY = "cue_contribution"


@dataclass(frozen=True, kw_only=True)
class CueProtocol:
    """How `cue_contribution` reads the row of a target, and scores and averages it.

    Args:
        mask_target: Replace tokens of the target by the mask token, so that the model must infer them, as the
            authors do. None: if the tokenizer has a mask token and attention is not causal.
        row: Whose row is read: "target", or "before", the token before it, from which a causal model
            predicts it. For a target of several tokens: the mean of the scores of their rows, or the token
            before the first.
        pieces: Which tokens of a cue word count: the "first", as for the authors, or "all".
        normalize: "row" divides the target's row by the sum of its absolute values, so that maps of lengths
            (norms, GlobEnc) compare with maps of shares; "none" takes it as it is.
        ties: Equal scores: "expected" or "together", see `aw.evaluate.average_precision`.
        level: Coverage of the confidence intervals (bootstrap over examples).
        resamples: How often examples are resampled for them.
        seed: Seed of the resampling.

    Raises:
        ValueError: If an option is unknown.

    Example:
        >>> example = {"text": "The keys to the safe are here.", "target": 5, "cues": [1]}
        >>> before = aw.evaluate.CueProtocol(row="before")
        >>> model = aw.demo_model("encoder")
        >>> aw.evaluate.cue_contribution(*model, [example], methods="attention", protocol=before).shape
        (2, 3, 6)
    """

    mask_target: bool | None = None
    row: Literal["target", "before"] = "target"
    pieces: Literal["first", "all"] = "first"
    normalize: Literal["row", "none"] = "row"
    ties: Ties = "expected"
    level: float = 0.95
    resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        cues.require_choices(self.choices)

    @property
    def choices(self) -> dict[str, str]:
        """The options by name, as provenance keeps them."""
        return {"row": self.row, "pieces": self.pieces, "normalize": self.normalize, "ties": self.ties}


_DEFAULT = CueProtocol()


@former_keywords(
    [option.name for option in fields(CueProtocol)], "protocol", "aw.evaluate.CueProtocol(...)", CueProtocol
)
def cue_contribution(
    model: Any,
    tokenizer: Any = None,
    examples: Iterable[Any] = (),
    *,
    methods: Specs | None = None,
    layers: int | Iterable[int] | slice | None = None,
    unit: Literal["word", "token"] = "word",
    ranked: Ranked | Sequence[Ranked] = "all",
    protocol: CueProtocol = _DEFAULT,
    cache: Any = None,
    jobs: int | Executor = 1,
) -> Scorecard:
    """Measure the share of annotated targets' context that methods attribute to cues, layer by layer.

    A cue is a word that decides the form of the target: the subject of a verb, the noun of a determiner. With
    s the target's row of a map (over tokens, heads averaged) and g the vector that is 1 on every cue token
    and 0 elsewhere, two scores are averaged over the examples:

        dot_product         s . g, the share of the row that lies on cues      (0 to 1 for rows of shares)
        average_precision   of ranking tokens by s, where the cues should lead (0 to 1)

    Two baselines score the same examples: "random" is the closed form for a map without information (s
    uniform; the expected precision of a random order), "oracle" a map whose rows lie on cues alone, the best
    possible. A high score says that a method finds the cue, not that the model uses it.

    Args:
        model: As `aw.trace` takes it; an encoder or a decoder. To compare models (pre-trained, fine-tuned,
            random), a mapping from names to models, or to pairs of a model and its tokenizer; they must have
            equal numbers of layers.
        tokenizer: Its tokenizer; for a mapping, that of models which are given without one.
        examples: Mappings or objects with `words` (a list) or `text`, `target` (or target_index: an index or
            several) and `cues` (or cue_indices). They are read as needed; a collection with a length is
            checked before anything runs.
        methods: Names in `aw.methods()`, pairs (name, options), functions of a trace that return a map, or a
            mapping from labels to these. None: attention, rollout, attention_norm (res_ln), globenc, alti and
            value_zeroing; globenc with normalised rows in causal models, which are too deep for it otherwise.
        layers: Layers by number; all by default. A layer for which a method has no map scores NaN.
        unit: The unit of the indices: "word" (of `words`; without them, of the words of the text, where each
            punctuation mark is a word), or "token" of the model, special tokens included.
        ranked: Which tokens average precision ranks: "all" that the row can see, including the target itself
            and special tokens; "others": without the target's; "words": without special tokens as well.
            Several give a metric each. The dot product always takes the whole row.
        protocol: How a target's row is read, scored and averaged: an `aw.evaluate.CueProtocol`. By default
            as the authors do.
        cache: A folder to store scores in, as for `aw.evaluate.compare`; None stores nothing.
        jobs: Number of processes that share the examples, or an executor, as for `aw.evaluate.compare`.

    Returns:
        A Scorecard [metric, method, layer] of the two metrics, the baselines last. Of several models, a
        Scorecard in which the rows of each are a group by its name.

    Raises:
        ValueError: If an option or method is unknown, or an example has no target or cues, an index out of
            range, or (in causal models, which read only earlier tokens) no cue before the target: the
            message names the example. Methods that need described blocks raise it for other models; leave
            them out of `methods`.
        TypeError: If a method returns no map.

    Source: Mohebbi et al. 2023 (the dot product); several target tokens as in the authors' later code for
    speech. They publish curves, no table of numbers.

    Example:
        >>> example = {"text": "The keys to the safe are here.", "target": 5, "cues": [1]}
        >>> card = aw.evaluate.cue_contribution(*aw.demo_model("encoder"), [example], methods="attention")
        >>> card.metrics, card.shape
        (('dot_product', 'average_precision'), (2, 3, 6))
        >>> model, tokenizer = aw.demo_model("encoder")
        >>> models = {"trained": model, "random": aw.randomized(model, copy=True)}
        >>> aw.evaluate.cue_contribution(models, tokenizer, [example], methods="attention").groups
        ('trained', 'random', '', '')
    """
    from attnwidgets._version import __version__

    if isinstance(model, Mapping):
        score_model = partial(
            cue_contribution,
            methods=methods,
            layers=layers,
            unit=unit,
            ranked=ranked,
            protocol=protocol,
            cache=cache,
            jobs=jobs,
        )
        return _of_models(score_model, model, tokenizer, list(examples))

    if not isinstance(protocol, CueProtocol):
        raise TypeError(f"protocol takes an aw.evaluate.CueProtocol, not {protocol!r:.60}.")
    rankings = (ranked,) if isinstance(ranked, str) else tuple(ranked)
    options = {"unit": unit} | protocol.choices
    for ranking in rankings:
        cues.require_choices(options | {"ranked": ranking})
    workers_of(jobs)
    specs = None if methods is None else labelled(methods)
    reader = Reader(model, tokenizer)
    source, first = _peeked(examples)
    how = cues.reading(reader.model, reader.tokenizer, first, unit, protocol.pieces, protocol.mask_target)
    numbers = tuple(range(how.layers))
    numbers = numbers if layers is None else tuple(pick(layers, numbers, "layer"))
    keys = MethodKeys(labelled(cues.default_methods(causal=how.causal)) if specs is None else specs)
    score = _Score(protocol.row, protocol.normalize, rankings, protocol.ties, causal=how.causal)
    count = at_rest = 0

    def shards() -> Iterator[list[tuple[str, Example]]]:
        nonlocal count, at_rest
        for shard in _cut(how.examples(source)):
            count, at_rest = count + len(shard), at_rest + sum(map(cues.rests, shard))
            yield [
                (key_of(example.ids, example.special, example.target, example.cues), example)
                for example in shard
            ]

    total = None
    if isinstance(source, Sized):  # examples that do not fit are refused before anything runs
        total = 0
        for shard in _cut(how.examples(source)):
            total += 1
            for example in shard:
                rows_read(example, protocol.row)
    about = key_of(__version__, reader.fingerprints, vars(score), numbers)
    with reader.carried(jobs) as carried:
        results = score_shards(
            shards(),
            _Scorer(carried, keys, score, numbers),
            keys.distinct,
            ScoreCache(cache, about),
            jobs,
            desc="cue contribution",
            total=total,
        )
    if results is None:  # there is a first example
        raise AssertionError
    return scored(
        keys.rows(results.values[_FAMILY]).swapaxes(1, 2),
        "cue_contribution",
        model=results.about["model"],
        fingerprint="-".join(reader.fingerprints),
        metrics=["dot_product", *_precisions(rankings)],
        methods=[*keys.specs, *BASELINES],
        baselines=BASELINES,
        x=numbers,
        x_name="layer",
        level=protocol.level,
        resamples=protocol.resamples,
        seed=protocol.seed,
        notes=[*results.notes, cues.sink_warning(at_rest, count)],
        paper=cues.PAPER,
        options=options | {"ranked": rankings, "mask_target": how.mask, "examples": count},
        steps=cues.departures(options, masked=how.mask, rankings=rankings),
    )


def _of_models(
    score: Callable[[Any, Any, list[Any]], Scorecard],
    models: Mapping[str, Any],
    tokenizer: Any,
    examples: list[Any],
) -> Scorecard:
    """Return the scores of several models side by side."""
    if not models:
        raise ValueError("model is an empty mapping: give at least one model by name.")
    pairs = {}
    for name, entry in models.items():
        pair = entry if isinstance(entry, tuple) else (entry, tokenizer)
        if len(pair) != len(("model", "tokenizer")) or pair[1] is None:
            raise ValueError(
                f"model[{name!r}] has no tokenizer; give (model, tokenizer), or one tokenizer for all."
            )
        pairs[name] = pair
    return beside({name: score(pair[0], pair[1], examples) for name, pair in pairs.items()})


def _peeked(examples: Iterable[Any]) -> tuple[Iterable[Any], Any]:
    """Return an iterable of all examples, and the first example."""
    stream = iter(examples)
    for first in stream:
        return examples if isinstance(examples, Sized) else chain([first], stream), first
    raise ValueError("examples is empty: give at least one, with words (or text), target and cues.")


def _cut(examples: Iterable[Example]) -> Iterator[list[Example]]:
    """Yield the examples of every shard."""
    stream = iter(examples)
    while shard := list(islice(stream, BATCH)):
        yield shard


@dataclass(frozen=True)
class _Scorer:
    """Scores examples, in any process."""

    reader: Carried
    keys: MethodKeys
    score: _Score
    layers: tuple[int, ...]

    def __call__(self, group: Group[Example]) -> Scores:
        model, tokenizer = self.reader.open()
        functions = functions_by_name(self.keys.specs_of(group.methods))
        traces = cues.traced(model, tokenizer, group.items)
        samples = []
        for example, trace in zip(group.items, traces, strict=True):
            rows = rows_read(example, self.score.row)
            by_layer = [
                rows_of(function(trace), rows, len(example.ids), name) for name, function in functions.items()
            ]
            samples.append(self.score(example, by_layer, self.layers))
        values = np.stack(samples).swapaxes(1, 2)
        notes = tuple((trace.warning,) if trace.warning else () for trace in traces)
        return Scores(group.keys, group.methods, {_FAMILY: values}, notes, {"model": traces[0].model_id})


def _precisions(rankings: Sequence[str]) -> list[str]:
    """Return the names of the metrics that rank tokens."""
    if len(rankings) == 1:
        return ["average_precision"]
    return [f"average_precision ({ranking})" for ranking in rankings]


class _Score:
    """Computes the scores of an example from its rows."""

    def __init__(
        self, row: str, normalize: str, rankings: Sequence[str], ties: Ties, *, causal: bool
    ) -> None:
        self.row = row
        self._normalize = normalize
        self._rankings = rankings
        self._ties = ties
        self._causal = causal

    def __call__(
        self, example: Example, by_layer: Sequence[dict[int, Float]], layers: Sequence[int]
    ) -> Float:
        """Return the scores of an example [metric, method, layer], baselines last.

        Args:
            example: The example.
            by_layer: For every method the rows of its layers [row, key].
            layers: The layers that are scored.
        """
        n = len(example.ids)
        is_cue = cues.indicator(example.cues, n)
        rows = rows_read(example, self.row)
        ranked = [[self._ranked(example, n, row, ranking) for row in rows] for ranking in self._rankings]
        scores = np.full((1 + len(ranked), len(by_layer) + len(BASELINES), len(layers)), np.nan)
        for method, maps in enumerate(by_layer):
            for at, layer in enumerate(layers):
                if layer not in maps:
                    continue
                mixed = cues.shares(maps[layer], self._normalize)
                scores[0, method, at] = (mixed @ is_cue).mean()
                for metric, tokens in enumerate(ranked, 1):
                    scores[metric, method, at] = self._precision(mixed, tokens, is_cue)
        scores[0, -2] = np.mean([is_cue.sum() / cues.seen(n, row, causal=self._causal).sum() for row in rows])
        for metric, tokens in enumerate(ranked, 1):
            scores[metric, -2] = np.mean(
                [expected_average_precision(int(is_cue[order].sum()), len(order)) for order in tokens]
            )
        scores[:, -1] = 1.0
        return scores

    def _precision(self, mixed: Float, tokens: list[Order], is_cue: Float) -> np.floating:
        """Return the mean average precision over rows [row, key], each over its ranked tokens."""
        return np.mean(
            [
                average_precision(share[order], np.flatnonzero(is_cue[order]).tolist(), ties=self._ties)
                for share, order in zip(mixed, tokens, strict=True)
            ]
        )

    def _ranked(self, example: Example, n: int, row: int, ranking: str) -> Order:
        """Return the tokens that are ranked; cues always are."""
        included = cues.seen(n, row, causal=self._causal)
        if ranking != "all":
            included[list(example.target)] = False
        if ranking == "words":
            included &= ~np.asarray(example.special)
        included[list(example.cues)] = True
        return np.flatnonzero(included)
