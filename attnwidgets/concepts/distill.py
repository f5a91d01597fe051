"""aw.concepts.distill: a model on the texts of a template as a simpler, additive model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import suggests_keywords
from attnwidgets.concepts.additive import Additive
from attnwidgets.concepts.batches import Inputs
from attnwidgets.concepts.states import BATCH
from attnwidgets.concepts.states_result import TextTargets
from attnwidgets.concepts.template import MOST_TERMS, estimated, exact, predicted, template_of
from attnwidgets.explanations.targets.resolve import CLASSES
from attnwidgets.tracing.free_memory import forced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.concepts.template import Template

    Float = NDArray[np.float64]

PURPOSE = "concepts.distill"
MOST = 5000
"""Texts that are run by default; of a template with more, this number is drawn."""
_TWO = 2  # classes: the second is contrasted with the first
_HELD_OUT = 10  # the fidelity of an estimate is measured on a tenth of the texts
_NOTHING = 1e-20  # variance, relative to the mean square, that is rounding


@suggests_keywords
def distill(
    model: Any,
    tokenizer: Any,
    template: str,
    slots: Mapping[str, Sequence[Any]],
    *,
    target: Any = None,
    foil: Any = None,
    order: Literal[1, 2] = 2,
    most: int = MOST,
    seed: int = 0,
    batch_size: int = BATCH,
    force: bool = False,
) -> Additive:
    """Return a model on a template as a sum of effects of slots and of pairs of slots, and its fidelity.

    People can read a generalised additive model g = mean + sum of shapes + sum of pairs. Words have
    no shape function, but the slots of a template do: on all its texts the best such model follows exactly,
    by functional analysis of variance, and with it the share of the variance that it loses, the
    part that a simpler model cannot express.

    Args:
        model: As `aw.trace` takes it.
        tokenizer: Its tokenizer.
        template: A sentence with slots: "The {thing} was {how}{adj}". Formats are allowed: "{price:.2f}".
        slots: The levels of every slot: strings (also empty ones, with their spaces), or numbers.
        target: The number that is decomposed: a class by name or index, or any target. By default of two
            classes the logit of the second less that of the first; else the model's prediction for the first
            text.
        foil: Contrasting target.
        order: 1 for slots alone, 2 with pairs.
        most: Most texts that are run. A template with more is sampled, and all numbers are then estimates by
            least squares, marked as such, with the fidelity measured on texts left out of the fit.
        seed: Seed of the sampling.
        batch_size: Most texts of a batch.
        force: Run even if this needs more memory than is free.

    Returns:
        `Additive`: `.fidelity`, `.shares`, `.shapes`, `.pairs`, `.worst()`.

    Raises:
        ValueError: If slots and template do not fit, a slot has fewer than two levels, or `order` is unknown.
        TypeError: If `slots` is not a mapping.

    Source: functional analysis of variance (Hoeffding 1948); distillation into additive models: Tan et al.
    2018.

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> slots = {"how": ["", "not "], "adj": ["good", "awful"]}
        >>> student = aw.concepts.distill(model, tokenizer, "The soup was {how}{adj}.", slots)
        >>> sorted(student.shares), round(sum(student.shares.values()), 6)
        (['adj', 'how', 'how x adj'], 1.0)
    """
    if order not in (1, 2):
        raise ValueError(f"order must be 1 (slots alone) or 2 (with pairs), not {order!r}.")
    if not isinstance(most, (int, np.integer)) or most < _HELD_OUT:
        raise ValueError(f"most must be a whole number, {_HELD_OUT} or more, not {most!r}.")
    filled = template_of(template, slots, PURPOSE)
    cells = filled.cells(int(most), seed)
    with forced(force):
        inputs = Inputs(model, tokenizer, [filled.text(cell) for cell in cells], PURPOSE)
        values, label = _scores(inputs, target, foil, batch_size)
    return additive(filled, cells, values, order, label, inputs.first.model_id, seed)


def _scores(inputs: Inputs, target: Any, foil: Any, batch_size: int) -> tuple[Float, str]:
    """Return the target's value for every text [text], and its name."""
    logits = inputs.first.logits
    if (
        target is None
        and foil is None
        and logits is not None
        and logits.dim() == CLASSES
        and len(logits) == _TWO
    ):
        target, foil = 1, 0
    targets = TextTargets(inputs, _fixed(inputs, target), foil)
    if not targets.shared:
        inputs.run_alone()
    values = np.zeros(len(inputs.reads))
    options = dict.fromkeys(targets.reads, True)
    with inputs.running(back=False, batch_size=batch_size, desc="distilling") as (_, batches):
        for batch in batches:
            result = targets.scores(batch.call(**options), batch).double().cpu().numpy()
            values[[read.index for read in batch.reads]] = result
    return values, targets.label


def _fixed(inputs: Inputs, target: Any) -> Any:
    """Return the target, or the first text's prediction as a target that is the same for all texts."""
    if target is not None:
        return target
    from attnwidgets.explanations.targets.named import token

    best = inputs.first.predictions(1)
    logits = inputs.first.logits
    if not best or logits is None:
        return None
    return best[0].id if logits.dim() == CLASSES else token(best[0].id)


def additive(
    template: Template,
    cells: NDArray[np.int64],
    values: Float,
    order: int,
    target: str,
    model: str,
    seed: int,
) -> Additive:
    """Return the additive student of numbers on the cells of a template; see `distill`."""
    if not np.isfinite(values).all():
        raise ValueError(
            f"{PURPOSE}: the target is NaN or infinite for {int((~np.isfinite(values)).sum())} texts."
        )
    names = list(template.levels)
    variance = float(values.var())
    constant = variance <= _NOTHING * max(float(np.square(values).mean()), 1e-300)
    whole = len(cells) == int(np.prod([float(size) for size in template.shape]))
    notes = []
    if whole:
        deepest = len(names) if 2 ** len(names) <= MOST_TERMS else order
        effects = exact(values.reshape(template.shape), deepest)
        fidelities = {
            size: sum(
                float(np.square(effect).mean()) for axes, effect in effects.items() if 0 < len(axes) <= size
            )
            / variance
            for size in range(1, order + 1)
            if not constant
        }
    else:
        effects, fitted_order = estimated(values, cells, template.shape, order)
        if fitted_order < order:
            notes.append("pairs have too many levels to be estimated from these texts")
        order = fitted_order
        fidelities = (
            {}
            if constant
            else {size: _held_out(values, cells, template.shape, size, seed) for size in range(1, order + 1)}
        )
        total = np.prod([float(size) for size in template.shape])
        notes.append(
            f"estimated from {len(values):,} of {total:,.0f} texts, fidelity on texts that were held out"
        )
    shares = {
        " x ".join(names[axis] for axis in axes): float("nan")
        if constant
        else float(np.square(effect).mean()) / variance
        for axes, effect in effects.items()
        if axes
    }
    up_to_order = {axes: effect for axes, effect in effects.items() if len(axes) <= order}
    return Additive(
        slots=dict(template.levels),
        numeric=template.numeric,
        target=target,
        mean=float(effects[()]),
        shapes={names[axes[0]]: effect for axes, effect in up_to_order.items() if len(axes) == 1},
        pairs={
            (names[axes[0]], names[axes[1]]): effect
            for axes, effect in up_to_order.items()
            if len(axes) == _TWO
        },
        shares=shares,
        values=values,
        cells=cells,
        order=order,
        estimated=not whole,
        fidelities=fidelities or dict.fromkeys(range(1, order + 1), float("nan")),
        model=model,
        notes=tuple(notes),
        _template=template,
        _effects=up_to_order,
    )


def _held_out(values: Float, cells: NDArray[np.int64], shape: Sequence[int], order: int, seed: int) -> float:
    """Return the share of the variance of texts left out of the fit that the student explains."""
    is_test = np.random.default_rng([seed, 1]).permutation(len(values)) < len(values) // _HELD_OUT
    effects, fitted = estimated(values[~is_test], cells[~is_test], shape, order)
    errors = predicted(effects, cells[is_test], min(fitted, order)) - values[is_test]
    return float(1 - np.square(errors).mean() / max(float(values[is_test].var()), 1e-300))
