"""Standalone pages: views in an HTML file that needs neither kernel nor network."""
