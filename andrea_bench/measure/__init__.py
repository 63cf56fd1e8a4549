"""Measuring: inputs, correctness, clocks, one Group in one process, and the session of processes."""

import os

# torch's profiler reports each of its starts on stderr below this level; read when torch is imported.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
