"""Interventions: context managers that change a model and restore it on exit.

In: a trace or a model, and the heads, rows of attention or states to change. Out: a context manager, under
which recording, `generate()` and gradients all see the change. Begin with `heads.py` and
`edit_attention.py`. An intervention applies only to the thread that entered it, and is undone after any
exception.
"""
