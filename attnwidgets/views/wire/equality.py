"""Whether two explanations are the same, so that running a cell again adds nothing to the store."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.views.wire.reader import LAYER_VALUES

_SAMPLE = 16  # rows of a head that are compared in long maps


def same(held: Any, given: Any) -> bool:
    """Return whether two explanations have the same numbers from the same computation.

    Of maps computed on demand, a layer that `held` has is compared, which `given` may have to compute. Of
    long maps whose rows are computed one by one, some rows of every head are: they come from one recorded
    pass, and whatever else was done is in their provenance.
    """
    if held is given:
        return True
    if type(held) is not type(given) or _origin(held) != _origin(given):
        return False
    if isinstance(held, Attributions):
        return bool(np.array_equal(held.values, given.values))
    if held.layers != given.layers or held.heads != given.heads:
        return False
    if held.knows_rows and given.knows_rows and held.shape == given.shape and _is_long(held):
        rows = range(0, held.shape[-2], -(-held.shape[-2] // _SAMPLE))
        return all(np.array_equal(held.rows(n, None, rows), given.rows(n, None, rows)) for n in held.layers)
    layers = held.layers
    if held.on_demand:
        ready = held.computed_layers
        layers = tuple(n for n in ready if n in given.computed_layers) or ready[:1]
    return bool(layers) and all(np.array_equal(held.layer(n), given.layer(n)) for n in layers)


def _origin(explanation: Any) -> tuple[str, str, str]:
    return explanation.method, explanation.unit, repr(explanation.provenance)


def _is_long(explanation: Any) -> bool:
    heads = len(explanation.heads or (0,))
    return heads * len(explanation.query) * len(explanation.key) > LAYER_VALUES


def is_special(explanation: Any) -> bool:
    """Return whether an explanation differs from its method's default: another target, or other options.

    The default keeps the method's name as its key, for the entry of the menu.
    """
    from attnwidgets.explanations.registry.registry import methods

    table = methods()
    if explanation.method not in table:
        return False
    method = table[explanation.method]
    if not {"target", "foil"} <= set(method.options):
        return False
    if isinstance(explanation, Attributions):
        predictions = explanation.predictions
        best = predictions.items[0].name if predictions is not None and predictions.items else None
        if explanation.foil is not None or (best is not None and explanation.targets != (best,)):
            return True
    options = explanation.provenance.get("options", {})
    if options.get("discard") is not None:
        return True
    # Where the default is None, the method finds the value, and the provenance records the one it found.
    defaults = method.default_options()
    return any(defaults.get(name) is not None and value != defaults[name] for name, value in options.items())
