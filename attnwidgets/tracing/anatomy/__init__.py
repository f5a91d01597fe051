"""The parts of a model: its stacks, the blocks of each, and how every block mixes tokens."""
