"""The base of all views: the widget, its options, its menu, and the selection that links views."""
