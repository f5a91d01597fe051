# The public names of aw.people, each loaded on first use.

from .agents import Agent as Agent
from .analysis import wilson as wilson
from .fault_lines import fault_lines as fault_lines
from .item import Item as Item
from .reading import read_responses as read_responses
from .study import study as study
from .study_view import StudyView as StudyView
