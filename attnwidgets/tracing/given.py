"""The former name of the module `from_attentions`, by which earlier pickles name its class."""

from attnwidgets.tracing.from_attentions import GivenTrace

__all__ = ["GivenTrace"]
