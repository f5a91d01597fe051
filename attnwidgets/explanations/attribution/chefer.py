"""Chefer's rules: attention weighted by a target's gradient, followed through the layers.

Chefer et al. 2021, Generic Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder
Transformers, equations 5 to 10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._former import former_keywords
from attnwidgets._selecting import position, with_options
from attnwidgets.explanations.attribution.embedding_gradients import embedding_stack
from attnwidgets.explanations.attribution.lrp import require_conservation
from attnwidgets.explanations.attribution.signed_attention import AttentionGradients, attention_gradients
from attnwidgets.explanations.mixing.discarding import Discard, discard_note, discard_positions, drop_columns
from attnwidgets.explanations.mixing.layer_product import shares
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import provenance_of
from attnwidgets.explanations.targets.target_set import TargetSet, resolve_target_set
from attnwidgets.tracing.text.units import surplus_keys
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

PAPER = "Chefer et al. 2021, Generic Attention-model Explainability"


@dataclass(frozen=True)
class _Rules:
    """How to reduce heads and multiply layers; see `chefer`."""

    clamp: bool
    head_reduce: str
    identity: bool
    order: str
    start_layer: int
    discarded: tuple[int, ...] = ()

    def reduce_heads(self, products: Float) -> Float:
        """Return a matrix [query, key] from gradient times attention [head, query, key] (equation 5)."""
        products = products.clip(min=0) if self.clamp else products
        matrix: Float = products.sum(0) if self.head_reduce == "sum" else products.mean(0)
        if not self.discarded:
            return matrix
        rest = drop_columns(matrix, self.discarded)
        # These rows are not shares: they keep their size instead of summing to 1.
        before, after = np.abs(matrix).sum(-1, keepdims=True), np.abs(rest).sum(-1, keepdims=True)
        return rest * np.divide(before, after, out=np.zeros_like(after), where=after > 0)

    def pass_layer(self, layer: Float, before: Float) -> Float:
        """Return relevance after a layer of self-attention (equation 6)."""
        step = layer + np.eye(len(layer)) if self.identity else layer
        return step @ before if self.order == "output_first" else before @ step


Rule = Literal["iccv2021", "cvpr2021"]
_OPTIONS = {"iccv2021": ("clamp", "identity"), "cvpr2021": ("relevance", "clamp", "identity")}


def _former_rule(rule: Rule = "iccv2021", **options: Any) -> tuple[Rule, dict[str, Any]]:
    """Return the rule from its former keywords, of which "iccv2021" ignored `relevance`."""
    return rule, {name: value for name, value in options.items() if name in _OPTIONS.get(rule, options)}


_WITHOUT_CLASS = "no class token is read, so this is the mean over the rows of patches"


@method(
    "chefer",
    question="For this prediction",
    gist="which words the attention that mattered leads to",
    paper=PAPER,
    needs=("recorded model", "every block", "target", "own tokens"),
    returns="Attributions [source], with the relevance of every pair up to every layer as .map",
    cost="one pass forward and one back",
    speed="seconds",
    former=former_keywords(
        ("relevance", "clamp", "identity"), "rule", '("iccv2021", {...: ...})', _former_rule, also=("rule",)
    ),
)
def chefer(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    rule: Rule | tuple[Rule, Mapping[str, Any]] = "iccv2021",
    row: int | None = None,
    head_reduce: Literal["mean", "sum"] = "mean",
    order: Literal["output_first", "input_first"] = "output_first",
    start_layer: int = 0,
    discard: Discard = None,
    unit: str | None = None,
    stack: str | None = None,
) -> Attributions:
    """Attention that matters for the target, followed from the output to the input.

    With A_l the attention of layer l and dA_l the target's gradient by it, from R = I:

        A'_l = mean over heads of (dA_l * A_l)+;    R <- R + A'_l R                    (equations 5 and 6)

    and the row of R from which the target is read. In an encoder-decoder R_e and R_d of the two stacks go
    that way; the decoder's relevance to the source, from 0, takes in every layer R_c <- R_c + A'_d R_c and
    then, with rows of R - I divided by their sum and I added (written N), R_c <- R_c + N(R_d)^T A'_c N(R_e)
    (equations 7 to 10).

    The earlier form (CVPR 2021, Transformer Interpretability Beyond Attention Visualization, equations 13 and
    14) weights the gradient with the attention's relevance R_l instead of attention, A'_l = mean of (dA_l *
    R_l)+, in the same product. Its authors take R_l from other propagation rules, "relevance"
    "alpha_beta"; by default it is AttnLRP's (`aw.lrp`), which conserve more, and the result says so.

    Args:
        trace: {trace}
        target: {target}
        foil: {foil}
        rule: "iccv2021" as above, or "cvpr2021"; or a pair (rule, options), as ("iccv2021", {"clamp":
            False}). Options of both: "clamp", whether to set negative products to zero (True; lectures also
            show them kept); "identity", whether to use R + A' R, with the residual connection (True), or
            A' R alone. Of "cvpr2021" also "relevance", whose R_l: "attnlrp" or, as published, "alpha_beta"
            (with alpha 1; norms and activations pass it on, each factor of a product gets half).
        row: The token from which the target is read. By default the position at which a token is predicted;
            for a class, the last token if attention is causal, else the first ([CLS]). Where a picture is
            read without a class token (SigLIP, I-JEPA), the mean over the rows of its patches.
        head_reduce: "mean" as published, or "sum".
        order: "output_first" as published: later layers on the left. "input_first" is the other order.
        start_layer: Number of the layer to start from; negatives count from the last (-1 is the default
            of the authors' notebook for CLIP).
        discard: Tokens from which nothing is drawn: "first", "special" or positions. In every layer their
            columns of A'_l are set to zero and the rest of each row is scaled to its former sum of absolute
            values; a row with nothing left stays zero. In an encoder-decoder these are tokens of the result:
            the source's (in the encoder's attention and in the decoder's attention to it), or the decoder's.
        unit: {unit}
        stack: In an encoder-decoder, "encoder" (the default) for the source's tokens, "decoder" for those
            that the decoder read.

    Returns:
        Attributions [source]: not negative if the rule clamps. With the identity, the token from which the
        target is read is among its sources, with 1 for the residual connection. `.map` [layer, query,
        key] is R up to every layer (for an encoder-decoder's source, R_c up to every layer of the decoder).

    Raises:
        ValueError: For an unknown option, stack or unit; for a `discard` that leaves nothing or names
            nothing; if the target must be named, or is a list; if gradients are NaN or all zero (the message
            names the layer) or unavailable; if attention is not recorded (`UnsupportedModelError`).
        TypeError, IndexError: {no_target} Also for a row, layer or position out of range.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> relevance = aw.chefer(trace)
        >>> relevance.map.axis_names
        ('layer', 'query', 'key')
    """
    name, chosen = with_options("rule", rule, _OPTIONS)
    relevance = chosen.get("relevance", "attnlrp")
    clamp, identity = bool(chosen.get("clamp", True)), bool(chosen.get("identity", True))
    require_choice("relevance", relevance, ("attnlrp", "alpha_beta"))
    require_choice("head_reduce", head_reduce, ("mean", "sum"))
    require_choice("order", order, ("output_first", "input_first"))
    from attnwidgets.tracing.algebra.block_runs import require_whole

    targets = resolve_target_set(trace, target, foil, "chefer").single("chefer")
    stack = embedding_stack(trace, stack)
    require_whole(trace, stack, "chefer")
    surplus = surplus_keys(*trace.axes(stack))
    if surplus:
        raise UnsupportedModelError(f"chefer follows a text's tokens, and {surplus}.")
    start_layer = position(start_layer, trace.layers(stack), "start_layer")
    source = "cross" if stack == "encoder" and "cross" in trace.stacks else stack
    key_unit = next(iter(trace.axes(source)[1].units.values()))
    rules = _Rules(
        clamp, head_reduce, identity, order, start_layer, discard_positions(discard, key_unit, "chefer")
    )
    plain = name == "iccv2021"
    gradients = _gradients(trace, targets) if plain else _relevance_gradients(trace, targets, relevance)
    by_layer = _across(gradients, rules) if source == "cross" else _within(gradients, stack, rules)
    row = _resolve_row(trace, targets, source, row)
    options: dict[str, Any] = {
        "rule": (name, chosen) if chosen else name,
        "head_reduce": head_reduce,
        "order": order,
        "start_layer": start_layer,
        "row": row,
        "discard": discard,
    }
    common = provenance_of(
        trace,
        stack,
        "chefer",
        title="Chefer's relevance",
        paper=PAPER,
        options=options,
        notes=(*targets.notes, "" if row is not None else _WITHOUT_CLASS),
        facts={"steps": _departures(options, name, relevance, rules, key_unit.name)},
    )
    query, key = trace.axes(source)
    unit_name = next(iter(key.units))
    of_target = common["provenance"] | {"target": targets.names()["target"]}
    layers = MixingMap(
        np.stack(by_layer),
        query=query,
        key=key,
        layers=trace.layers(source)[-len(by_layer) :],
        unit=unit_name,
        stochastic=False,
        **(common | {"stack": source, "provenance": of_target}),
    )
    last = by_layer[-1]
    attributions = Attributions(
        last.mean(axis=0) if row is None else last[row],
        axis=key,
        unit=unit_name,
        map=layers,
        **targets.names(),
        **common,
    )
    return attributions if unit is None else attributions.to(unit)


def _gradients(trace: Trace, targets: TargetSet, relevance: Any = None) -> AttentionGradients:
    return attention_gradients(
        trace,
        lambda outputs: targets.scores(outputs)[0],
        "chefer",
        reads=targets.reads,
        relevance=relevance,
    )


def _relevance_gradients(trace: Trace, targets: TargetSet, relevance: str) -> AttentionGradients:
    """Return gradients by attention, with the attention's relevance in place of its weights."""
    if relevance == "attnlrp":
        require_conservation(trace, "chefer", force=False)
    plain, ruled = _gradients(trace, targets), _gradients(trace, targets, relevance)
    if relevance == "alpha_beta":
        return AttentionGradients(ruled.gradients, plain.gradients, plain.score)
    weights = {
        stack: tuple(ruled.product(stack, layer) for layer in range(len(layers)))
        for stack, layers in ruled.weights.items()
    }
    return AttentionGradients(weights, plain.gradients, plain.score)


def _within(gradients: AttentionGradients, stack: str, rules: _Rules) -> list[Float]:
    """Return relevance [query, key] up to every layer of a stack that attends to itself."""
    n_layers, n_tokens = len(gradients.weights[stack]), gradients.weights[stack][0].shape[-1]
    relevance = [np.eye(n_tokens)]
    for layer in range(rules.start_layer, n_layers):
        step = rules.reduce_heads(gradients.product(stack, layer))
        relevance.append(rules.pass_layer(step, relevance[-1]))
    return relevance[1:]


def _across(gradients: AttentionGradients, rules: _Rules) -> list[Float]:
    """Return the decoder's relevance to the source [target, source] up to every layer of the decoder."""
    encoder = _normalized(_within(gradients, "encoder", rules)[-1])
    decoder = np.eye(gradients.weights["decoder"][0].shape[-1])
    relevance = np.zeros((len(decoder), len(encoder)))
    by_layer = []
    for layer in range(len(gradients.weights["cross"])):
        # Discarded tokens are the source's, and these are the decoder's.
        step = replace(rules, discarded=()).reduce_heads(gradients.product("decoder", layer))
        decoder = rules.pass_layer(step, decoder)
        relevance = relevance + step @ relevance
        cross = rules.reduce_heads(gradients.product("cross", layer))
        relevance = relevance + _normalized(decoder).T @ cross @ encoder
        by_layer.append(relevance)
    return by_layer


def _normalized(relevance: Float) -> Float:
    """Return relevance whose difference from the identity is divided by its row sums (equations 8 and 9)."""
    identity = np.eye(len(relevance))
    return shares(relevance - identity) + identity


def _resolve_row(trace: Trace, targets: TargetSet, source: str, row: int | None) -> int | None:
    """Return the number of the query from which the target is read; None for the mean over patches."""
    count = len(trace.axes(source)[0])
    if row is None:
        position = targets.targets[0].position
        if position is not None:
            return position
        patches = trace.axes(source)[0].units.get("patch")
        if patches is not None and patches.cells and None not in patches.cells:
            return None
        return count - 1 if source == "cross" or trace.is_causal(source) else 0
    if not -count <= row < count:
        raise IndexError(f"row {row} is out of range: the tokens are 0 to {count - 1}.")
    return row % count


def _departures(options: dict[str, Any], rule: str, relevance: str, rules: _Rules, unit: str) -> list[str]:
    """Return the options that depart from the published rules, in words."""
    ruled = {"attnlrp": "AttnLRP", "alpha_beta": "alpha-beta"}[relevance]
    departures = {
        f"attention's relevance ({ruled}) instead of attention": rule == "cvpr2021",
        "negative products kept": not rules.clamp,
        "sum over heads": options["head_reduce"] == "sum",
        "without identity": not rules.identity,
        "input first": options["order"] == "input_first",
        f"from layer {options['start_layer']}": options["start_layer"] > 0,
    }
    departures[discard_note(options["discard"], unit)] = options["discard"] is not None
    return [words for words, departs in departures.items() if words and departs]
