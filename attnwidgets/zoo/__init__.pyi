# The public names of aw.zoo, each loaded on first use.

from .compiled.induction import induction as induction
from .truth import Ablation as Ablation
from .truth import Truth as Truth
