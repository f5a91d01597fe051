# The public names of aw.concepts, each loaded on first use.

from .additive import Additive as Additive
from .additive import Misjudged as Misjudged
from .concept_scores import ConceptScores as ConceptScores
from .concept_scores import SortedText as SortedText
from .directions import directions as directions
from .distill import distill as distill
from .influence import influence as influence
from .influence_result import Influence as Influence
from .influence_result import InfluentialText as InfluentialText
from .influence_result import mislabelled as mislabelled
from .states import states as states
from .states_result import States as States
from .tcav import tcav as tcav
