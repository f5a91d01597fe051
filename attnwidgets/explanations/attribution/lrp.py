"""Layer-wise relevance propagation: how much every token, in every layer, speaks for a target.

Achtibat et al. 2024, AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers; Ali et al.
2022, XAI for Transformers: Better Explanations through Conservative Propagation (CP-LRP).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._selecting import listed, pick
from attnwidgets.explanations.attribution.embedding_gradients import embedding_stack, other_tokens
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import provenance_of
from attnwidgets.explanations.targets.target_set import TargetSet, asked
from attnwidgets.tracing.text.units import TokenAxis

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from attnwidgets.explanations.attribution.conservation import Conservation
    from attnwidgets.relevance.propagate import Relevances
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

PAPERS = {
    "attnlrp": "Achtibat et al. 2024, AttnLRP: Attention-Aware Layer-Wise Relevance Propagation",
    "cp_lrp": "Ali et al. 2022, XAI for Transformers: Better Explanations through Conservative Propagation",
}
TITLES = {"attnlrp": "AttnLRP", "cp_lrp": "CP-LRP"}

# Times the target that relevances may sum to before the result says so.
_EXPLODED = 10


@method(
    "lrp",
    paper=f"{PAPERS['attnlrp']}; {PAPERS['cp_lrp']}",
    needs=("target", "own tokens"),
    returns="Attributions [source], with every layer's as .map [layer, target, source]",
    cost="one pass forward, and one back for every target; once an architecture two short ones more",
)
def lrp(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    rule: Literal["attnlrp", "cp_lrp"] = "attnlrp",
    bias: Literal["absorb", "ignore"] = "absorb",
    at: Literal["embedding", "block", "input"] = "embedding",
    of: Literal["states", "heads"] = "states",
    unit: str | Unit | None = None,
    stack: str | None = None,
    layers: int | Iterable[int] | slice | None = None,
    precision: Literal["float32", "model"] = "float32",
    force: bool = False,
) -> Attributions:
    """How much every token speaks for a target: relevance, taken back from it through every operation.

    Relevance is handed back from the target operation by operation, each by its rule, and is, wherever one
    looks, a number times the gradient that the rules make of it. What is linear hands it on as it is; a
    product of two numbers that both depend on the input halves it; a norm's scale is a constant; an
    activation passes it on. AttnLRP takes the softmax as its first-order expansion; CP-LRP takes attention
    weights and gates as constants, and sums to the target exactly where a model has no biases. AttnLRP does
    not, since its softmax keeps relevance too: tokens' sum + `residual` = target, and `residual` is with no
    token. `provenance["conservation"]` holds target, sum and the verdict of the check below.

    Rules are given by operation while the model runs, so that no architecture's code is known or changed; an
    operation without one is refused by name. Before an architecture is believed, `aw.check_conservation`
    tries it (once; the verdict is kept), and what fails is refused.

    The target's own function of the outputs is differentiated as it is: a logit or a difference of logits
    starts with all its relevance, a probability with what its gradient says.

    Args:
        trace: What `aw.trace` returned, or `aw.trace_module` for any torch module.
        target: What is explained: a class or a token by name or number, anything of `aw.targets`, a function
            of the outputs; what the model predicts by default. A list of them gives [target, source], from
            one forward pass.
        foil: What the target is contrasted with: the relevance of target - foil.
        rule: "attnlrp" or "cp_lrp".
        bias: "absorb": a bias keeps its share, which is then in the `residual`. "ignore": denominators are
            without it, and the inputs take all (the form of lectures; unstable where inputs nearly cancel).
        at: Where tokens are read: at the word "embedding" (without positions, which keep their share; as the
            authors' code does), at what the first "block" is given, or at the "input" itself: pixels, summed
            over every patch. Pictures and sound have no word embedding: they are read at the first block.
        of: What `.map` shows of every layer: "states", the tokens' relevance there, or "heads", what every
            head writes at every token.
        unit: What the result is read in: "token" by default, "word", "patch" or a Unit; sums of tokens.
        stack: "encoder" or "decoder" of a model with both; its default otherwise. Relevance goes to both,
            and the `residual` counts both.
        layers: Some layers of `.map` by number. Number L, after the last layer of L, is what it returns.
        precision: A half-precision model is computed in "float32", on a copy of its weights, or as the
            "model" is.
        force: Whether to go on where relevance is not conserved in this architecture, or an operation has no
            rule, whose gradient then passes as it is.

    Returns:
        Attributions [source], or [target, source], signed, in units of the target (logits). `.map` is
        [layer, target, source]: the relevance of every token at the input of every layer and, last, at the
        last layer's output; with `of="heads"` [layer, head, target, source].

    Raises:
        UnsupportedModelError: Where the architecture does not conserve relevance, or an operation has no rule
            (a ValueError; the message names it).
        ValueError: For an unknown option, stack or unit; where a target must be named; where gradients are
            NaN or all zero (the message names the layer) or cannot be had (inference mode, quantised
            weights), or the text is too long for the memory there is.
        TypeError: Where `target` names nothing the model returns.
        IndexError: Where there is no such class, token or layer.

    Source: Achtibat et al. 2024, section 3; Ali et al. 2022, section 4. LRP is covered by patents in some
    countries: see docs/relevance.md.
    """
    require_choice("rule", rule, tuple(PAPERS))
    require_choice("bias", bias, ("absorb", "ignore"))
    require_choice("at", at, ("embedding", "block", "input"))
    require_choice("of", of, ("states", "heads"))
    require_choice("precision", precision, ("float32", "model"))
    question = asked(trace, target, foil, "lrp")
    stack = embedding_stack(trace, stack)
    verdict = trusted(trace, "lrp", force=force)

    from attnwidgets.relevance.propagate import propagate
    from attnwidgets.tracing.recording.attention_function import UnsupportedModelError

    found = propagate(
        trace,
        question.scores,
        "lrp",
        rule=rule,
        bias=bias,
        place=at,
        heads=of == "heads",
        hidden_states=question.hidden_states,
        precision=precision,
        insist=force,
    )
    options = {"rule": rule, "bias": bias, "at": at, "of": of, "precision": precision, "force": force}
    common = provenance_of(trace, stack, "lrp", paper=PAPERS[rule], options=options, notes=question.notes)
    scores = found.scores.double().numpy()
    values = _by_source(trace, found, stack)
    total = sum(each.double().flatten(1).sum(1).numpy() for each in found.inputs.values())
    common["provenance"] |= {
        "title": TITLES[rule],
        "conservation": {
            "target": scores.tolist(),
            "sum": np.asarray(total).tolist(),
            "verdict": "" if verdict is None else verdict.sentence,
            "conserved": verdict is None or bool(verdict),
        },
    }
    if verdict is not None and not verdict:
        common["warning"] = "; ".join(note for note in (common["warning"], verdict.sentence) if note)
    if bias == "ignore" and np.abs(total).max() > _EXPLODED * np.abs(scores).max():
        note = (
            f"the relevances sum to {np.abs(total).max():.2g}, of a target of {np.abs(scores).max():.2g}: "
            "without biases in the denominators, inputs that nearly cancel take far too much; take "
            'bias="absorb"'
        )
        common["warning"] = "; ".join(said for said in (common["warning"], note) if said)
    axis = trace.axes(stack)[0]
    if values.shape[-1] != len(axis):
        raise UnsupportedModelError(other_tokens("lrp", trace, values.shape[-1], len(axis)))
    result = Attributions(
        question.of(values),
        axis=axis,
        unit=next(iter(axis.units)),
        residual=question.of((scores - total).tolist()),
        reach=question.reach(trace, stack),
        map=_map(question, found, stack, axis, layers, common, heads=of == "heads"),
        **question.names(),
        **common,
    )
    return result if unit is None or unit == result.unit else result.to(unit)


def trusted(trace: Trace, method: str, *, force: bool) -> Conservation | None:
    """Return the verdict on a trace's architecture; None for a module, which is tried by its residual.

    Raises:
        UnsupportedModelError: Where relevance is not conserved, unless `force`.
    """
    from attnwidgets.explanations.attribution.conservation import verdict_on
    from attnwidgets.tracing.gradients.differentiability import differentiable_model
    from attnwidgets.tracing.module_trace import ModuleTrace
    from attnwidgets.tracing.recording.attention_function import UnsupportedModelError

    model = differentiable_model(trace, method)
    if isinstance(trace, ModuleTrace):
        return None
    verdict = verdict_on(model, trace, method)
    if not verdict and not force:
        raise UnsupportedModelError(
            f"{method}: {verdict.sentence} Its relevances would not mean what they should; force=True "
            "computes them all the same, and aw.integrated_gradients and aw.value_zeroing need no rules."
        )
    return verdict


def _by_source(trace: Trace, found: Relevances, stack: str) -> Float:
    """Return relevances [target, source] where tokens are read."""
    if stack in found.inputs:
        return found.inputs[stack].numpy()
    if set(found.inputs) <= set(trace.stacks):
        raise ValueError(
            f"lrp found no embeddings of stack {stack!r}; relevance reaches {listed(found.inputs)}."
        )
    pixels = found.inputs.get("pixel_values")
    unit = trace.axes(stack)[0].units.get("patch")
    if pixels is None or unit is None or unit.grid is None:
        raise ValueError(
            f'at="input" reads pictures, by patches, and this model reads {listed(found.inputs)}; take '
            'at="block", what the first block is given.'
        )
    rows, columns = unit.grid
    # [target, channel, height, width] -> [target, patch]: patches lie row by row, after the special tokens.
    flat = pixels.double().sum(1)
    flat = flat.unflatten(2, (columns, -1)).unflatten(1, (rows, -1)).sum((2, 4)).flatten(1)
    apart = np.zeros((len(flat), sum(unit.special)))
    return np.concatenate([apart, flat.numpy()], axis=1)


def _map(
    question: TargetSet,
    found: Relevances,
    stack: str,
    axis: TokenAxis,
    layers: int | Iterable[int] | slice | None,
    common: dict[str, Any],
    *,
    heads: bool,
) -> MixingMap | None:
    """Return the relevances of every layer, [layer, head?, target, source]; None where no layer is known."""
    by_layer: list[Float]
    if heads:
        by_layer = [each.transpose(0, 1).double().numpy() for each in found.heads.get(stack, ())]
    else:
        by_layer = list(found.states[stack].transpose(0, 1).double().numpy()) if stack in found.states else []
    if not by_layer:
        if heads:
            raise ValueError(
                'of="heads" needs recorded attention, and this model computes it in a way of its own.'
            )
        return None
    numbers = tuple(range(len(by_layer)))
    chosen = numbers if layers is None else pick(layers, numbers, "layer")
    against = "" if question.foils is None else f" rather than {question.foils[0].label}"
    unit = next(iter(axis.units))
    # The rows are targets, and stand beside any unit of the sources.
    query = TokenAxis.plain([f"{target.label}{against}" for target in question.targets], name=unit)
    return MixingMap.lazy(
        lambda number: by_layer[number],
        query=query,
        key=axis,
        layers=chosen,
        heads=range(len(by_layer[0])) if heads else None,
        unit=unit,
        causal=False,
        stochastic=False,
        signed=True,
        **common,
    )
