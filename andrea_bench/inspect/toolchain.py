"""The compilers and disassembler that the Triton wheel carries: where they are and which version they are.

Nothing here touches a driver. Triton itself is imported inside the functions: a machine without it says so.
"""

import os
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from andrea_bench.errors import BadInput, EnvironmentUnfit

# From this compute capability on, Triton assembles with its newer ptxas (triton/backends/nvidia/compiler.py).
FIRST_BLACKWELL = 100


def triton_module() -> Any:
    """Triton, ready to compile for a GPU that is not there.

    Raises EnvironmentUnfit where it is not installed, and BadInput under TRITON_INTERPRET: then kernels are
    Python functions and nothing can be compiled.
    """
    if os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes"):
        raise BadInput("TRITON_INTERPRET is set: kernels are interpreted and can't be compiled; unset it")
    try:
        import triton
    except ImportError as error:
        raise EnvironmentUnfit(f"inspect needs the package triton (pip install triton): {error}") from error
    return triton


@cache
def ptxas(target: int) -> Path:
    """The assembler for `target` (90 for sm_90). Raises EnvironmentUnfit where there is none."""
    triton_module()
    from triton import knobs

    name = "ptxas-blackwell" if target >= FIRST_BLACKWELL else "ptxas"
    try:
        tool = knobs.nvidia.ptxas_blackwell if target >= FIRST_BLACKWELL else knobs.nvidia.ptxas
        return Path(tool.path)
    except RuntimeError as error:
        raise EnvironmentUnfit(f"there is no {name} to assemble for sm_{target}: {error}; reinstall triton") from error


@cache
def disassembler() -> Path:
    """nvdisasm. Raises EnvironmentUnfit where there is none."""
    triton_module()
    from triton import knobs

    try:
        return Path(knobs.nvidia.nvdisasm.path)
    except RuntimeError as error:
        raise EnvironmentUnfit(f"there is no nvdisasm to read machine code: {error}; reinstall triton") from error


@cache
def version_of(tool: Path) -> str:
    """The version that a tool of NVIDIA's says of itself, as `12.8.93`."""
    try:
        text = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentUnfit(f"{tool} can't be run: {error}") from error
    found = re.search(r"V(\d+\.\d+\.\d+)", text)
    return found[1] if found else text.strip().splitlines()[-1]


def compiler_versions() -> dict[str, str | None]:
    """Versions of what compiles: triton, ptxas (and the one for 10.0 and later), nvdisasm; torch where it is
    installed, though it takes no part."""
    from importlib.metadata import PackageNotFoundError, version

    triton = triton_module()
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = None
    return {
        "triton": triton.__version__,
        "ptxas": version_of(ptxas(80)),
        "ptxas_blackwell": version_of(ptxas(FIRST_BLACKWELL)),
        "nvdisasm": version_of(disassembler()),
        "torch": torch,
    }


def warm_up(targets: Iterable[int]) -> None:
    """Does once what Triton would do again in each forked child: hash its own files, ask the tools' versions.
    Raises EnvironmentUnfit where a tool is missing."""
    triton_module()
    from triton.backends.nvidia import compiler
    from triton.runtime.cache import triton_key

    triton_key()
    disassembler()
    for target in set(targets):
        ptxas(target)
        compiler.get_ptxas_version(target)
        compiler.CUDAOptions(arch=f"sm{target}").hash()
