# The public names of aw.circuits, each loaded on first use.

from .claims.checking import check_claims as check_claims
from .claims.grammar import Claim as Claim
from .claims.grammar import ClaimError as ClaimError
from .claims.grammar import claim as claim
from .claims.report import ClaimReport as ClaimReport
from .claims.report import ClaimResult as ClaimResult
from .claims.report import ClaimText as ClaimText
from .fit_translator import fit_translator as fit_translator
from .lens import lens as lens
from .lens_result import Lens as Lens
from .patch import BothWays as BothWays
from .patch import PatchedCells as PatchedCells
from .patch import patch as patch
from .patch import patch_cells as patch_cells
from .patching import Patching as Patching
from .sentences.receiver_heads import receiver_heads as receiver_heads
from .sentences.sentence_attribution import sentence_attribution as sentence_attribution
from .set_activations import set_activations as set_activations
from .translator import Translator as Translator
from .translator import TranslatorError as TranslatorError
