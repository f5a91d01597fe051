"""Grad-CAM, which stands among the methods, so that `aw.explain`, menus and metrics find it by name."""

from __future__ import annotations

from attnwidgets.explanations.attribution.grad_cam import grad_cam

__all__ = ["grad_cam"]
