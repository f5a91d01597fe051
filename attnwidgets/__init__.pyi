# The public names, by question, and their only list: the package loads them from here, and `help(aw)` and the
# reference show them in these groups. The comment above a group of imports is its heading.

from ._version import __version__ as __version__

# Run a model once, on any input
from .tracing.recording.run import trace as trace
from .tracing.module_trace import trace_module as trace_module
from .tracing.from_attentions import from_attentions as from_attentions
from .tracing.from_qkv import from_qkv as from_qkv
from .tracing.continuations import continuations as continuations
from .demo.texts import demo_book as demo_book
from .demo.models import demo_model as demo_model
from .demo.texts import demo_texts as demo_texts
from . import zoo as zoo
from .training.run import checkpoints as checkpoints
from . import speech as speech

# How do tokens mix?
from .explanations.mixing.attention import attention as attention
from .explanations.mixing.rollout import rollout as rollout
from .explanations.mixing.attention_flow import attention_flow as attention_flow
from .explanations.mixing.value_zeroing import value_zeroing as value_zeroing
from .explanations.mixing.mixing import mixing as mixing
from .explanations.mixing.hidden_token_attribution import hidden_token_attribution as hidden_token_attribution
from .explanations.mixing.attention_norm import attention_norm as attention_norm
from .explanations.mixing.attention_norm import mixing_ratio as mixing_ratio
from .explanations.mixing.attention_norm import globenc as globenc
from .explanations.mixing.alti import alti as alti
from .explanations.mixing.contribution_graph import contribution_graph as contribution_graph

# Why this prediction, and not another?
from .explanations import targets as targets
from .explanations.attribution.gradients import saliency as saliency
from .explanations.attribution.gradients import input_x_gradient as input_x_gradient
from .explanations.attribution.gradients import integrated_gradients as integrated_gradients
from .explanations.attribution.deeplift import deeplift as deeplift
from .explanations.attribution.signed_attention import signed_attention as signed_attention
from .explanations.attribution.chefer import chefer as chefer
from .explanations.attribution.lrp import lrp as lrp
from .explanations.attribution.neuron_relevance import neuron_relevance as neuron_relevance
from .explanations.attribution.perturbation import occlusion as occlusion
from .explanations.attribution.perturbation import shapley_sampling as shapley_sampling
from .explanations.attribution.surprisal import surprisal as surprisal
from .evaluate.surrogates.lime import lime as lime
from .explanations.mixing.alti import alti_logit as alti_logit
from .explanations.mixing.decompx import decompx as decompx
from .explanations.mixing.direct_logit_attribution import direct_logit_attribution as direct_logit_attribution

# What does it see in a picture?
from . import vision as vision

# Any method by its name, and methods of your own
from .explanations.registry.registry import explain as explain, methods as methods
from .explanations.user_methods.register import check as check, register as register

# What do heads do?
from . import statistics as statistics

# What if it were otherwise?
from .intervene.heads import ablate_heads as ablate_heads
from .intervene.edit_attention import edit_attention as edit_attention
from .intervene.randomized import randomized as randomized
from .intervene.edit_attention import drop_tokens as drop_tokens, suppress as suppress
from .sae.steering.steer import steer as steer
from .tracing.interventions import interventions as interventions
from .circuits.scores.why import why as why
from . import circuits as circuits
from . import concepts as concepts

# Which features fire?
from .sae.sae import SAE as SAE
from .sae.features import sae_features as sae_features
from .sae.corpus_statistics.feature_stats import feature_stats as feature_stats
from .sae.corpus_statistics.feature_stats import FeatureDashboard as FeatureDashboard

# Is it an explanation?
from . import evaluate as evaluate
from . import people as people
from .explanations.attribution.conservation import check_conservation as check_conservation

# Questions in class
from . import ask as ask
from . import course as course

# Views
from .views.explorer import Explorer as Explorer, explore as explore
from .views.maps.heatmap import Heatmap as Heatmap
from .views.maps.heatmap import LayerSlider as LayerSlider
from .views.heads.head_view import HeadGrid as HeadGrid
from .views.media.image_view import ImageView as ImageView
from .views.heads.head_view import HeadView as HeadView
from .views.heads.neuron_view import NeuronView as NeuronView
from .views.text.token_strip import TokenStrip as TokenStrip
from .views.text.predictions import Predictions as Predictions
from .views.compare.compare_view import compare as compare
from .views.compare.two_texts import TwoTexts as TwoTexts
from .views.compare.flow_view import FlowView as FlowView
from .views.interventions.intervention_view import InterventionView as InterventionView
from .views.evaluate.removal_view import RemovalView as RemovalView
from .views.features.feature_view import FeatureTable as FeatureTable
from .views.features.feature_view import FeaturePanel as FeaturePanel
from .views.features.feature_view import FeatureStrip as FeatureStrip
from .views.features.steer_view import SteerView as SteerView
from .views.media.audio_view import AudioView as AudioView
from .views.base.linked_view import link as link
from . import views as views

# Files, pages, and other tools
from . import results as results
from . import compat as compat
from .explanations.results.archive import load as load
from .views.page.html import to_html as to_html
