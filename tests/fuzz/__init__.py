"""Fuzzers: strange inputs in bounded time. `make fuzz` runs them for longer; see `fuzzing`."""
