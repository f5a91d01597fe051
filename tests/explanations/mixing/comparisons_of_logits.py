"""Comparisons with the authors' numbers of logits taken apart, for the tests of these methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.mixing.alti import alti, alti_logit
from attnwidgets.explanations.mixing.contribution_graph import contribution_graph
from attnwidgets.explanations.mixing.decompx import decompx
from attnwidgets.explanations.mixing.direct_logit_attribution import direct_logit_attribution
from tests.explanations.mixing.comparing import EXACT, Comparison

if TYPE_CHECKING:
    from collections.abc import Callable

    Beside = Callable[[str], np.ndarray]

_VARIANTS: dict[str, dict[str, Any]] = {
    "paper_absdot_geluZO": {},
    "bias_abssim": {"bias": "abssim"},
    "bias_norm": {"bias": "norm"},
    "bias_equal": {"bias": "equal"},
    "bias_cls": {"bias": "cls"},
    "no_bias": {"bias": None},
    "geluLA": {"activation": "linear_approximation"},
    "relu": {"activation": "relu"},
    "no_ffn": {"ffn": False},
}


def _decompx(variant: str, options: dict[str, Any]) -> list[Comparison]:
    call = f"decompx(trace, [0, 1]{''.join(f', {name}={value!r}' for name, value in options.items())})"
    file = f"decompx__{variant}"
    return [
        Comparison(
            file,
            "classifier",
            f"{call}.values.T",
            lambda trace: decompx(trace, [0, 1], **options).values.T,
            1e-6,
            EXACT,
            slow=True,
        ),
        Comparison(
            file,
            "aggregated_norm",
            f"{call}.map",
            lambda trace: decompx(trace, [0, 1], **options).map.values,
            1e-4,
            EXACT,
            relative=True,
            slow=True,
        ),
    ]


def _pair(beside: Beside) -> list[int]:
    result: list[int] = beside("tokens_target_foil").tolist()
    return result


def _taken_apart(row: str) -> Callable[[Any, Beside], np.ndarray]:
    """Return a function that gives a row of a direct logit attribution, or such a row of every layer."""

    def compute(trace: Any, beside: Beside) -> np.ndarray:
        direct = direct_logit_attribution(trace, _pair(beside))
        rows = dict(zip(direct.labels, direct.values.T, strict=True))
        return rows[row] if row in rows else np.stack([rows[f"{row} {layer}"] for layer in range(4)])

    return compute


def _alti_logit(
    quantity: str,
    call: str,
    compute: Callable[[Any, Beside], Any],
    *,
    single: float,
    double: float = EXACT,
    why: str = "",
) -> Comparison:
    return Comparison(
        "tiny_gpt2_alti_logit", quantity, call, compute, single, double, why=why, slow=True, asks=True
    )


def _by_layer(trace: Any, beside: Beside, **options: Any) -> np.ndarray:
    """Return the layers' shares [target, layer, source]."""
    values: np.ndarray = alti_logit(trace, _pair(beside), **options).map.values.transpose(1, 0, 2)
    return values


def _contrast(trace: Any, beside: Beside, **options: Any) -> np.ndarray:
    target, foil = _pair(beside)
    values: np.ndarray = alti_logit(trace, target, foil, initial="apart", **options).values
    return values


def _graph(number: int, quantity: str) -> Comparison:
    def compute(trace: Any) -> np.ndarray:
        graph = contribution_graph(trace, compat="authors")
        sides = {"attn_residual": "residual", "mlp": "mlp", "mlp_residual": "mlp_residual"}
        if quantity == "attn":
            return graph.layer(number).transpose(1, 2, 0)
        side: np.ndarray = getattr(graph, sides[quantity])[number]
        return side

    return Comparison(
        "tiny_gpt2_llmtt_contributions",
        f"l{number}/{quantity}",
        f'contribution_graph(trace, compat="authors"), layer {number}: {quantity.replace("_", " ")}',
        compute,
        1e-6,
        EXACT,
        slow=True,
    )


OF_LOGITS: tuple[Comparison, ...] = (
    *(comparison for variant, options in _VARIANTS.items() for comparison in _decompx(variant, options)),
    *(
        _alti_logit(
            quantity,
            f"direct_logit_attribution(trace, [target, foil]): {row}",
            _taken_apart(row),
            single=2e-5,
        )
        for quantity, row in (
            ("mlp_logit_layers", "mlp"),
            ("b_o_logits_layers", "bias"),
            ("init_logit", "initial"),
            ("lnf_bias", "final bias"),
        )
    ),
    _alti_logit(
        "logit_aff_x_j_heads_last",
        "direct_logit_attribution(trace, [target, foil]).map",
        lambda trace, beside: direct_logit_attribution(trace, _pair(beside)).map.values,
        single=2e-5,
    ),
    _alti_logit(
        "logit_aff_x_j_per_layer",
        "alti_logit(trace, [target, foil], tracked=False).map",
        lambda trace, beside: _by_layer(trace, beside, tracked=False),
        single=2e-5,
    ),
    _alti_logit(
        "logit_lin_x_j_last",
        'alti_logit(trace, [target, foil], tracked=False, biases="apart").map',
        lambda trace, beside: alti_logit(trace, _pair(beside), tracked=False, biases="apart").map.values,
        single=2e-5,
    ),
    _alti_logit(
        "logit_aff_x_j_alti_per_layer",
        'alti_logit(trace, [target, foil], compat="authors").map',
        lambda trace, beside: alti_logit(trace, _pair(beside), compat="authors").map.values.transpose(
            1, 0, 2
        ),
        single=2e-5,
    ),
    _alti_logit(
        "alti_logit_contrastive",
        'alti_logit(trace, target, foil, initial="apart")',
        _contrast,
        single=1e-4,
        double=1e-4,
        why="the authors' ALTI adds 1e-6 inside its distance, ours adds nothing",
    ),
    _alti_logit(
        "alti_logit_contrastive",
        'alti_logit(trace, target, foil, initial="apart", compat="authors")',
        lambda trace, beside: _contrast(trace, beside, compat="authors"),
        single=2e-5,
    ),
    *(
        _alti_logit(quantity, call, lambda trace, _, options=options: alti(trace, **options), single=2e-6)
        for quantity, call, options in (
            ("alti_layer_contributions", 'alti(trace, compat="authors")', {"compat": "authors"}),
            (
                "alti_rollout",
                'alti(trace, rolled_out=True, compat="authors")',
                {"rolled_out": True, "compat": "authors"},
            ),
        )
    ),
    *(
        _graph(number, quantity)
        for number in range(4)
        for quantity in ("attn", "attn_residual", "mlp", "mlp_residual")
    ),
)
