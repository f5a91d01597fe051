"""Relevance propagation by operation: rules that replace gradients in a model's own code.

In: a model's modules and the operations that they call. Out: gradients that are relevances, for `aw.lrp`,
`aw.deeplift` and Chefer's method. Begin with `rules.py`; `operations.py` assigns each operation of torch to
a rule. An operation without a rule raises: never give it a gradient by default.
"""
