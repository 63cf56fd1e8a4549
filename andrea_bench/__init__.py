"""andrea_bench: measure, compile, predict and gate multi-head attention. See README.md."""

from andrea_bench.problem import Problem

__version__ = "0.1.0"
__all__ = ["Problem", "__version__"]
