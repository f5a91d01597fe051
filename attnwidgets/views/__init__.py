"""Linked views of traces and explanations, one class a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.base import View, link
from attnwidgets.views.compare_view import CompareView, compare
from attnwidgets.views.explorer import Explorer, explore
from attnwidgets.views.feature_panel import FeaturePanel
from attnwidgets.views.feature_strip import FeatureStrip
from attnwidgets.views.feature_table import FeatureTable
from attnwidgets.views.flow_view import FlowView
from attnwidgets.views.head_grid import HeadGrid
from attnwidgets.views.head_view import HeadView
from attnwidgets.views.heatmap import Heatmap
from attnwidgets.views.intervention_view import InterventionView
from attnwidgets.views.layer_profile import LayerProfile
from attnwidgets.views.layer_slider import LayerSlider
from attnwidgets.views.neuron_view import NeuronView
from attnwidgets.views.predictions import Predictions
from attnwidgets.views.relevance_map import RelevanceMap
from attnwidgets.views.removal_view import RemovalView
from attnwidgets.views.scorecard_view import ScorecardView
from attnwidgets.views.selection import Cell, Selection
from attnwidgets.views.steer_view import SteerView
from attnwidgets.views.token_strip import TokenStrip
from attnwidgets.views.wire.reader import is_attributions

if TYPE_CHECKING:
    from attnwidgets.explanations import Explanation

__all__ = [
    "Cell",
    "CompareView",
    "Explorer",
    "FeaturePanel",
    "FeatureStrip",
    "FeatureTable",
    "FlowView",
    "HeadGrid",
    "HeadView",
    "Heatmap",
    "InterventionView",
    "LayerProfile",
    "LayerSlider",
    "NeuronView",
    "Predictions",
    "RelevanceMap",
    "RemovalView",
    "ScorecardView",
    "Selection",
    "SteerView",
    "TokenStrip",
    "View",
    "compare",
    "explore",
    "link",
    "view_of",
]


def view_of(explanation: Explanation, **options: Any) -> View:
    """Return the view that shows an explanation best.

    That is a Heatmap of a map; of attributions a TokenStrip, or a RelevanceMap where there are several
    targets or something is said of every layer; of scores a ScorecardView.
    """
    if hasattr(explanation, "samples") and hasattr(explanation, "metrics"):
        return ScorecardView(explanation, **options)
    if not is_attributions(explanation):
        return Heatmap(explanation, **options)
    more = getattr(explanation, "map", None) is not None or len(explanation.shape) > 1
    return (RelevanceMap if more else TokenStrip)(explanation, **options)
