"""Standalone pages: views in one HTML file that needs neither kernel nor network."""
