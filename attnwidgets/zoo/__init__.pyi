# The public names of aw.zoo, each loaded on first use.

from . import train as train
from .compiled.additive import additive as additive
from .compiled.additive import negation as negation
from .compiled.decayed_counts import decayed_counts as decayed_counts
from .compiled.dyck import dyck as dyck
from .compiled.histogram import histogram as histogram
from .compiled.induction import induction as induction
from .compiled.last_marked import last_marked as last_marked
from .compiled.two_hop import two_hop as two_hop
from .trained_models import trained as trained
from .truth import truth_of as truth_of
