"""Views of SAE features: on a text, over a corpus, and steered."""
