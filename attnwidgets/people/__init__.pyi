# The public names of aw.people, each loaded on first use.

from .agents import Agent as Agent
from .agents import Plan as Plan
from .agents import Trial as Trial
from .analysis import Analysis as Analysis
from .analysis import wilson as wilson
from .item import Item as Item
from .reading import read_responses as read_responses
from .responses import Responses as Responses
from .study import Study as Study
from .study import study as study
from .study_view import StudyView as StudyView
