# The public names of aw.vision, each loaded on first use.

from .grad_cam import grad_cam as grad_cam
