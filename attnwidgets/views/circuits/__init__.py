"""Views of circuits: patching, lenses, claims about heads, and scores of attention split into parts."""
