# The public names of aw.circuits, each loaded on first use.

from .set_activations import set_activations as set_activations
