# The public names of aw.zoo.train, each loaded on first use.

from .callback import CheckpointCallback as CheckpointCallback
from .runs import PACKAGED as PACKAGED
from .runs import run as run
