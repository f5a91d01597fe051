"""Stands in for Colab's module of this name, as far as widgets need it."""

from google.colab.output._widgets import disable_custom_widget_manager, enable_custom_widget_manager

__all__ = ["disable_custom_widget_manager", "enable_custom_widget_manager"]
