# The public names of aw.vision, each loaded on first use.

from .captions import caption_words as caption_words
from .captions import captions as captions
from .class_attention import class_attention as class_attention
from .grad_cam import grad_cam as grad_cam
from .picture_sources import sources as sources
from .priors import PRIORS as PRIORS
from .priors import centre_prior as centre_prior
from .priors import edges as edges
from .test_time_registers import test_time_registers as test_time_registers
from .token_norms import find_register_neurons as find_register_neurons
from .token_norms import outlier_tokens as outlier_tokens
from .token_norms import token_norms as token_norms
