"""Fuzzers: strange things in bounded time. `make fuzz` runs the same for longer; see `fuzzing`."""
