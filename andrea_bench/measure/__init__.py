"""Measuring: inputs, correctness, clocks, one Group in one process, and the session of processes."""
