"""Run a model once and record it: `trace`, `from_attentions`, and the traces that they return.

In: a model, its tokenizer or processor and an input; or attention weights from elsewhere. Out: a `Trace`.
Begin with `trace.py`; then `recording/` for the pass itself and `layers.py` for the weights. A fact about a
model (stacks, blocks, outputs, positions) belongs in `anatomy/`, and everything else reads it there.
Nothing in this package knows an explanation or a view.
"""
