"""The questions that methods answer, and how long an answer takes: menus group and mark methods by them."""

from __future__ import annotations

from typing import Literal, get_args

Question = Literal["Attention", "What goes into a token", "For this prediction", "By perturbing"]
Speed = Literal["instant", "seconds", "minutes"]

QUESTIONS: tuple[Question, ...] = get_args(Question)
"""In the order of menus."""

SPEEDS: tuple[Speed, ...] = get_args(Speed)
"""For a short text and a model of a hundred million parameters on a laptop, the quickest first."""
