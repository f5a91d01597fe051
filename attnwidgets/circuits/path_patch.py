"""aw.circuits.path_patch: the direct effect of a component on another component."""

from __future__ import annotations

from contextlib import ExitStack
from math import isfinite
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import require_choice
from attnwidgets.circuits.components import Component, component_of
from attnwidgets.circuits.pair import pair_of, require_full_precision, scored
from attnwidgets.circuits.patch import PatchedCells
from attnwidgets.circuits.patching import DIRECTIONS, Direction, share_unit
from attnwidgets.circuits.set_activations import activations_of, set_activations
from attnwidgets.explanations.targets.target_set import resolve_target_set
from attnwidgets.tracing.algebra.block_runs import require_whole
from attnwidgets.tracing.block_replay import captured

if TYPE_CHECKING:
    from attnwidgets.intervene.activation_sites import Site
    from attnwidgets.tracing.interventions import Intervention
    from attnwidgets.tracing.trace import Trace

_OUTPUT = "output"


def path_patch(
    clean: Any,
    corrupt: Any,
    sender: tuple[Any, ...],
    receiver: tuple[Any, ...] | str,
    target: Any = None,
    *,
    foil: Any = None,
    how: Direction = "denoise",
    model: Any = None,
    tokenizer: Any = None,
    stack: str | None = None,
) -> PatchedCells:
    """Return the effect of a component on the answer through another component alone.

    The sender takes its activations from the other run, and every head and MLP between it and the receiver
    stays as it was: the receiver alone sees the difference, through the residual stream. Its new output
    is then put into the run. All inputs of a head (query, key, value) see the difference.

    Args:
        clean: A trace, or a text (then `model` and `tokenizer`).
        corrupt: The same, with the same number of tokens.
        sender: ("head", layer, head) or ("mlp", layer).
        receiver: The same, later in the model: a head of a later layer, an MLP of the head's layer or of a
            later layer; or "output", the last residual stream.
        target: A target as for every method; by default the model's prediction for the clean text.
        foil: Contrasting target.
        how: "denoise" takes the sender from the clean run into the corrupt run, "noise" the reverse.
        model: The model of texts.
        tokenizer: Its tokenizer.
        stack: Which blocks, in models with several stacks ("encoder", "decoder").

    Returns:
        PatchedCells: `.share` of the difference of the two runs, `.before`, `.after`, `.source`.

    Raises:
        ValueError: If the receiver is not after the sender, a component has another form, or the model
            computes in half precision; see `patch`.
        IndexError: If the layer or head is out of range.

    Source: Wang et al. 2023, Interpretability in the Wild, section 3.1; Goldowsky-Dill et al. 2023.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> texts = [aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadegcfadeb")]
        >>> path = aw.circuits.path_patch(*texts, ("head", 0, 0), ("head", 1, 0), "c", foil="a")
        >>> round(path.share, 3)
        1.0
    """
    require_choice("how", how, DIRECTIONS)
    pair = pair_of(clean, corrupt, stack, "path_patch", model, tokenizer)
    require_full_precision(pair, "path_patch")
    require_whole(pair.clean, pair.stack, "path_patch")
    targets = resolve_target_set(pair.clean, target, foil, "path_patch").single("path_patch")
    first = component_of(sender, pair.clean, pair.stack)
    last = _receiver(receiver, pair.clean, pair.stack)
    if (last.layer, last.kind == "mlp") <= (first.layer, first.kind == "mlp"):
        raise ValueError(f"receiver {last} does not read what sender {first} writes: it is not after it.")
    base, source = (pair.corrupt, pair.clean) if how == "denoise" else (pair.clean, pair.corrupt)
    before, other = (scored(trace, targets, ()) for trace in (base, source))
    for trace, score in ((base, before), (source, other)):
        if not isfinite(score):
            captured(trace, pair.stack, "path_patch")  # names the layer where numbers break
            raise ValueError(f"the target is {score} in one of the runs, so that nothing can be patched.")
    told = [*_frozen(base, first, last, pair.stack), _set(base, first, source, pair.stack)]
    if last.kind == _OUTPUT:
        after = scored(base, targets, told)
    else:
        with ExitStack() as exits:
            for intervention in told:
                exits.enter_context(intervention)
            heard = activations_of(base, _site(last), [last.layer], pair.stack)[last.layer]
        heard = heard if last.head is None else heard[last.head][None].expand_as(heard)
        after = scored(base, targets, [_set(base, last, heard, pair.stack)])
    return PatchedCells((after - before) / share_unit(before, other), before, after, other)


def _receiver(given: Any, trace: Trace, stack: str) -> Component:
    if given == _OUTPUT:
        return Component(_OUTPUT, trace.layers(stack)[-1] + 1)
    return component_of(given, trace, stack)


def _set(base: Trace, part: Component, to: Any, stack: str) -> Intervention:
    heads = None if part.head is None else [part.head]
    return set_activations(base, _site(part), part.layer, to, heads=heads, stack=stack)


def _site(part: Component) -> Site:
    return "mlp" if part.kind == "mlp" else "head"


def _frozen(base: Trace, first: Component, last: Component, stack: str) -> list[Intervention]:
    """Return interventions that keep all heads and MLPs between two components as they were."""
    layers = range(first.layer, last.layer)
    mlps = [layer for layer in layers if (layer, 1) > (first.layer, int(first.kind == "mlp"))]
    attentions = [layer for layer in layers if layer > first.layer]
    if last.kind == "mlp" and last.layer > first.layer:
        attentions.append(last.layer)
    result = []
    if mlps:
        result.append(set_activations(base, "mlp", mlps, base, stack=stack))
    if attentions:
        result.append(set_activations(base, "attention", attentions, base, stack=stack))
    return result
