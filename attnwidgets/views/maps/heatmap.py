"""Heatmap: see the class."""

from __future__ import annotations

from attnwidgets.views.base.view import View


class Heatmap(View):
    """One layer and head (or a reduction) as a matrix: query labels left, key labels on top.

    Hover reads a cell, a click pins it and fetches the exact row; arrow keys move through layers and heads.
    Arguments are those of `View`.
    """

    _VIEW = "Heatmap"
    _MARKS = "cells"
    _FILTERS = True
    PARTS = ("filters",)
