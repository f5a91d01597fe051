"""The name by which pickles made before `from_attentions` was called so find its class."""

from attnwidgets.tracing.from_attentions import GivenTrace

__all__ = ["GivenTrace"]
