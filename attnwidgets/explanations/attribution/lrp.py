"""Layer-wise relevance propagation (LRP): how much every token, in every layer, speaks for a target.

Achtibat et al. 2024, AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers; Ali et al.
2022, XAI for Transformers: Better Explanations through Conservative Propagation (CP-LRP).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import deprecated, require_choice
from attnwidgets._selecting import listed
from attnwidgets.explanations.attribution.embedding_gradients import (
    embedding_stack,
    require_tokens,
    target_attributions,
)
from attnwidgets.explanations.attribution.input_planes import (
    plane_attributions,
    plane_values,
    reads_only_input,
    require_plane,
)
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.description import TARGETS
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import provenance_of
from attnwidgets.explanations.targets.target_set import TargetSet, resolve_target_set
from attnwidgets.tracing.text.units import TokenAxis, surplus_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from attnwidgets.explanations.attribution.conservation import Conservation
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.relevance.rules import Relevances
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

PAPERS = {
    "attnlrp": "Achtibat et al. 2024, AttnLRP: Attention-Aware Layer-Wise Relevance Propagation",
    "cp_lrp": "Ali et al. 2022, XAI for Transformers: Better Explanations through Conservative Propagation",
}
TITLES = {"attnlrp": "AttnLRP", "cp_lrp": "CP-LRP"}


# The result warns if relevances sum to more than this many times the target.
_EXPLODED = 10


def _former_layers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let `lrp` take its former keyword `layers`, which warns."""

    @functools.wraps(function)
    def with_former(*args: Any, layers: Any = None, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if layers is None:
            return result
        deprecated("lrp: layers=... is .map.select(layer=...) of the result now")
        results = result if isinstance(result, list) else [result]
        some = [part._derive(part.values, "", map=part.map and part.map.select(layers)) for part in results]  # noqa: SLF001
        return some if isinstance(result, list) else some[0]

    return with_former


@method(
    "lrp",
    question="For this prediction",
    gist="which words raise or lower it, shared out layer by layer",
    paper=f"{PAPERS['attnlrp']}; {PAPERS['cp_lrp']}",
    needs=("target", "own tokens"),
    returns="Attributions [source], with every layer's as .map [layer, target, source]",
    cost="one pass forward, and one back for every target; two more short ones once per architecture",
    speed="seconds",
    former=_former_layers,
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
    precision: Literal["float32", "model"] = "float32",
    force: bool = False,
) -> Attributions:
    """How much every token speaks for a target: relevance, propagated back from it through every operation.

    Relevance goes back from the target operation by operation, each with a rule; everywhere it is a
    number times the gradient under these rules. A linear operation passes it on unchanged; a product of two
    numbers that both depend on the input halves it; a norm's scale counts as a constant; an activation passes
    it on. AttnLRP uses the first-order expansion of the softmax. CP-LRP treats attention weights and gates as
    constants, and sums to the target exactly if a model has no biases. AttnLRP does not, since its softmax
    keeps relevance too: the sum over tokens + `residual` = target, and no token has the `residual`.
    `provenance["conservation"]` holds target, sum and the verdict of the check below.

    A kernel that mixes tokens without a softmax (Mamba, delta rules, recurrences) counts as a whole, linear
    in its values, with its other inputs as constants. Prefer CP-LRP for models with such layers: AttnLRP
    gives half of their relevance to the output gates, which belong to the reading tokens.

    Rules apply by operation while the model runs, so that no architecture's code needs to be known or
    changed; an operation without a rule is refused by name. The first time an architecture is explained,
    `aw.check_conservation` tests it (the verdict is cached), and an architecture that fails is refused.

    The target's function of the outputs is differentiated as it is: a logit or a difference of logits
    starts with all its relevance, a probability with its gradient.

    Args:
        trace: Trace returned by `aw.trace`, or `aw.trace_module` for any torch module.
        target: {target} A list of targets gives [target, source], from one forward pass.
        foil: {foil}
        rule: "attnlrp" or "cp_lrp".
        bias: "absorb": a bias keeps its share, which is then part of the `residual`. "ignore": denominators
            leave it out, and the inputs receive everything (the form of lectures; unstable if inputs nearly
            cancel).
        at: Where tokens are read: at the word "embedding" (without positions, which keep their share; as in
            the authors' code), at the input of the first "block", or at the "input" itself: pixels or a
            spectrogram, summed over every patch or frame (unit="pixel" or "bin" keeps single numbers).
            Pictures and sound have no word embedding: they are read at the first block; models without
            attention over patches, at the input.
        of: Content of `.map`: "states", the tokens' relevance in every layer, or "heads", that of every
            head's output at every token.
        unit: Unit of the result: "token" by default, "word", "patch" or a Unit; sums over tokens.
        stack: {stack} Relevance goes to both stacks, and the `residual` counts both.
        precision: Whether a half-precision model is computed in "float32", on a copy of its weights, or in
            the model's precision ("model").
        force: Whether to go on if this architecture does not conserve relevance or an operation has no rule;
            its plain gradient is used then.

    Returns:
        Attributions [source], or [target, source], signed, in units of the target (logits). `.map` is
        [layer, target, source]: the relevance of every token at the input of every layer and, last, at the
        last layer's output, whose number is that of the blocks; with `of="heads"` [layer, head, target,
        source], over the layers that attend.

    Raises:
        UnsupportedModelError: If the architecture does not conserve relevance, or an operation has no rule
            (a ValueError; the message names it).
        ValueError: For an unknown option, stack or unit; if a target must be named; if gradients are NaN or
            all zero (the message names the layer) or unavailable (inference mode, quantised weights); if the
            text is too long for the available memory.
        TypeError: {no_target}
        IndexError: If the class or token does not exist.

    Source: Achtibat et al. 2024, section 3; Ali et al. 2022, section 4. LRP is covered by patents in some
    countries: see docs/relevance.md.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> relevance = aw.lrp(trace)
        >>> sorted(relevance.provenance["conservation"])
        ['conserved', 'sum', 'target', 'verdict']
    """
    require_choice("rule", rule, tuple(PAPERS))
    require_choice("bias", bias, ("absorb", "ignore"))
    require_choice("at", at, ("embedding", "block", "input"))
    require_choice("of", of, ("states", "heads"))
    require_choice("precision", precision, ("float32", "model"))
    targets = resolve_target_set(trace, target, foil, "lrp")
    stack = embedding_stack(trace, stack)
    at = "input" if reads_only_input(trace) else at
    plane = require_plane(trace, "lrp") if at == "input" and "values" not in trace.inputs else None
    verdict = require_conservation(trace, "lrp", force=force)

    from attnwidgets.relevance.rules import propagate

    relevances = propagate(
        trace,
        targets.scores,
        "lrp",
        rule=rule,
        bias=bias,
        place=at,
        entry=stack,
        plane=plane.name if plane else "",
        heads=of == "heads",
        reads=targets.reads,
        precision=precision,
        insist=force,
    )
    scores = relevances.scores.double().numpy()
    if plane is None:
        values = _by_source(relevances, stack)
        require_tokens("lrp", trace, values.shape[-1], stack)
    else:
        values = plane_values(trace, plane, relevances.inputs[plane.name], "sum")
    totals = np.asarray(sum(part.double().flatten(1).sum(1).numpy() for part in relevances.inputs.values()))
    notes = [*targets.notes, "" if verdict is None or verdict else verdict.sentence]
    if bias == "ignore" and np.abs(totals).max() > _EXPLODED * np.abs(scores).max():
        notes.append(
            f"the relevances sum to {np.abs(totals).max():.2g}, for a target of {np.abs(scores).max():.2g}: "
            "without biases in the denominators, inputs that nearly cancel receive far too much; use "
            'bias="absorb"'
        )
    conservation = {
        "target": scores.tolist(),
        "sum": totals.tolist(),
        "verdict": "" if verdict is None else verdict.sentence,
        "conserved": verdict is None or bool(verdict),
    }
    common = provenance_of(
        trace,
        stack,
        "lrp",
        title=TITLES[rule],
        paper=PAPERS[rule],
        options={"rule": rule, "bias": bias, "at": at, "of": of, "precision": precision, "force": force},
        notes=notes,
        facts={"conservation": conservation, "axes": TARGETS},
    )
    heads = trace.layers(stack) if of == "heads" else None
    by_layer = _map(targets, relevances, trace.axes(stack)[0], common, heads)
    residual = targets.of((scores - totals).tolist())
    if plane is not None:
        return plane_attributions(
            trace, plane, values, targets, common, unit, residual=residual, map=by_layer
        )
    return target_attributions(
        trace, stack, values, targets, common, unit=unit, residual=residual, map=by_layer
    )


def require_conservation(trace: Trace, method: str, *, force: bool) -> Conservation | None:
    """Return the verdict on a trace's architecture; None without blocks, where the residual is the test.

    Raises:
        UnsupportedModelError: If relevance is not conserved, unless `force`.
    """
    from attnwidgets.explanations.attribution.conservation import verdict_on
    from attnwidgets.tracing.gradients.gradient_hooks import differentiable_model
    from attnwidgets.tracing.module_trace import ModuleTrace
    from attnwidgets.tracing.unsupported import UnsupportedModelError

    model = differentiable_model(trace, method)
    if isinstance(trace, ModuleTrace) or reads_only_input(trace):
        return None
    verdict = verdict_on(model, trace, method)
    if not verdict and not force:
        surplus = next(filter(None, (surplus_keys(*trace.axes(stack)) for stack in trace.stacks)), "")
        leak = f" A share goes to other keys: {surplus}." if surplus else ""
        raise UnsupportedModelError(
            f"{method}: {verdict.sentence}{leak} Its relevances would not mean what they should; force=True "
            "computes them all the same, and aw.integrated_gradients and aw.value_zeroing need no rules."
        )
    return verdict


def _by_source(relevances: Relevances, stack: str) -> Float:
    """Return relevances [target, source] where tokens are read."""
    if stack in relevances.inputs:
        return relevances.inputs[stack].numpy()
    raise ValueError(
        f"lrp found no embeddings of stack {stack!r}; relevance reaches {listed(relevances.inputs)}."
    )


def _map(
    targets: TargetSet,
    relevances: Relevances,
    axis: TokenAxis,
    common: dict[str, Any],
    heads: tuple[int, ...] | None,
) -> MixingMap | None:
    """Return the relevances of every layer [layer, target, source], None if there are none.

    Of heads, of the layers given as `heads`: [layer, head, target, source].
    """
    stack, by_layer = common["stack"], []
    if heads is not None:
        by_layer = [layer.transpose(0, 1).double().numpy() for layer in relevances.heads.get(stack, ())]
    elif stack in relevances.states:
        by_layer = list(relevances.states[stack].transpose(0, 1).double().numpy())
    if heads is not None and not by_layer:
        raise ValueError(
            'of="heads" needs recorded attention, and this model computes attention in a way of its own.'
        )
    if not by_layer:
        return None
    numbers = heads or tuple(range(len(by_layer)))
    contrast = "" if targets.foils is None else f" rather than {targets.foils[0].label}"
    unit = next(iter(axis.units))
    if heads is None:
        at = common["provenance"]["options"]["at"]
        states = {"input": "" if at == "block" else at, "output": len(by_layer) - 1}
        common = common | {"provenance": common["provenance"] | {"states": states}}
    # The rows are targets, whatever the unit of the sources.
    query = TokenAxis.plain([f"{target.label}{contrast}" for target in targets.targets], name=unit)
    return MixingMap.lazy(
        lambda number: by_layer[numbers.index(number)],
        query=query,
        key=axis,
        layers=numbers,
        heads=None if heads is None else range(len(by_layer[0])),
        unit=unit,
        causal=False,
        stochastic=False,
        signed=True,
        **common,
    )
