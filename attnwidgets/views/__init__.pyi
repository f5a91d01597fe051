# The public names of aw.views, each loaded on first use.

from .base.selection import Selection as Selection
from .circuits.claim_view import ClaimView as ClaimView
from .circuits.lens_view import LensView as LensView
from .circuits.patch_view import PatchView as PatchView
from .circuits.sentence_view import SentenceView as SentenceView
from .compare.compare_view import CompareView as CompareView
from .compare.layer_profile import LayerProfile as LayerProfile
from .concepts.concept_view import ConceptView as ConceptView
from .concepts.influence_view import InfluenceView as InfluenceView
from .concepts.shape_view import ShapeView as ShapeView
from .evaluate.scorecard_view import ScorecardView as ScorecardView
from .maps.heatmap import RelevanceMap as RelevanceMap
from .training.run_view import RunView as RunView
