"""What the compiler makes of Triton kernels for any NVIDIA GPU, none of which need be present."""

from andrea_bench.inspect.facts import Facts
from andrea_bench.inspect.survey import compile_facts, survey

__all__ = ["Facts", "compile_facts", "survey"]
