"""Explanations: labelled numbers made from a trace, one method a file.

The result types are `MixingMap`, `Attributions` and `ContributionGraph`; the methods register themselves by
name (`registry.py`). Functions are not re-exported here, so that `explanations.rollout` stays the module.
Nothing in this package imports torch, transformers or matplotlib when it is loaded.
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
