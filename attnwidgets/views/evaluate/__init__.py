"""Views of scores, and of predictions after parts of the input are removed."""
