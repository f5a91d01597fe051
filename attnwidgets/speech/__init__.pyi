# The public names of aw.speech, each loaded on first use.

from .align import align as align
from .cue_contribution import blank_out as blank_out
from .cue_contribution import cue_contribution as cue_contribution
from .demo_sentences import demo_sentences as demo_sentences
