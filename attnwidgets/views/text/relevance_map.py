"""RelevanceMap: see the class."""

from __future__ import annotations

from attnwidgets.views.base.options import FilterOptions
from attnwidgets.views.base.view import View


class RelevanceMap(View):
    """Attributions from the input up: the text, and what every layer says of its tokens, layers by tokens.

    Above stand the attributions as coloured text, with what they sum to; for several targets also as a
    matrix, targets by sources. Below are the layers, where the method says anything of them (`.map`); a click
    selects one, a token under the pointer is marked in all. Of a MixingMap it shows one row in every layer:
    the pinned query's.
    """

    _VIEW = "RelevanceMap"
    PARTS = ("layers", "filters")
    _OPTIONS = FilterOptions
    _WITH_LAYERS = True
