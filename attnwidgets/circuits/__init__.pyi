# The public names of aw.circuits, each loaded on first use.

from .fit_translator import fit_translator as fit_translator
from .lens import lens as lens
from .lens_result import Lens as Lens
from .patch import BothWays as BothWays
from .patch import PatchedCells as PatchedCells
from .patch import patch as patch
from .patch import patch_cells as patch_cells
from .patching import Patching as Patching
from .set_activations import set_activations as set_activations
from .translator import Translator as Translator
from .translator import TranslatorError as TranslatorError
