"""torch.compile for measuring: one shape, nothing left to the interpreter, and what it needs of the machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from typing import Any

from andrea_bench.problem import Problem

# dynamo gives up on a function after 8 shapes; a sweep has more.
RECOMPILE_LIMIT = 256


def check_compiler(problem: Problem, device: str) -> str | None:
    """Why torch.compile can't make a kernel here, None where it can: Inductor writes C++ for a CPU and
    Triton for a GPU."""
    compiler = os.environ.get("CXX") or "g++"
    if device == "cpu" and shutil.which(compiler) is None:
        return f"torch.compile for a CPU needs a C++ compiler; there is no {compiler} (CXX names another)"
    if device == "cuda" and importlib.util.find_spec("triton") is None:
        return "torch.compile for a GPU needs the package triton, which is not installed"
    return None


def compile_exactly(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile of `function`, anew for each shape it is called with.

    Without dynamic=False the second shape would be compiled for any size, and be slower than it need be;
    without fullgraph=True, and beyond the limit of shapes, dynamo would quietly run the function as it is.
    """
    import torch

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILE_LIMIT)
    return torch.compile(function, dynamic=False, fullgraph=True)
