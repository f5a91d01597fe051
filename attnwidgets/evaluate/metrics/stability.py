"""Does an explanation move where the input hardly does? Sensitivity, and the local Lipschitz estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.evaluate.examples.explained_input import by_name, source_of
from attnwidgets.evaluate.metrics.embedding_noise import perturbed
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM, scored
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import require_trace
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

METRICS = ("max_sensitivity", "average_sensitivity", "local_lipschitz")
PAPER = (
    "Yeh et al. 2019, On the (In)fidelity and Sensitivity of Explanations; Alvarez-Melis and Jaakkola 2018, "
    "On the Robustness of Interpretability Methods"
)


@forceable
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
    """How far explanations move where noise d, at most `radius` in every number, is added to the embeddings.

        max_sensitivity       max over d of |a(x + d) - a(x)| / |a(x)|     (lengths; 0 at best)
        average_sensitivity   the mean over d of the same
        local_lipschitz       max over d of |a(x + d) - a(x)| / |d|

    Args:
        traces: What `aw.trace` returned of one text each, or a list of such traces.
        explanations: A name in `aw.methods()`, a pair (name, options), or a function of a trace that returns
            Attributions or numbers; a list of these, or a mapping from names to them. They
            are computed anew for every d.
        target: What methods given by name explain; by default what the model predicts without noise.
        radius: The largest change of one number of an embedding.
        samples: How many d are drawn.
        normalize: Whether sensitivities are divided by |a(x)|, as captum and Quantus do, or not, as in the
            paper and in lectures; they then are in the explanation's units.
        same_prediction: Whether only those d count that leave the prediction (at the target's row) as it is.
        noise: What is added, [sample, token, dim], instead of what would be drawn; for a single trace.
        seed: Of the draws.

    Returns:
        A Scorecard [metric, method, 1]. "random" is an explanation that is drawn anew each time (defined for
        normalized sensitivities only), "oracle" one that never moves, which is no merit by itself. NaN where
        |a(x)| = 0 and `normalize`, or no d counts.

    Raises:
        ValueError: Where a trace is of more than one text of tokens; noise of another shape; options out of
            range.
        TypeError: Where an explanation is finished, or is no numbers.

    Source: Yeh et al. 2019, definition 2.2; Alvarez-Melis and Jaakkola 2018, equation 2, over the
    noise that is drawn.
    """
    if samples < 1 or not radius > 0:
        raise ValueError(f"samples must be at least 1 and radius above 0; they are {samples} and {radius}.")
    every = list(traces) if isinstance(traces, (list, tuple)) else [traces]
    given = by_name(explanations)
    if noise is not None and len(every) > 1:
        raise ValueError(f"noise is for a single trace; there are {len(every)}.")
    found = []
    for number, trace in enumerate(every):
        require_trace(trace, "stability")
        _require_one_text(trace, number)
        meant = resolve_target(trace, target, method="stability")
        methods = {
            str(name): source_of(one, 1, str(name), meant, finished=False) for name, one in given.items()
        }
        drawn = _noise(trace, noise, radius, samples, [seed, number])
        found.append(
            _scores(trace, methods, meant, drawn, [seed, number], normalize=normalize, same=same_prediction)
        )
    table = np.array(found)[..., None]
    notes = ["random has no units, in which a distance could be told"]
    if np.isnan(table[:, :, : len(given)]).any():
        notes.append("undefined where an explanation is zero, or no noise leaves the prediction")
    return scored(
        table,
        "stability",
        model=every[0].model_id,
        metrics=METRICS,
        methods=[*map(str, given), RANDOM, ORACLE],
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
    """Return the scores of one text [metric, method], baselines last."""
    import torch

    from attnwidgets.tracing.recording.run import trace as trace_again

    ids = torch.as_tensor(trace.input_ids)
    at_rest = {name: _numbers(method(0, trace), name) for name, method in methods.items()}
    before = _decision(trace, target)
    moved: dict[str, list[float]] = {name: [] for name in methods}
    lengths = []
    for one in progress(noise, "adding noise"):
        with perturbed(trace.model, ids, torch.from_numpy(one)):
            again = trace_again(trace.model, trace.tokenizer, input_ids=ids.tolist())
            if same and _decision(again, target) != before:
                continue
            lengths.append(float(np.linalg.norm(one)))
            for name, method in methods.items():
                change = _numbers(method(0, again), name) - at_rest[name]
                moved[name].append(float(np.linalg.norm(change)))
    norms = {name: float(np.linalg.norm(values)) for name, values in at_rest.items()}
    generator = np.random.default_rng([*seed, 1])
    size = next(iter(at_rest.values())).size
    start = generator.normal(size=size)
    norms[RANDOM] = float(np.linalg.norm(start))
    moved[RANDOM] = [float(np.linalg.norm(generator.normal(size=size) - start)) for _ in lengths]
    columns = []
    for name, distances in moved.items():
        scale = norms[name] if normalize else 1.0
        if not distances or not scale:
            columns.append([np.nan] * len(METRICS))
            continue
        shares = np.array(distances) / scale
        lipschitz = float((np.array(distances) / np.array(lengths)).max())
        columns.append([shares.max(), shares.mean(), lipschitz])
    # A random explanation has no units, in which an absolute distance could be told.
    columns[-1] = [*columns[-1][:2], np.nan] if normalize else [np.nan] * len(METRICS)
    columns.append([0.0] * len(METRICS))
    return np.array(columns).T


def _numbers(found: Any, name: str) -> Float:
    if isinstance(found, MixingMap):
        raise TypeError(
            f"explanation {name!r} is a map: make a vector of it, .to_attributions('row', query='cls')."
        )
    values: Any = found.values if isinstance(found, Attributions) else found
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"explanation {name!r} is a {type(found).__name__}, neither Attributions nor numbers."
        ) from error


def _decision(trace: Trace, target: Target) -> int | None:
    """Return the column of the highest logit at the target's row; None where the target is no logit."""
    if trace.logits is None or target.index is None:
        return None
    row = trace.logits if target.position is None else trace.logits[target.position]
    return int(row.argmax())


def _noise(trace: Trace, noise: Any, radius: float, samples: int, seed: list[int]) -> Float:
    from attnwidgets.tracing.block_names import word_embeddings
    from attnwidgets.tracing.recording.borrow import unwrap

    tables: list[Any] = word_embeddings(unwrap(trace.model))
    width = tables[0].embedding_dim
    shape = (len(trace.tokens), width)
    if noise is None:
        return np.random.default_rng(seed).uniform(-radius, radius, size=(samples, *shape))
    found = np.asarray(noise, dtype=np.float64)
    if found.shape[1:] != shape or not len(found):
        raise ValueError(
            f"noise has shape {found.shape}; it is [sample, {shape[0]} tokens, {shape[1]} numbers]."
        )
    return found


def _require_one_text(trace: Trace, number: int) -> None:
    """Raise ValueError where a trace cannot be made again from its ids alone."""
    types = trace.inputs.get("token_type_ids")
    known = {"input_ids", "attention_mask", "token_type_ids"}
    if (
        trace.model is None
        or trace.input_ids is None
        or set(trace.inputs) - known
        or (types is not None and bool(types.any()))
    ):
        raise ValueError(
            f"traces[{number}] is not of one text that an encoder or a decoder reads, with its model; "
            "stability makes it again from its token ids."
        )
