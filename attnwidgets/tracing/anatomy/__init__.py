"""What a model is made of: its stacks, the blocks of each, and what mixes tokens in every block."""
