"""Comparisons with the authors' numbers, file by file: by which call, how closely, and why no closer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.mixing.alti import alti
from attnwidgets.explanations.mixing.attention import attention
from attnwidgets.explanations.mixing.attention_flow import attention_flow
from attnwidgets.explanations.mixing.attention_norm import attention_norm, globenc, mixing_ratio
from attnwidgets.explanations.mixing.hidden_token_attribution import hidden_token_attribution
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.explanations.mixing.value_zeroing import value_zeroing
from tests.explanations.mixing.comparing import EXACT, ROUNDED, Comparison, plain
from tests.explanations.mixing.comparisons_of_logits import OF_LOGITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnwidgets.explanations.results.mixing_map import MixingMap


def _jacobians(**options: Any) -> Callable[[Any], MixingMap]:
    return lambda trace: hidden_token_attribution(trace, normalize=False, **options)


def _states(trace: Any) -> np.ndarray:
    from attnwidgets.tracing.block_replay import capture

    blocks = capture(trace, "self", "test")
    by_layer = list(blocks.layers.values())
    last = by_layer[-1].output
    after = last if blocks.final_norm is None else blocks.after_final_norm(last)
    return np.stack([plain(states[0]) for states in (*(block.hidden for block in by_layer), after)])


def _parts(trace: Any, measure: Callable[[Any], Any]) -> np.ndarray:
    import torch

    from attnwidgets.tracing.algebra.block_runs import block_of
    from attnwidgets.tracing.algebra.contributions import parts_of

    with torch.no_grad():
        blocks = (block_of(trace, layer, "self", "test") for layer in range(trace.n_layers()))
        return np.stack([plain(measure(parts_of(block, "res_ln"))) for block in blocks])


def _lengths(trace: Any) -> np.ndarray:
    """Return |v W_O| of every head and token, which the attention weight leaves of a head's norm."""
    heads, weights = plain(attention_norm(trace, per_head=True)), plain(attention(trace))
    return (heads / weights).mean(axis=2)


_SHIFT = 1e-6  # inside the authors' distance
_IN_SINGLE = "the reference is stored in float32"
_NORM_IN_SINGLE = "Gemma's RMSNorm computes in float32, whatever the model is in"
_NORMS = {
    "attn_norm": "attn",
    "attn_norm_res": "res",
    "attn_norm_res_ln": "res_ln",
    "attn_norm_enc(res+ln1+ln2)": "enc",
}
_RATIOS = {"attn_norm": "attn", "attn_norm_res": "res", "attn_norm_res_ln": "res_ln", "attn_norm_enc": "enc"}


def _norms(file: str, quantities: dict[str, str], double: float, why: str) -> list[Comparison]:
    return [
        Comparison(
            file,
            quantity,
            f'attention_norm(trace, "{variant}")',
            lambda trace, variant=variant: attention_norm(trace, variant),
            5e-5,
            double,
            relative=True,
            why=why,
        )
        for quantity, variant in quantities.items()
    ]


def _ratios(file: str, names: tuple[str, ...]) -> list[Comparison]:
    return [
        Comparison(
            file,
            f"{name}_mixratio",
            f'mixing_ratio(trace, "{_RATIOS[name]}")',
            lambda trace, variant=_RATIOS[name]: mixing_ratio(trace, variant),
            5e-5,
            ROUNDED,
            relative=True,
            why=_IN_SINGLE,
        )
        for name in names
    ]


def _heads(file: str) -> Comparison:
    return Comparison(
        file,
        "head_attn_norm",
        "attention_norm(trace, per_head=True)",
        lambda trace: attention_norm(trace, per_head=True),
        5e-5,
        ROUNDED,
        relative=True,
        why=_IN_SINGLE,
    )


def _alti(quantity: str, single: float, **options: Any) -> list[Comparison]:
    said = "".join(f", {name}={value!r}" for name, value in options.items())
    return [
        Comparison(
            "alti",
            quantity,
            f"alti(trace{said})",
            lambda trace: alti(trace, **options),
            6e-4 if options.get("after") else 1e-4,
            6e-4 if options.get("after") else 1e-4,
            why="the authors' distance adds 1e-6 to every component, ours adds nothing",
        ),
        Comparison(
            "alti",
            quantity,
            f'alti(trace{said}, compat="authors")',
            lambda trace: alti(trace, **options, compat="authors"),
            single,
            EXACT,
        ),
    ]


def _rolled(quantity: str, how: str, options: dict[str, Any]) -> Comparison:
    said = "".join(f", {name}={value!r}" for name, value in {"head_reduce": how, **options}.items())
    return Comparison(
        "attention_raw_rollout",
        quantity,
        f"rollout(trace{said})",
        lambda trace: rollout(trace, head_reduce=how, **options),
        1e-6,
        ROUNDED,
        why=_IN_SINGLE,
    )


COMPARISONS: tuple[Comparison, ...] = (
    # Raw attention, rollout, flow
    *(
        Comparison(
            "attention_raw_rollout",
            f"raw_{how}",
            f'attention(trace).reduce("head", "{how}")',
            lambda trace, how=how: attention(trace).reduce("head", how),
            2e-5 if how == "sum" else 5e-6,  # twelve heads, each off by up to 1.5e-6
            6e-7 if how == "sum" else ROUNDED,
            why=f"{_IN_SINGLE}, sums of heads up to 12" if how == "sum" else _IN_SINGLE,
        )
        for how in ("mean", "max", "sum")
    ),
    *(_rolled(f"rollout_{how}_addres_norm", how, {}) for how in ("mean", "max", "sum")),
    _rolled("rollout_mean_nores", "mean", {"residual": None, "normalize": False}),
    *(
        Comparison(
            "attention_flow",
            quantity,
            "attention_flow(trace)",
            attention_flow,
            1e-6,
            1e-8,
            layer=layer,
            why="capacities are integers, 1e-9 apart",
        )
        for quantity, layer in (("flow_all_layers", None), ("flow_last", -1))
    ),
    Comparison("hidden_states", "attentions", "attention(trace)", attention, 5e-6, ROUNDED, why=_IN_SINGLE),
    Comparison("hidden_states", "hidden_states", "what the blocks read", _states, 2e-5, 5e-7, why=_IN_SINGLE),
    # Norms, GlobEnc
    *_norms("globenc_and_norms", _NORMS, ROUNDED, _IN_SINGLE),
    *_norms("kobayashi_emnlp2020", {"attn_norm": "attn"}, ROUNDED, _IN_SINGLE),
    *_norms("kobayashi_emnlp2021", dict(list(_NORMS.items())[:3]), ROUNDED, _IN_SINGLE),
    *_norms("alti", {"norm_res_ln1": "res_ln", "norm_res_ln1_ln2": "enc"}, EXACT, ""),
    *(_heads(f"{file}") for file in ("globenc_and_norms", "kobayashi_emnlp2020", "kobayashi_emnlp2021")),
    Comparison(
        "kobayashi_emnlp2020",
        "f_norm",
        "attention_norm(trace, per_head=True) / attention(trace)",
        _lengths,
        5e-5,
        ROUNDED,
        relative=True,
        why=_IN_SINGLE,
    ),
    *_ratios("globenc_and_norms", tuple(_RATIOS)),
    *_ratios("kobayashi_emnlp2021", tuple(_RATIOS)[:3]),
    *(
        Comparison(
            "globenc_and_norms",
            quantity,
            "globenc(trace)",
            globenc,
            5e-5,
            ROUNDED,
            relative=True,
            layer=layer,
            why=_IN_SINGLE,
        )
        for quantity, layer in (
            ("globenc_rollout_all_layers_unnormalized", None),
            ("globenc_unnormalized_rollout_last", -1),
        )
    ),
    # ALTI
    *_alti("alti_layer_contributions", 5e-6),
    *_alti("alti_rollout", 5e-6, rolled_out=True),
    *_alti("alti_l2_layer_contributions", 5e-6, distance="l2"),
    *_alti("alti_l2_rollout", 5e-6, distance="l2", rolled_out=True),
    *_alti("alti_ln2_layer_contributions", 1e-4, after="norm2"),
    Comparison(
        "alti",
        "resultant_l1_norm",
        "|y| of its parts",
        lambda trace: _parts(trace, lambda parts: parts.reference.abs().sum(-1)),
        5e-5,
        EXACT,
        relative=True,
    ),
    Comparison(
        "alti",
        "alti_neg_l1_distance",
        "-|t - y| of its parts",
        lambda trace: _parts(
            trace,
            lambda parts: (
                parts.nearness(parts.reference, 1, shift=_SHIFT) - parts.reference.abs().sum(-1, keepdim=True)
            ),
        ),
        5e-5,
        EXACT,
        relative=True,
    ),
    Comparison(
        "alti",
        "kobayashi_rollout_sum_one",
        'rollout(attention_norm(trace, "res_ln", normalize="row"), residual=None)',
        lambda trace: rollout(attention_norm(trace, "res_ln", normalize="row"), residual=None),
        5e-6,
        EXACT,
    ),
    Comparison(
        "alti",
        "attention_rollout",
        "rollout(trace)",
        rollout,
        1e-6,
        3e-7,
        why="the reference is computed in float32",
    ),
    # Value zeroing
    Comparison("value_zeroing__cosine", "normalized", "value_zeroing(trace)", value_zeroing, 1e-5, EXACT),
    Comparison(
        "value_zeroing__cosine",
        "raw",
        "value_zeroing(trace, normalize=False)",
        lambda trace: value_zeroing(trace, normalize=False),
        1e-6,
        EXACT,
    ),
    Comparison(
        "value_zeroing__cosine",
        "rollout",
        "rollout(value_zeroing(trace), residual=None)",
        lambda trace: rollout(value_zeroing(trace), residual=None),
        1e-5,
        EXACT,
    ),
    # The context-mixing toolkit
    Comparison("toolkit_bert", "value_zeroing", "value_zeroing(trace)", value_zeroing, 1e-5, EXACT),
    Comparison(
        "toolkit_bert",
        "attention_mean",
        'attention(trace).reduce("head", "mean")',
        lambda trace: attention(trace).reduce("head", "mean"),
        1e-6,
        EXACT,
    ),
    Comparison("toolkit_bert", "attention_rollout", "rollout(trace)", rollout, 1e-6, EXACT),
    *(
        Comparison(
            "toolkit_bert",
            f"attention_norm{suffix}_normalized",
            f'attention_norm(trace, "{variant}", normalize="row")',
            lambda trace, variant=variant: attention_norm(trace, variant, normalize="row"),
            5e-6,
            EXACT,
        )
        for suffix, variant in (("", "attn"), ("_res", "res"), ("_res_ln", "res_ln"))
    ),
    Comparison(
        "toolkit_bert",
        "globenc_normalized_rollout",
        'globenc(trace, "row")',
        lambda trace: globenc(trace, "row"),
        5e-6,
        EXACT,
    ),
    *(
        comparison
        for file in ("tiny_gemma_toolkit_vz", "tiny_gpt2_toolkit_vz")
        for comparison in (
            Comparison(
                file,
                "attention_mean",
                'attention(trace).reduce("head", "mean")',
                lambda trace: attention(trace).reduce("head", "mean"),
                1e-5,
                EXACT if "gpt2" in file else 1e-6,
                why="" if "gpt2" in file else _NORM_IN_SINGLE,
            ),
            Comparison(
                file,
                "hidden_states",
                "what the blocks read",
                _states,
                1e-4,
                EXACT if "gpt2" in file else 5e-5,
                why="" if "gpt2" in file else _NORM_IN_SINGLE,
            ),
        )
    ),
    Comparison(
        "tiny_gemma_toolkit_vz",
        "vz_normalized",
        "value_zeroing(trace)",
        value_zeroing,
        1e-5,
        5e-6,
        why=_NORM_IN_SINGLE,
    ),
    Comparison(
        "tiny_gpt2_toolkit_vz",
        "vz_normalized",
        "value_zeroing(trace)",
        value_zeroing,
        5e-4,
        5e-4,
        why="the authors round cosines to five decimals",
    ),
    Comparison(
        "tiny_gpt2_toolkit_vz",
        "vz_normalized",
        'value_zeroing(trace, distance="cosine_5_decimals")',
        lambda trace: value_zeroing(trace, distance="cosine_5_decimals"),
        5e-4,
        EXACT,
        why="a cosine next to a rounding step falls to its other side in float32",
    ),
    # Hidden token attribution: the first layer alone in the tests, all of them by the script
    *(
        Comparison(
            "hta_autograd_reference",
            f"global{suffix}_l{layer + 1}",
            f"hidden_token_attribution(trace, {said}normalize=False{first})",
            _jacobians(**options, layers=None if layer else 0),
            1e-5,
            EXACT,
            relative=True,
            layer=layer,
            slow=layer > 0 or not suffix,
        )
        for suffix, said, options in (("", "", {}), ("_x_input", "times_input=True, ", {"times_input": True}))
        for layer, first in enumerate((", layers=0", *5 * ("",)))
    ),
    *(
        Comparison(
            "hta_autograd_reference",
            f"local_jacobian{suffix}_fro",
            f'hidden_token_attribution(trace, scope="local", {said}normalize=False)',
            _jacobians(scope="local", **options),
            1e-5,
            EXACT,
            relative=True,
            slow=True,
        )
        for suffix, said, options in (("", "", {}), ("_x_input", "times_input=True, ", {"times_input": True}))
    ),
    *OF_LOGITS,
)
