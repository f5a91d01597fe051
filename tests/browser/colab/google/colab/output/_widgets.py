"""Marks displayed widgets with the address of the manager that may draw them, once it is enabled."""

from __future__ import annotations

from IPython import get_ipython

WIDGET = "application/vnd.jupyter.widget-view+json"

_installed_url = None


def enable_custom_widget_manager():
    """Let widgets from outside Jupyter be drawn from now on."""
    _install("/manager.js")


def disable_custom_widget_manager():
    """Let them be drawn no longer."""
    _install(None)


def _install(url):
    global _installed_url  # noqa: PLW0603 - where anywidget looks for it
    publisher = get_ipython().display_pub
    if url and not _installed_url:
        publisher.register_hook(_mark)
    elif _installed_url and not url:
        publisher.unregister_hook(_mark)
    _installed_url = url


def _mark(message):
    """Mark the outputs of `display`; results of cells do not pass here."""
    content = message.get("content") or {}
    if WIDGET in content.get("data", {}):
        content["metadata"].setdefault(WIDGET, {})["colab"] = {
            "custom_widget_manager": {"url": _installed_url}
        }
    return message
