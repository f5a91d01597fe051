"""Stability: how far an explanation moves if the input hardly does, as sensitivity and Lipschitz estimate."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import as_list, by_name, source_of
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM, scored
from attnwidgets.explanations.attribution.baselines import are_baselines_read
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import require_trace
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor, nn

    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.trace import Trace

METRICS = ("max_sensitivity", "average_sensitivity", "local_lipschitz")
PAPER = (
    "Yeh et al. 2019, On the (In)fidelity and Sensitivity of Explanations; Alvarez-Melis and Jaakkola 2018, "
    "On the Robustness of Interpretability Methods"
)


@forceable
@documented
def stability(
    traces: Any,
    explanations: Any,
    target: Any = None,
    *,
    radius: float = 0.02,
    samples: int = 10,
    normalize: bool = True,
    same_prediction: bool = False,
    noise: Any = None,
    seed: int = 0,
) -> Scorecard:
    """Measure how far explanations move if noise d, at most `radius` in every number, is added to embeddings.

        max_sensitivity       max over d of |a(x + d) - a(x)| / |a(x)|     (lengths; 0 is best)
        average_sensitivity   the mean over d of the same
        local_lipschitz       max over d of |a(x + d) - a(x)| / |d|

    Args:
        traces: Trace of a single text returned by `aw.trace`, or a list of such traces.
        explanations: A name in `aw.methods()`, a pair (name, options), or a function of a trace that returns
            Attributions or numbers; a list of these, or a mapping from names to them. They are computed anew
            for every d.
        target: The target that methods given by name explain; by default the prediction without noise.
        radius: The largest change of a number of an embedding, above 0.
        samples: Number of draws of d.
        normalize: Divide sensitivities by |a(x)|, as captum and Quantus do; else, as in the paper and in
            lectures, they are in the explanation's units.
        same_prediction: Count only those d that leave the prediction (at the target's row) as it is.
        noise: The noise to add, [sample, token, dim], instead of draws; for a single trace.
        seed: {seed}
        force: {force}

    Returns:
        A Scorecard [metric, method, 1]. "random" is an explanation drawn anew each time (defined for
        normalized sensitivities only); "oracle" never moves, which alone is not a merit. NaN if |a(x)| = 0
        with `normalize`, or no d counts.

    Raises:
        ValueError: If a trace holds more than the tokens of a single text, the noise has another shape, or an
            option is out of range.
        TypeError: If an explanation is finished, or not numeric.

    Source: Yeh et al. 2019, definition 2.2; Alvarez-Melis and Jaakkola 2018, equation 2, over the
    noise that is drawn.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film.")
        >>> aw.evaluate.stability(trace, "saliency", samples=2).metrics
        ('max_sensitivity', 'average_sensitivity', 'local_lipschitz')
    """
    if samples < 1 or not radius > 0:
        raise ValueError(f"samples must be at least 1 and radius above 0; they are {samples} and {radius}.")
    traces = as_list(traces)
    specs = {str(name): method for name, method in by_name(explanations).items()}
    if noise is not None and len(traces) > 1:
        raise ValueError(f"noise is for a single trace, not {len(traces)}.")
    scores = []
    for number, trace in enumerate(traces):
        require_trace(trace, "evaluate.stability")
        require_one_text(trace, f"traces[{number}]", "stability")
        resolved = resolve_target(trace, target, method="stability")
        methods = {name: source_of(spec, 1, name, resolved, finished=False) for name, spec in specs.items()}
        seeds = [seed, number]
        drawn = _noise(trace, noise, radius, samples, seeds)
        scores.append(
            _scores(trace, methods, resolved, drawn, seeds, normalize=normalize, same=same_prediction)
        )
    table = np.array(scores)[..., None]
    notes = ["random has no units, in which a distance could be told"]
    if np.isnan(table[:, :, : len(specs)]).any():
        notes.append("undefined where an explanation is zero, or no noise leaves the prediction")
    return scored(
        table,
        "stability",
        model=traces[0].model_id,
        metrics=METRICS,
        methods=[*specs, RANDOM, ORACLE],
        baselines=(RANDOM, ORACLE),
        notes=notes,
        paper=PAPER,
        options={
            "radius": radius,
            "samples": samples,
            "normalize": normalize,
            "same_prediction": same_prediction,
            "noise": "drawn" if noise is None else "given",
            "seed": seed,
        },
    )


def _scores(
    trace: Trace,
    methods: Mapping[str, Callable[[int, Trace], Any]],
    target: Target,
    noise: Float,
    seed: list[int],
    *,
    normalize: bool,
    same: bool,
) -> Float:
    """Return the scores of a text [metric, method], baselines last."""
    import torch

    from attnwidgets.tracing.recording.run import trace as trace_again

    ids = torch.as_tensor(trace.input_ids)
    at_rest = {name: _numbers(method(0, trace), name) for name, method in methods.items()}
    before = _decision(trace, target)
    distances: dict[str, list[float]] = {name: [] for name in methods}
    lengths = []
    for draw in progress(noise, "adding noise"):
        with perturbed(trace.model, ids, torch.from_numpy(draw)):
            again = trace_again(trace.model, trace.tokenizer, input_ids=ids.tolist())
            if same and _decision(again, target) != before:
                continue
            lengths.append(float(np.linalg.norm(draw)))
            for name, method in methods.items():
                change = _numbers(method(0, again), name) - at_rest[name]
                distances[name].append(float(np.linalg.norm(change)))
    norms = {name: float(np.linalg.norm(values)) for name, values in at_rest.items()}
    generator = np.random.default_rng([*seed, 1])
    size = next(iter(at_rest.values())).size
    start = generator.normal(size=size)
    norms[RANDOM] = float(np.linalg.norm(start))
    distances[RANDOM] = [float(np.linalg.norm(generator.normal(size=size) - start)) for _ in lengths]
    scores = np.full((len(METRICS), len(distances) + 1), np.nan)
    for column, (name, moved) in enumerate(distances.items()):
        scale = norms[name] if normalize else 1.0
        if moved and scale:
            shares = np.array(moved) / scale
            scores[:, column] = shares.max(), shares.mean(), (np.array(moved) / np.array(lengths)).max()
    # A random explanation has no units in which to give an absolute distance.
    scores[-1 if normalize else slice(None), -2] = np.nan
    scores[:, -1] = 0.0
    return scores


def _numbers(explanation: Any, name: str) -> Float:
    if isinstance(explanation, MixingMap):
        raise TypeError(
            f"explanation {name!r} is a map: make a vector of it, .to_attributions('row', query='cls')."
        )
    values: Any = explanation.values if isinstance(explanation, Attributions) else explanation
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"explanation {name!r} is a {type(explanation).__name__}, neither Attributions nor numbers."
        ) from error


def _decision(trace: Trace, target: Target) -> int | None:
    """Return the column of the highest logit at the target's row; None if the target is not a logit."""
    if trace.logits is None or target.index is None:
        return None
    row = trace.logits if target.position is None else trace.logits[target.position]
    return int(row.argmax())


def _noise(trace: Trace, noise: Any, radius: float, samples: int, seed: list[int]) -> Float:
    from attnwidgets.tracing.anatomy.block_names import word_embeddings
    from attnwidgets.tracing.recording.borrow import unwrap

    tables: list[Any] = word_embeddings(unwrap(trace.model))
    shape = (len(trace.tokens), tables[0].embedding_dim)
    if noise is None:
        return np.random.default_rng(seed).uniform(-radius, radius, size=(samples, *shape))
    array = np.asarray(noise, dtype=np.float64)
    if array.shape[1:] != shape or not len(array):
        raise ValueError(
            f"noise has shape {array.shape}; it must be [sample, {shape[0]} tokens, {shape[1]} numbers]."
        )
    return array


def require_one_text(trace: Trace, name: str, function: str) -> None:
    """Raise ValueError if a trace cannot be made again from its ids alone.

    Args:
        trace: The trace.
        name: The argument, for the message.
        function: The function that was called.
    """
    types = trace.inputs.get("token_type_ids")
    of_text = {"input_ids", "attention_mask", "token_type_ids"}
    if (
        trace.model is None
        or trace.input_ids is None
        or set(trace.inputs) - of_text
        or (types is not None and bool(types.any()))
    ):
        raise ValueError(
            f"{name} is not of one text that an encoder or a decoder reads, with its model; {function} "
            "traces it again from its token ids."
        )


@contextmanager
def perturbed(model: nn.Module, ids: Tensor, noise: Tensor, *, alone: str = "") -> Iterator[None]:
    """Add `noise` [token, dim] to the embeddings of the text `ids` [token], in every pass within the block.

    The `forward` of the embeddings is wrapped, so that methods that read, replace or differentiate its output
    meet the changed embeddings. Other texts, threads and tasks are not affected; everything is undone at the
    end.

    Args:
        model: The model.
        ids: The text.
        noise: The noise.
        alone: Name of a method that is refused if it reads other texts here, which have no noise. Baselines
            are not such texts, nor is the beginning of the text, on which rules of relevance are checked.

    Raises:
        ValueError: If it does.
    """
    from attnwidgets.tracing.anatomy.block_names import word_embeddings
    from attnwidgets.tracing.recording.borrow import current_twin, unwrap
    from attnwidgets.tracing.recording.call_scope import own_calls, own_method

    inner = unwrap(model)
    twin = current_twin(inner)
    with own_calls() as calls, ExitStack() as exits:
        for module in (*word_embeddings(inner), *(() if twin is None else word_embeddings(twin))):
            wrap = partial(partial, _with_noise, ids, noise, alone)
            exits.enter_context(own_method(module, "forward", wrap, calls))
        yield


def _with_noise(
    ids: Tensor,
    noise: Tensor,
    alone: str,
    embed: Callable[..., Tensor],
    read_ids: Tensor,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    """Return the embeddings of `read_ids`, with the noise if these are the text's ids."""
    import torch

    embeddings = embed(read_ids, *args, **kwargs)
    if are_baselines_read():
        return embeddings
    if read_ids.shape[-1] == len(ids) and torch.equal(read_ids, ids.to(read_ids.device).expand_as(read_ids)):
        return embeddings + noise.to(embeddings)
    if alone and not _is_beginning(read_ids, ids):
        raise ValueError(
            f"method {alone!r} reads texts without some of the tokens, whose embeddings are those of the "
            "vocabulary: it cannot be attacked between words. Give words=aw.evaluate.near_words(...)."
        )
    return embeddings


def _is_beginning(read_ids: Tensor, ids: Tensor) -> bool:
    """Return whether ids begin a text; or are one token, or positions, whose table may be as large."""
    import torch

    length = read_ids.shape[-1]
    texts = (ids[:length].to(read_ids), torch.arange(length).to(read_ids))
    return length == 1 or any(
        len(text) == length and torch.equal(read_ids, text.expand_as(read_ids)) for text in texts
    )
