"""Linked Jupyter widgets for looking at attention and token mixing in transformers.

Trace a model once, explain what its layers did, look at it::

    import attnwidgets as aw

    trace = aw.trace(model, tokenizer, "The capital of France is")
    aw.Explorer(trace)

Names are loaded on first use: importing the package loads neither torch, transformers nor matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnwidgets import compat, evaluate, statistics
    from attnwidgets.demo.book import demo_book
    from attnwidgets.demo.models import demo_model
    from attnwidgets.demo.sentiment import demo_texts
    from attnwidgets.evaluate.metrics.agreement import agreement
    from attnwidgets.explanations import targets
    from attnwidgets.explanations.attribution.chefer import chefer
    from attnwidgets.explanations.attribution.conservation import check_conservation
    from attnwidgets.explanations.attribution.input_x_gradient import input_x_gradient
    from attnwidgets.explanations.attribution.integrated_gradients import integrated_gradients
    from attnwidgets.explanations.attribution.lrp import lrp
    from attnwidgets.explanations.attribution.neuron_relevance import neuron_relevance
    from attnwidgets.explanations.attribution.occlusion import occlusion
    from attnwidgets.explanations.attribution.saliency import saliency
    from attnwidgets.explanations.attribution.shapley_sampling import shapley_sampling
    from attnwidgets.explanations.attribution.signed_attention import signed_attention
    from attnwidgets.explanations.attribution.surprisal import surprisal
    from attnwidgets.explanations.attributions import Attributions
    from attnwidgets.explanations.mixing.alti import alti
    from attnwidgets.explanations.mixing.alti_logit import alti_logit
    from attnwidgets.explanations.mixing.attention import attention
    from attnwidgets.explanations.mixing.attention_flow import attention_flow
    from attnwidgets.explanations.mixing.attention_norm import attention_norm
    from attnwidgets.explanations.mixing.contribution_graph import contribution_graph
    from attnwidgets.explanations.mixing.decompx import decompx
    from attnwidgets.explanations.mixing.direct_logit_attribution import direct_logit_attribution
    from attnwidgets.explanations.mixing.globenc import globenc
    from attnwidgets.explanations.mixing.graph import ContributionGraph
    from attnwidgets.explanations.mixing.hidden_token_attribution import hidden_token_attribution
    from attnwidgets.explanations.mixing.mixing_ratio import mixing_ratio
    from attnwidgets.explanations.mixing.rollout import rollout
    from attnwidgets.explanations.mixing.value_zeroing import value_zeroing
    from attnwidgets.explanations.mixing_map import MixingMap
    from attnwidgets.explanations.registry import explain, methods
    from attnwidgets.explanations.user_methods.register import check, register
    from attnwidgets.export.archive import load
    from attnwidgets.export.html import to_html
    from attnwidgets.intervene.ablate_heads import ablate_heads
    from attnwidgets.intervene.edit_attention import edit_attention
    from attnwidgets.intervene.randomized import randomized
    from attnwidgets.intervene.suppress import drop_tokens, suppress
    from attnwidgets.sae.feature_activations import FeatureActivations
    from attnwidgets.sae.features import sae_features
    from attnwidgets.sae.sae import SAE
    from attnwidgets.sae.statistics.feature_stats import feature_stats
    from attnwidgets.sae.statistics.stats import FeatureStats
    from attnwidgets.sae.steering.steer import steer
    from attnwidgets.statistics.free_attention import free_attention
    from attnwidgets.statistics.head_importance import head_importance
    from attnwidgets.statistics.head_statistics import head_statistics
    from attnwidgets.statistics.induction import induction_score
    from attnwidgets.statistics.retrieval import retrieval_score
    from attnwidgets.tracing.continuations import Continuation, continuations
    from attnwidgets.tracing.from_qkv import from_qkv
    from attnwidgets.tracing.given import from_attentions
    from attnwidgets.tracing.interventions import interventions
    from attnwidgets.tracing.module_trace import trace_module
    from attnwidgets.tracing.recording.run import trace
    from attnwidgets.tracing.text.units import TokenAxis, Unit
    from attnwidgets.tracing.trace import Trace
    from attnwidgets.views.base import link
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
    from attnwidgets.views.selection import Selection
    from attnwidgets.views.steer_view import SteerView
    from attnwidgets.views.token_strip import TokenStrip

__version__ = "0.1.0"

# In the order of the flow: trace, explain, view, leave.
_HOMES = {
    "trace": "tracing.recording.run",
    "trace_module": "tracing.module_trace",
    "from_attentions": "tracing.given",
    "from_qkv": "tracing.from_qkv",
    "demo_book": "demo.book",
    "demo_model": "demo.models",
    "demo_texts": "demo.sentiment",
    "Trace": "tracing.trace",
    "TokenAxis": "tracing.text.units",
    "Unit": "tracing.text.units",
    "attention": "explanations.mixing.attention",
    "rollout": "explanations.mixing.rollout",
    "attention_flow": "explanations.mixing.attention_flow",
    "value_zeroing": "explanations.mixing.value_zeroing",
    "hidden_token_attribution": "explanations.mixing.hidden_token_attribution",
    "attention_norm": "explanations.mixing.attention_norm",
    "mixing_ratio": "explanations.mixing.mixing_ratio",
    "globenc": "explanations.mixing.globenc",
    "alti": "explanations.mixing.alti",
    "alti_logit": "explanations.mixing.alti_logit",
    "decompx": "explanations.mixing.decompx",
    "direct_logit_attribution": "explanations.mixing.direct_logit_attribution",
    "contribution_graph": "explanations.mixing.contribution_graph",
    "saliency": "explanations.attribution.saliency",
    "input_x_gradient": "explanations.attribution.input_x_gradient",
    "integrated_gradients": "explanations.attribution.integrated_gradients",
    "signed_attention": "explanations.attribution.signed_attention",
    "chefer": "explanations.attribution.chefer",
    "occlusion": "explanations.attribution.occlusion",
    "shapley_sampling": "explanations.attribution.shapley_sampling",
    "lrp": "explanations.attribution.lrp",
    "neuron_relevance": "explanations.attribution.neuron_relevance",
    "check_conservation": "explanations.attribution.conservation",
    "surprisal": "explanations.attribution.surprisal",
    "continuations": "tracing.continuations",
    "Continuation": "tracing.continuations",
    "explain": "explanations.registry",
    "methods": "explanations.registry",
    "register": "explanations.user_methods.register",
    "check": "explanations.user_methods.register",
    "ablate_heads": "intervene.ablate_heads",
    "edit_attention": "intervene.edit_attention",
    "drop_tokens": "intervene.suppress",
    "suppress": "intervene.suppress",
    "interventions": "tracing.interventions",
    "head_importance": "statistics.head_importance",
    "free_attention": "statistics.free_attention",
    "randomized": "intervene.randomized",
    "SAE": "sae.sae",
    "sae_features": "sae.features",
    "FeatureActivations": "sae.feature_activations",
    "feature_stats": "sae.statistics.feature_stats",
    "FeatureStats": "sae.statistics.stats",
    "steer": "sae.steering.steer",
    "agreement": "evaluate.metrics.agreement",
    "head_statistics": "statistics.head_statistics",
    "induction_score": "statistics.induction",
    "retrieval_score": "statistics.retrieval",
    "MixingMap": "explanations.mixing_map",
    "ContributionGraph": "explanations.mixing.graph",
    "Attributions": "explanations.attributions",
    "HeadView": "views.head_view",
    "Heatmap": "views.heatmap",
    "InterventionView": "views.intervention_view",
    "HeadGrid": "views.head_grid",
    "TokenStrip": "views.token_strip",
    "RelevanceMap": "views.relevance_map",
    "RemovalView": "views.removal_view",
    "ScorecardView": "views.scorecard_view",
    "FlowView": "views.flow_view",
    "LayerProfile": "views.layer_profile",
    "Predictions": "views.predictions",
    "NeuronView": "views.neuron_view",
    "compare": "views.compare_view",
    "CompareView": "views.compare_view",
    "LayerSlider": "views.layer_slider",
    "FeaturePanel": "views.feature_panel",
    "FeatureStrip": "views.feature_strip",
    "FeatureTable": "views.feature_table",
    "SteerView": "views.steer_view",
    "Explorer": "views.explorer",
    "explore": "views.explorer",
    "Selection": "views.selection",
    "link": "views.base",
    "load": "export.archive",
    "to_html": "export.html",
}

__all__ = [
    "SAE",
    "Attributions",
    "CompareView",
    "Continuation",
    "ContributionGraph",
    "Explorer",
    "FeatureActivations",
    "FeaturePanel",
    "FeatureStats",
    "FeatureStrip",
    "FeatureTable",
    "FlowView",
    "HeadGrid",
    "HeadView",
    "Heatmap",
    "InterventionView",
    "LayerProfile",
    "LayerSlider",
    "MixingMap",
    "NeuronView",
    "Predictions",
    "RelevanceMap",
    "RemovalView",
    "ScorecardView",
    "Selection",
    "SteerView",
    "TokenAxis",
    "TokenStrip",
    "Trace",
    "Unit",
    "ablate_heads",
    "agreement",
    "alti",
    "alti_logit",
    "attention",
    "attention_flow",
    "attention_norm",
    "check",
    "check_conservation",
    "chefer",
    "compare",
    "compat",
    "continuations",
    "contribution_graph",
    "decompx",
    "demo_book",
    "demo_model",
    "demo_texts",
    "direct_logit_attribution",
    "drop_tokens",
    "edit_attention",
    "evaluate",
    "explain",
    "explore",
    "feature_stats",
    "free_attention",
    "from_attentions",
    "from_qkv",
    "globenc",
    "head_importance",
    "head_statistics",
    "hidden_token_attribution",
    "induction_score",
    "input_x_gradient",
    "integrated_gradients",
    "interventions",
    "link",
    "load",
    "lrp",
    "methods",
    "mixing_ratio",
    "neuron_relevance",
    "occlusion",
    "randomized",
    "register",
    "retrieval_score",
    "rollout",
    "sae_features",
    "saliency",
    "shapley_sampling",
    "signed_attention",
    "statistics",
    "steer",
    "suppress",
    "surprisal",
    "targets",
    "to_html",
    "trace",
    "trace_module",
    "value_zeroing",
]


# Names that hold functions of their own: aw.targets.token(...), aw.evaluate.cue_contribution(...).
_MODULES = {
    "targets": "explanations.targets",
    "evaluate": "evaluate",
    "statistics": "statistics",
    "compat": "compat",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name in _MODULES:
        return import_module(f"attnwidgets.{_MODULES[name]}")
    if name not in _HOMES:
        from attnwidgets._errors import suggest

        raise AttributeError(f"module 'attnwidgets' has no attribute {name!r}.{suggest(name, __all__)}")
    value = getattr(import_module(f"attnwidgets.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted([*__all__, "__version__"])
