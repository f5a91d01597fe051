"""The row of one target, method by method: the strips of "aggregated scores for one example".

Mohebbi et al. 2023, Quantifying Context Mixing in Transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._selecting import pick
from attnwidgets.evaluate.examples.cues import (
    BASELINES,
    PAPER,
    check,
    default_methods,
    departures,
    indicator,
    reading,
    rows_read,
    seen,
    shares,
    traced,
)
from attnwidgets.evaluate.examples.method_specs import named, rows_of
from attnwidgets.evaluate.scorecards.scorecard import Scorecard
from attnwidgets.tracing.model_parcel import Reader

if TYPE_CHECKING:
    from attnwidgets.evaluate.examples.method_specs import Specs


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
    """What each method finds in the context of one target: its row over the tokens, one strip a method.

    For cumulative maps (rollout, GlobEnc, `("alti", {"rolled_out": True})`) these are the scores aggregated
    over the layers up to `layer`. `.plot("table")` draws the strips.

    Args:
        model: As `aw.trace` takes it.
        tokenizer: Its tokenizer.
        example: One example, as `cue_contribution` takes it.
        methods: As `cue_contribution` takes them.
        layer: Which layer; the last by default.
        unit: What the indices count, "word" or "token".
        mask_target: Whether tokens of the target are masked; see `cue_contribution`.
        row: Whose row is read, "target" or "before"; of several target tokens the mean.
        pieces: Which tokens of a cue word are marked, the "first" or "all".
        normalize: "row" divides rows by the sums of their absolute values; "none" takes them as they are.

    Returns:
        A Scorecard of one example [metric "score", method, token]; `.x_notes` says which tokens are target
        and cues. The baselines are a uniform row and one that lies on the cues alone.

    Raises:
        ValueError, TypeError: As `cue_contribution` does.
        IndexError: Where the model has no such layer.
    """
    options = {"unit": unit, "row": row, "pieces": pieces, "normalize": normalize}
    check(options)
    functions = None if methods is None else named(methods)
    reader = Reader(model, tokenizer)
    how = reading(reader.model, reader.tokenizer, example, unit, pieces, mask_target)
    functions = functions or named(default_methods(causal=how.causal))
    (only,) = how.examples([example])
    (trace,) = traced(reader.model, reader.tokenizer, [only])
    rows = rows_read(only, row)
    (number,) = pick(layer, tuple(range(trace.n_layers())), "layer")
    n = len(only.ids)
    sight = np.stack([seen(n, at, causal=how.causal) for at in rows])
    uniform = (sight / sight.sum(axis=1, keepdims=True)).mean(axis=0)
    strips = [
        shares(rows_of(function(trace), rows, n, name)[number], normalize).mean(axis=0)
        for name, function in functions.items()
    ]
    strips += [uniform, indicator(only.cues, n) / len(only.cues)]
    return Scorecard(
        np.stack(strips)[None, None],
        metrics=("score",),
        methods=[*functions, *BASELINES],
        baselines=BASELINES,
        x=trace.tokens,
        x_name="token",
        x_notes=["target" if at in only.target else "cue" if at in only.cues else "" for at in range(n)],
        method="example_scores",
        warning=trace.warning,
        provenance={
            "title": f"scores in layer {number}",
            "model": trace.model_id,
            "text": trace.text,
            "paper": PAPER,
            "options": options | {"mask_target": how.mask, "layer": number},
            "steps": departures(options, masked=how.mask),
        },
    )
