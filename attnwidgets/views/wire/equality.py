"""Whether two explanations are the same, so that running a cell again adds nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnwidgets.views.wire.reader import LAYER_VALUES, is_attributions

_SAMPLE = 16  # rows of a head by which long maps are told apart


def same(one: Any, other: Any) -> bool:
    """Return whether two explanations are the same numbers got in the same way.

    Of maps that are computed on demand one layer that `one` has is compared: it is computed of `other`. Of
    long maps whose rows are computed alone some rows of every head are: they read what one pass recorded, and
    what was done to it is in their provenance.
    """
    if one is other:
        return True
    if type(one) is not type(other) or one.method != other.method or one.unit != other.unit:
        return False
    if repr(one.provenance) != repr(other.provenance):
        return False
    if is_attributions(one):
        return bool(np.array_equal(one.values, other.values))
    if one.layers != other.layers or one.heads != other.heads:
        return False
    layers, some = one.layers, None
    if one.knows_rows and other.knows_rows and one.shape == other.shape and _is_long(one):
        some = range(0, one.shape[-2], -(-one.shape[-2] // _SAMPLE))
    elif one.on_demand:
        ready = one.computed_layers
        layers = tuple(n for n in ready if n in other.computed_layers) or ready[:1]
    return bool(layers) and all(
        np.array_equal(one.layer(n), other.layer(n))
        if some is None
        else np.array_equal(one.rows(n, None, some), other.rows(n, None, some))
        for n in layers
    )


def _is_long(explanation: Any) -> bool:
    heads = len(explanation.heads or (0,))
    return heads * len(explanation.query) * len(explanation.key) > LAYER_VALUES


def is_special(explanation: Any) -> bool:
    """Return whether an explanation is not what its method says by itself: of another target, with options.

    A menu's own entry of the method is then something else, and has the method's name as its key.
    """
    from attnwidgets.explanations.registry.registry import methods

    table = methods()
    if explanation.method not in table:
        return False
    method = table[explanation.method]
    if not {"target", "foil"} <= set(method.options):
        return False
    if is_attributions(explanation):
        predictions = explanation.predictions
        best = predictions.items[0].label if predictions is not None and predictions.items else None
        if explanation.foil is not None or (best is not None and explanation.targets != (best,)):
            return True
    defaults = method.default_options()
    chosen = explanation.provenance.get("options", {})
    if chosen.get("discard") is not None:
        return True
    # What else is None by default is found out by the method, and stands here as what was found.
    return any(defaults.get(name) is not None and value != defaults[name] for name, value in chosen.items())
