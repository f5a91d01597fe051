"""What a CompareView and a LayerProfile compare: explanations of one text over the same elements."""
