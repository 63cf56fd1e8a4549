"""Facts of a Triton kernel for each split: what the compiler makes of it for a GPU that need not be there."""

from collections.abc import Sequence
from typing import Any

from andrea_bench.hardware import Gpu
from andrea_bench.inspect import Facts, survey
from andrea_bench.inspect.cache import AnalysisCache
from andrea_bench.inspect.pipeline import Options
from andrea_bench.kernel import find_kernel, kernels
from andrea_bench.problem import Problem

# What stands for the project's own attention where the kernel asked for is not written in Triton.
OWN_KERNEL = "triton_exact"
SHOWN = ("kernel", "status", "reason", "registers_per_thread", "spill_store_bytes", "spill_load_bytes",
         "blocks_per_sm", "computed_width_qk", "computed_width_pv", "mma_efficiency", "global_load_bytes",
         "async_copy_bytes", "bound_by", "waves", "tail_efficiency")  # fmt: skip


def compiled_kernel(kernel: str) -> str:
    """The kernel itself where it is written in Triton, else the project's own."""
    with_facts = {one.name for one in kernels() if one.op == "attention" and one.launches}
    return kernel if kernel in with_facts else OWN_KERNEL


def compiled(kernel: str, problems: Sequence[Problem], gpu: Gpu) -> dict[Problem, list[dict[str, Any]]]:
    """Facts by Problem, a launch each. Raises EnvironmentUnfit without triton."""
    made: dict[Problem, list[dict[str, Any]]] = {problem: [] for problem in problems}
    found = survey([find_kernel("attention", kernel)], problems, [gpu.name], Options(cache=AnalysisCache()))
    for facts in found:
        if facts.problem is not None:
            made[facts.problem].append(_short(facts))
    return made


def _short(facts: Facts) -> dict[str, Any]:
    document = facts.document()
    return {name: document[name] for name in SHOWN if name in document}
