# The public names of aw.concepts, each loaded on first use.

from .states import states as states
from .states_result import States as States
from .tcav import tcav as tcav
from .concept_scores import ConceptScores as ConceptScores
from .concept_scores import SortedText as SortedText
