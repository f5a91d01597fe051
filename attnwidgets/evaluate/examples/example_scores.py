"""The row of a target, method by method: the strips of "aggregated scores for one example".

Mohebbi et al. 2023, Quantifying Context Mixing in Transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._selecting import pick
from attnwidgets.evaluate.examples import cues
from attnwidgets.evaluate.examples.explained_input import functions_by_name, rows_of
from attnwidgets.evaluate.scorecards.scorecard import Scorecard
from attnwidgets.tracing.model_parcel import Reader

if TYPE_CHECKING:
    from attnwidgets.evaluate.examples.explained_input import Specs


def example_scores(
    model: Any,
    tokenizer: Any,
    example: Any,
    *,
    methods: Specs | None = None,
    layer: int = -1,
    unit: Literal["word", "token"] = "word",
    mask_target: bool | None = None,
    row: Literal["target", "before"] = "target",
    pieces: Literal["first", "all"] = "first",
    normalize: Literal["row", "none"] = "row",
) -> Scorecard:
    """Return the row of a target over tokens by each method, a strip per method.

    For cumulative maps (rollout, GlobEnc, `("alti", {"rolled_out": True})`) these are the scores aggregated
    over the layers up to `layer`. `.figure("table")` draws the strips.

    Args:
        model: As `aw.trace` takes it.
        tokenizer: Its tokenizer.
        example: An example, as `cue_contribution` takes it.
        methods: As `cue_contribution` takes them.
        layer: Number of the layer; the last by default.
        unit: Unit of the indices, "word" or "token".
        mask_target: Mask tokens of the target; see `cue_contribution`.
        row: The row that is read, "target" or "before"; for several target tokens the mean.
        pieces: Which tokens of a cue word are marked, the "first" or "all".
        normalize: "row" divides rows by the sums of their absolute values; "none" leaves them unchanged.

    Returns:
        A Scorecard of an example [metric "score", method, token]; `.x_notes` marks target and cues. The
        baselines are a uniform row, and a row that lies on the cues alone.

    Raises:
        ValueError: As `cue_contribution` does.
        TypeError: As `cue_contribution` does.
        IndexError: If a layer is out of range.

    Example:
        >>> example = {"text": "The keys to the safe are here.", "target": 5, "cues": [1]}
        >>> card = aw.evaluate.example_scores(*aw.demo_model("encoder"), example, methods="attention")
        >>> card.methods
        ('attention', 'random', 'oracle')
    """
    options = {"unit": unit, "row": row, "pieces": pieces, "normalize": normalize}
    cues.require_choices(options)
    functions = None if methods is None else functions_by_name(methods)
    reader = Reader(model, tokenizer)
    how = cues.reading(reader.model, reader.tokenizer, example, unit, pieces, mask_target)
    functions = functions or functions_by_name(cues.default_methods(causal=how.causal))
    (only,) = how.examples([example])
    (trace,) = cues.traced(reader.model, reader.tokenizer, [only])
    rows = cues.rows_read(only, row)
    (number,) = pick(layer, tuple(trace.layers()), "layer")
    n = len(only.ids)
    sight = np.stack([cues.seen(n, at, causal=how.causal) for at in rows])
    uniform = (sight / sight.sum(axis=1, keepdims=True)).mean(axis=0)
    strips = [
        cues.shares(rows_of(function(trace), rows, n, name)[number], normalize).mean(axis=0)
        for name, function in functions.items()
    ]
    strips += [uniform, cues.indicator(only.cues, n) / len(only.cues)]
    return Scorecard(
        np.stack(strips)[None, None],
        metrics=("score",),
        methods=[*functions, *cues.BASELINES],
        baselines=cues.BASELINES,
        x=trace.tokens,
        x_name="token",
        x_notes=["target" if at in only.target else "cue" if at in only.cues else "" for at in range(n)],
        method="example_scores",
        warning=trace.warning,
        provenance={
            "title": f"scores in layer {number}",
            "model": trace.model_id,
            "text": trace.text,
            "paper": cues.PAPER,
            "options": options | {"mask_target": how.mask, "layer": number},
            "steps": cues.departures(options, masked=how.mask),
        },
    )
