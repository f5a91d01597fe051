# The public names of aw.speech, each loaded on first use.

from .align import align as align
from .word_times import WordTime as WordTime
from .word_times import WordTimes as WordTimes
