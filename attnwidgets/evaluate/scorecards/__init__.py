"""Scorecards: the scores of methods, with intervals, as tables and figures."""
