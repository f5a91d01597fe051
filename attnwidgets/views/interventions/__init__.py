"""Interventions that linked views share, the view of them, and the handlers of requests about them."""
