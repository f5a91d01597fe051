"""Sparse autoencoders: load anyone's, train your own, see the meaning of features, steer with them.

In: an SAE's files or a model and a corpus. Out: an `SAE`, its activations on a text, its statistics on a
corpus. Begin with `sae.py` and `coder.py`; `formats/` reads the files of other libraries. Files from
elsewhere are never unpickled, and a format that is not recognised is refused by name.
"""
