# The public names of aw.concepts, each loaded on first use.

from .directions import directions as directions
from .distill import distill as distill
from .influence import HeadRefit as HeadRefit
from .influence import LossGradients as LossGradients
from .influence import influence as influence
from .influence_result import mislabelled as mislabelled
from .states import Batches as Batches
from .states import states as states
from .tcav import ConceptTest as ConceptTest
from .tcav import tcav as tcav
