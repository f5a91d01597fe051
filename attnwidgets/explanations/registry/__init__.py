"""The methods by name: the requirements of each on a trace, and its result."""
