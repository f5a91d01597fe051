"""Interventions as linked views share them, and what views ask about them."""
