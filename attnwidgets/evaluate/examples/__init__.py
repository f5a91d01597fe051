"""The inputs of an evaluation: examples, their cues and rationales, and the explanations of each by name."""
