"""Linear probes of states: what they predict, and of it what the probe learns by itself."""
