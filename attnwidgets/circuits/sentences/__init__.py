"""Long answers, sentence by sentence: what suppressing one does to later ones, and which heads look back."""
