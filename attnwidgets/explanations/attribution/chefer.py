"""Chefer's rules: attention weighted by a target's gradient, followed through the layers.

Chefer et al. 2021, Generic Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder
Transformers, equations 5 to 10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.explanations.attribution.attention_gradients import AttentionGradients, attention_gradients
from attnwidgets.explanations.attribution.embedding_gradients import embedding_stack
from attnwidgets.explanations.attribution.lrp import trusted
from attnwidgets.explanations.mixing.discarding import Discard, discard_note, discard_positions, drop_columns
from attnwidgets.explanations.mixing.layer_product import shares
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import provenance_of
from attnwidgets.explanations.targets.target_set import TargetSet, asked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

PAPER = "Chefer et al. 2021, Generic Attention-model Explainability"


@dataclass(frozen=True)
class _Rules:
    """How heads are joined and layers multiplied; see `chefer`."""

    clamp: bool
    head_reduce: str
    identity: bool
    order: str
    start_layer: int
    places: tuple[int, ...] = ()

    def joined(self, products: Float) -> Float:
        """Return one matrix [query, key] of gradient times attention [head, query, key] (equation 5)."""
        kept = products.clip(min=0) if self.clamp else products
        found: Float = kept.sum(0) if self.head_reduce == "sum" else kept.mean(0)
        if not self.places:
            return found
        left = drop_columns(found, self.places)
        # Rows are no shares here: they keep their size instead of summing to one.
        before, after = np.abs(found).sum(-1, keepdims=True), np.abs(left).sum(-1, keepdims=True)
        return left * np.divide(before, after, out=np.zeros_like(after), where=after > 0)

    def passed(self, layer: Float, before: Float) -> Float:
        """Return relevance after a layer of self-attention (equation 6)."""
        step = layer + np.eye(len(layer)) if self.identity else layer
        return step @ before if self.order == "output_first" else before @ step


@method(
    "chefer",
    paper=PAPER,
    needs=("recorded model", "target", "own tokens"),
    returns="Attributions [source], with the relevance of every pair up to every layer as .map",
    cost="one pass forward and one back",
)
def chefer(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    rule: Literal["iccv2021", "cvpr2021"] = "iccv2021",
    row: int | None = None,
    clamp: bool = True,
    head_reduce: Literal["mean", "sum"] = "mean",
    identity: bool = True,
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
    R_l)+, in the same product. Its authors take R_l from propagation rules of their own (alpha-beta); here it
    is AttnLRP's (`aw.lrp`), and the result says so.

    Args:
        trace: What `aw.trace` returned.
        target: A class or a token by name or number, anything of `aw.targets`, a function of the outputs;
            what the model predicts by default.
        foil: What the target is contrasted with: gradients of target - foil.
        rule: "iccv2021" as above, or "cvpr2021".
        row: The token from which the target is read. By default where a token is predicted; of a class the
            last token where attention is causal, else the first ([CLS]).
        clamp: Whether negative products are set to zero; lectures also show them kept.
        head_reduce: "mean" as published, or "sum".
        identity: Whether R + A' R is taken (the residual connection), or A' R alone.
        order: "output_first" as published: later layers on the left. "input_first" is the other order.
        start_layer: Number of the layer to start from.
        discard: Tokens that nothing is drawn from: "first", "special" or positions. In every layer their
            columns of A'_l are set to zero, and what is left of a row is scaled until its absolute values sum
            to what they did; a row with nothing left stays zero. Of an encoder-decoder these are tokens of
            the result: the source's, in the encoder's attention and in the decoder's to it, or the decoder's.
        unit: What the result is read in: "token" by default; coarser units are sums of tokens.
        stack: Of an encoder-decoder, "encoder" (the default) for the source's tokens, "decoder" for those
            that the decoder read.

    Returns:
        Attributions [source]: not negative where `clamp` is on. With `identity` the token that is read is
        among its own sources with 1 for the residual connection. `.map` [layer, query, key] is R up to
        every layer (of an encoder-decoder's source, R_c up to every layer of the decoder).

    Raises:
        ValueError: For an unknown option, stack or unit; a `discard` that leaves nothing or names nothing;
            where the target must be named, or is a list; where gradients are NaN or all zero (the message
            names the layer) or cannot be had; where attention is not recorded (`UnsupportedModelError`).
        TypeError, IndexError: Where `target` names nothing the model returns, or there is no such row, layer
            or position.
    """
    require_choice("rule", rule, ("iccv2021", "cvpr2021"))
    require_choice("head_reduce", head_reduce, ("mean", "sum"))
    require_choice("order", order, ("output_first", "input_first"))
    question = asked(trace, target, foil, "chefer").single("chefer")
    stack = embedding_stack(trace, stack)
    count = trace.n_layers(stack)
    if not 0 <= start_layer < count:
        raise IndexError(f"start_layer {start_layer} is out of range: the layers are 0 to {count - 1}.")
    source = "cross" if stack == "encoder" and "cross" in trace.stacks else stack
    key_unit = next(iter(trace.axes(source)[1].units.values()))
    places = discard_positions(discard, key_unit, "chefer")
    found = _weighted(trace, question) if rule == "cvpr2021" else _gradients(trace, question)
    rules = _Rules(clamp, head_reduce, identity, order, start_layer, places)
    relevance = _across(found, rules) if source == "cross" else _within(found, stack, rules)
    place = _row(trace, question, source, row)
    options: dict[str, Any] = {
        "rule": rule,
        "clamp": clamp,
        "head_reduce": head_reduce,
        "identity": identity,
        "order": order,
        "start_layer": start_layer,
        "row": place,
        "discard": discard,
    }
    common = provenance_of(trace, stack, "chefer", paper=PAPER, options=options, notes=question.notes)
    common["provenance"] |= {"title": "Chefer's relevance", "steps": _departures(options, key_unit.name)}
    query, key = trace.axes(source)
    own = next(iter(key.units))
    layers = MixingMap(
        np.stack(relevance),
        query=query,
        key=key,
        layers=range(trace.n_layers(source))[-len(relevance) :],
        unit=own,
        stochastic=False,
        **(common | {"stack": source}),
    )
    attributions = Attributions(
        relevance[-1][place], axis=key, unit=own, map=layers, **question.names(), **common
    )
    return attributions if unit is None or unit == own else attributions.to(unit)


def _gradients(trace: Trace, question: TargetSet, *, relevance: bool = False) -> AttentionGradients:
    return attention_gradients(
        trace,
        lambda outputs: question.scores(outputs)[0],
        "chefer",
        hidden_states=question.hidden_states,
        relevance=relevance,
    )


def _weighted(trace: Trace, question: TargetSet) -> AttentionGradients:
    """Return gradients by attention with, in place of attention, its relevance."""
    trusted(trace, "chefer", force=False)
    plain, ruled = _gradients(trace, question), _gradients(trace, question, relevance=True)
    relevance = {
        stack: tuple(ruled.product(stack, layer) for layer in range(len(layers)))
        for stack, layers in ruled.weights.items()
    }
    return AttentionGradients(relevance, plain.gradients, plain.score)


def _within(found: AttentionGradients, stack: str, rules: _Rules) -> list[Float]:
    """Return relevance up to every layer of a stack that attends to itself."""
    count = len(found.weights[stack])
    state = np.eye(found.weights[stack][0].shape[-1])
    states = []
    for layer in range(rules.start_layer, count):
        state = rules.passed(rules.joined(found.product(stack, layer)), state)
        states.append(state)
    return states


def _across(found: AttentionGradients, rules: _Rules) -> list[Float]:
    """Return the decoder's relevance to the source [target, source] up to every layer of the decoder."""
    encoder = _normalized(_within(found, "encoder", rules)[-1])
    own = np.eye(found.weights["decoder"][0].shape[-1])
    state = np.zeros((len(own), len(encoder)))
    states = []
    for layer in range(len(found.weights["cross"])):
        # Tokens of the source are left out, and the decoder reads its own here.
        inside = replace(rules, places=()).joined(found.product("decoder", layer))
        own = rules.passed(inside, own)
        state = state + inside @ state
        state = state + _normalized(own).T @ rules.joined(found.product("cross", layer)) @ encoder
        states.append(state)
    return states


def _normalized(relevance: Float) -> Float:
    """Return relevance with what was added to the identity divided by its rows' sums (equations 8 and 9)."""
    same = np.eye(len(relevance))
    return shares(relevance - same) + same


def _row(trace: Trace, question: TargetSet, source: str, row: int | None) -> int:
    """Return the query that the target is read from."""
    count = len(trace.axes(source)[0])
    if row is None:
        position = question.targets[0].position
        if position is not None:
            return position
        last = source == "cross" or trace.is_causal(source)
        return count - 1 if last else 0
    if not -count <= row < count:
        raise IndexError(f"row {row} is out of range: the tokens are 0 to {count - 1}.")
    return row % count


def _departures(options: dict[str, Any], unit: str) -> list[str]:
    """Return in words where options depart from the published rules."""
    departs = {
        "attention's relevance (AttnLRP) instead of attention": options["rule"] == "cvpr2021",
        "negative products kept": not options["clamp"],
        "sum over heads": options["head_reduce"] == "sum",
        "without identity": not options["identity"],
        "input first": options["order"] == "input_first",
        f"from layer {options['start_layer']}": options["start_layer"] > 0,
    }
    left_out = discard_note(options["discard"], unit)
    return [*(words for words, true in departs.items() if true), *([left_out] if left_out else [])]
