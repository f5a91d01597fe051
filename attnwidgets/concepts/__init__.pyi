# The public names of aw.concepts, each loaded on first use.

from .states import states as states
from .states_result import States as States
