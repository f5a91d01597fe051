"""The strip beneath a text that shows what the block on screen forgets at each token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.base.needs import Panel
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source

    Float = NDArray[np.float64]


LEAST_FORGOTTEN = 0.01
"""The least end of the strip's scale: smaller differences between tokens do not look like much."""

_ALIKE = 0.005  # a difference that two decimals do not show


def forgetting_panel(view: View) -> Panel:
    """Return the panel of a view of a text: its option "forgetting" names the layers that forget, by stack.

    The browser asks for the values of a layer in a unit. Views that were given an explanation in place of a
    trace do not have them.
    """

    def options() -> dict[str, Any]:
        layers = _layers(view)
        known = {
            stack: {str(number): list(names) for number, names in of.items()} for stack, of in layers.items()
        }
        return {"forgetting": known} if known else {}

    def answer(stack: str, unit: str, layer: int) -> Answer:
        source = next((s for s in view.sources() if (s.stack, s.unit) == (stack, unit)), None)
        if source is None or layer not in _layers(view).get(stack, {}):
            raise ValueError(f"nothing is known of what layer {layer} of {stack!r} forgets by {unit}.")
        values = forgotten_by_head(view, source, layer)
        data = np.stack(list(values.values())).astype("<f4")
        return {"names": list(values), "heads": data.shape[1]}, [data.tobytes()]

    def arguments() -> Iterator[Mapping[str, Any]]:
        layers = _layers(view)
        if not layers:
            return
        state = view.presentation
        pairs = dict.fromkeys((source.stack, source.unit) for source in (state.source, *state.sources))
        for stack, unit in pairs:
            for layer in sorted(layers.get(stack, ()), key=lambda number: abs(number - state.layer)):
                yield {"stack": stack, "unit": unit, "layer": layer}

    return Panel(lambda: {"forgetting": Handler(answer, for_page=arguments)}, options=options)


def _layers(view: View) -> dict[str, dict[int, tuple[str, ...]]]:
    """Return the layers that forget, by stack, with what is known of each."""
    trace = view.content.trace
    if trace is None:
        return {}
    from attnwidgets.tracing.mixers.forgetting import forgetting_layers

    layers = {stack: forgetting_layers(trace, stack) for stack in trace.stacks}
    return {stack: of for stack, of in layers.items() if of}


def forgotten_by_head(view: View, source: Source, layer: int) -> dict[str, Float]:
    """Return what a layer forgets at each element of a source, by name [head, element].

    Over the tokens of an element, decays multiply, and betas are averaged.
    """
    from attnwidgets.tracing.mixers.forgetting import forgetting

    values = forgetting(view.content.trace, layer, source.stack)
    spans = source.axes()[1]["spans"]
    if spans is None:
        return values
    return {
        name: np.stack([_over(name, by_token[:, span]) for span in spans], axis=1)
        for name, by_token in values.items()
    }


def _over(name: str, by_token: Float) -> Float:
    """Return what is forgotten over the tokens of an element [head]; NaN without any."""
    if not by_token.shape[1]:
        return np.full(len(by_token), np.nan)
    over: Float = by_token.prod(axis=1) if name == "decay" else by_token.mean(axis=1)
    return over


def forgotten(view: View, source: Source, layer: int, head: int | str) -> dict[str, Float]:
    """Return what the map that a view shows forgets at each element, by name [element]; {} for nothing.

    Args:
        view: The view.
        source: What it shows. Maps of other runs of the model, which interventions changed, have nothing.
        layer: Its layer.
        head: Its head; of a reduction over heads, their mean.
    """
    is_own = source.explanation.trace_id == view.content.trace_id and "#" not in source.method
    if source.attributions or not source.mixers or not is_own:
        return {}
    if layer not in _layers(view).get(source.stack, {}):
        return {}
    shown = {}
    for name, values in forgotten_by_head(view, source, layer).items():
        forgets = values[~np.isnan(values).all(axis=1)]
        row = values[head] if isinstance(head, int) and head < len(values) else forgets.mean(axis=0)
        if not np.isnan(row).all():
            shown[name] = row
    return shown


def forgetting_words(values: Mapping[str, Float], labels: list[str]) -> str:
    """Return where most is forgotten, in a sentence; its twin is in js/src/views/text/forgetting.ts."""
    parts = []
    for name, row in values.items():
        low, high = np.nanmin(row), np.nanmax(row)
        if high - low < _ALIKE:
            parts.append(f"{name} {high:.2f} at every token")
            continue
        most, word = (low, "lowest") if name == "decay" else (high, "highest")
        at = labels[int(np.flatnonzero(row == most)[0])].strip()
        parts.append(f"{name} {word} at “{at}” ({most:.2f}), {np.nanmean(row):.2f} on average")
    return f"What is forgotten: {'; '.join(parts)}." if parts else ""
