"""What a model is made of: its stacks, the blocks of each, and how every block mixes tokens."""
