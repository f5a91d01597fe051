"""Explanations: labelled numbers computed from a trace, by methods that register themselves by name.

In: a trace. Out: a `MixingMap`, `Attributions` or a `ContributionGraph` (`results/`). Begin with
`results/mixing_map.py` and `mixing/rollout.py`; `registry/` checks the needs of a method before it runs.
Functions are not re-exported here, so that `explanations.rollout` stays the module. Loading this package
imports neither torch, transformers nor matplotlib.
"""

from __future__ import annotations

from attnwidgets.explanations import targets
from attnwidgets.explanations.explanation import Explanation
from attnwidgets.explanations.registry.registry import Method, MethodTable, explain, method, methods
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.contribution_graph import ContributionGraph
from attnwidgets.explanations.results.mixing_map import MixingMap

__all__ = [
    "Attributions",
    "ContributionGraph",
    "Explanation",
    "Method",
    "MethodTable",
    "MixingMap",
    "explain",
    "method",
    "methods",
    "targets",
]
