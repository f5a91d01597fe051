"""The comparison of a recorded pass with a plain one: recording must not change a model's output."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from attnwidgets._selecting import listed
from attnwidgets.tracing.causal_mask import supports_sdpa
from attnwidgets.tracing.free_memory import less_of, require_room
from attnwidgets.tracing.model_state import architecture, modules_of
from attnwidgets.tracing.recording.attention_function import LONG_BYTES, changer_of, changers
from attnwidgets.tracing.recording.borrow import implementation
from attnwidgets.tracing.recording.returned import (
    apart,
    attention_of,
    functions_of,
    is_half,
    is_transformers_own,
    kept_positions,
    main_output,
    require_repeatable,
    tolerance,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from torch import nn

    from attnwidgets.tracing.recording.recorder import Recording

_EAGER_MAPS = 4  # maps that eager attention holds of a layer: scores, with mask, in and after the softmax
_ROUNDING = 5e-2  # relative change of an output by half precision, summed in another order over many layers
_proved: set[tuple[object, ...]] = set()


def compared(
    model: nn.Module,
    modules: Collection[nn.Module],
    inputs: Mapping[str, Any],
    options: Mapping[str, Any],
    outputs: Any,
    session: Recording,
) -> tuple[str, str]:
    """Compare a recorded pass with a plain pass, unless a similar pass was compared before.

    Returns:
        Why the recorded pass is not the model's, and a note for readers if it is; "" for neither.
    """
    length = max(call.shape[-1] for call in session.calls)
    largest = max(math.prod(call.shape) * call.dtype.itemsize for call in session.calls)
    # A pass that leaves out its mask, or fuses attention, is a different computation.
    ways = (session.hides_later, largest > LONG_BYTES and session.fuses_weights(largest))
    parts = attention_of(modules)
    kind = None if parts is None else (*architecture(model, modules), parts, length.bit_length(), *ways)
    # With an intervention in force, the output of a plain pass differs on purpose.
    if (kind and kind in _proved) or is_changed(model):
        return "", ""
    difference, is_eager = _difference(model, inputs, options, outputs, largest)
    if difference and is_eager:
        return "", (
            f"recorded under eager attention, whose output differs by {difference:.2g} from that of "
            f"{type(model).__name__} as it is set ({listed(functions_of(modules))}); after "
            "model.set_attn_implementation('eager') they are the same"
        )
    if difference:
        require_repeatable(model, inputs, options)
        return f"recording would change its output by {difference:.2g}", ""
    # NaN on both sides proves nothing.
    recorded = main_output(outputs)
    if kind and recorded is not None and not bool(recorded.isnan().any()):
        _proved.add(kind)
    return "", ""


def is_changed(model: nn.Module) -> bool:
    """Return whether an intervention is in force on a model."""
    return bool(changers.get()) and any(changer_of(module) is not None for module in modules_of(model))


def _difference(
    model: nn.Module,
    inputs: Mapping[str, Any],
    options: Mapping[str, Any],
    outputs: Any,
    largest: int,
) -> tuple[float, bool]:
    """Return the relative difference of the recorded output from that of a plain pass, 0 if they agree.

    The implementation that the user chose is compared first. If it is part of transformers, and the recorded
    output is that of eager attention, rounding in half precision or on an accelerator explains a difference
    of as much as `_ROUNDING`; a larger difference is returned together with True. For a long text, whose
    weights eager attention computes at once (`largest` bytes per layer), sdpa comes first, and eager only if
    memory allows.
    """
    ours = main_output(outputs)
    if ours is None:
        return 0.0, False
    keep = kept_positions(inputs, ours)
    worst = unexplained = 0.0
    for name in _references(model, largest):
        if name is None:
            plain = main_output(model(**inputs, **options))
        else:
            if name == "eager":
                require_room(
                    f"eager attention, with which {type(model).__name__} must be compared,",
                    _EAGER_MAPS * largest,
                    ours.device,
                    f"Take {less_of(inputs)}",
                )
            with implementation(model, name):
                plain = main_output(model(**inputs, **options))
        if plain is None or plain.shape != ours.shape:
            return float("inf"), False
        worst = apart(ours[keep], plain[keep])
        if worst <= tolerance(ours):
            return unexplained, True
        if name is None and not is_transformers_own(model):
            break
        rounds = is_half(ours) or ours.device.type != "cpu"
        if name is None and not (rounds and worst <= _ROUNDING):
            unexplained = worst
    return worst, False


def _references(model: nn.Module, largest: int) -> tuple[str | None, ...]:
    """Return the implementations that a recorded pass is compared with, in order; None for the user's."""
    chosen = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if chosen == "eager" and largest > LONG_BYTES and supports_sdpa(model):
        return ("sdpa", "eager")
    return (None, "eager")
