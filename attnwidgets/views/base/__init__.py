"""What all views share: the widget, its options, its menu, and the selection that links views."""
