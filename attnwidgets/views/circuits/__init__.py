"""Views of circuits: what places of a model carry, and what its states would predict."""
