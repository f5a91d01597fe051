"""Scorecards: what methods score, with intervals, as tables and figures."""
