"""Real models and labelled texts for demos, courses and tests that need no model hub."""

from __future__ import annotations

from attnwidgets.demo.models import MODELS, demo_model
from attnwidgets.demo.texts import LabelledText, demo_book, demo_texts

__all__ = ["MODELS", "LabelledText", "demo_book", "demo_model", "demo_texts"]
