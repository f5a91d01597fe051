"""A model at many steps of its training: checkpoints, and the curves and claims over them.

In: checkpoints by step. Out: a `TrainingRun`. Begin with `run.py`; `reading.py` reads files, `weights.py`
loads them into a single model, and `measures.py` defines the curves that have a name.
"""
