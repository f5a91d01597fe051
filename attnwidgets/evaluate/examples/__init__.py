"""What is evaluated: examples, their cues and rationales, and the explanations of each by name."""
