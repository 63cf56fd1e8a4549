"""Which unit of the SM binds: cycles that each needs for one pass of the main loop of one block.

Rates are the catalogue's (results, lanes or bytes per clock and SM, each with its source). The figures are
compiled, not measured: the largest is the least time that a pass can take, no unit waiting for another.
"""

from andrea_bench.hardware import Gpu
from andrea_bench.inspect.analysis import Analysis, MatrixCount

UNITS = ("tensor", "exp", "fma", "alu", "shared", "load_store")


def unit_cycles(analysis: Analysis, gpu: Gpu) -> tuple[dict[str, float | None], str | None]:
    """(unit -> cycles, why `tensor` is None where it is)."""
    architecture, work = gpu.architecture, analysis.work
    tensor, reason = _tensor_cycles(analysis.mma, gpu)
    cycles: dict[str, float | None] = {
        "tensor": tensor,
        "exp": work.exp_results / architecture.exp_per_clk_per_sm,
        # 32-bit integer multiply-adds run on the FMA units at the integer rate.
        "fma": work.fma_results / architecture.fma_per_clk_per_sm
        + work.integer_fma_results / architecture.alu_per_clk_per_sm,
        "alu": work.alu_results / architecture.alu_per_clk_per_sm,
        "shared": work.shared_memory_bytes / architecture.shared_memory_bytes_per_clk_per_sm,
        "load_store": work.load_store_lanes / architecture.load_store_lanes_per_clk_per_sm,
    }
    return {unit: None if c is None else round(c, 3) for unit, c in cycles.items()}, reason


def bound_by(cycles: dict[str, float | None]) -> str | None:
    """The unit that needs the most cycles; None where a unit's cycles are not known or all are 0."""
    if any(c is None for c in cycles.values()):
        return None
    known = {unit: c for unit, c in cycles.items() if c is not None}
    largest = max(known, key=lambda unit: known[unit])
    return largest if known[largest] else None


def _tensor_cycles(mma: list[MatrixCount], gpu: Gpu) -> tuple[float | None, str | None]:
    total = 0.0
    for one in mma:
        if not one.in_loop:
            continue
        if one.flops is None:
            return None, f"the shape of {one.instruction} is not known"
        rate = matrix_flops_per_clk(gpu, one.kind, one.float16_accumulator)
        if rate is None:
            return None, f"the rate of {one.kind} matrix instructions on {gpu.name} is not known"
        total += one.flops / rate
    return total, None


def matrix_flops_per_clk(gpu: Gpu, kind: str, float16_accumulator: bool = False) -> float | None:
    """FLOPs a clock that the tensor cores of one SM do in that kind, from the GPU's own rate and peaks."""
    base, peak = gpu.tensor_fp16_fp32acc_flop_per_clk_per_sm, gpu.fp16_fp32acc_dense_tflops
    of_kind = {
        "float16": gpu.fp16_fp16acc_dense_tflops if float16_accumulator else peak,
        "bfloat16": gpu.bf16_fp32acc_dense_tflops,
        "tf32": gpu.tf32_dense_tflops,
        "8bit": gpu.fp8_fp32acc_dense_tflops or gpu.int8_dense_tops,
        "4bit": gpu.fp4_dense_tflops,
    }.get(kind)
    if base is None or peak is None or of_kind is None:
        return None
    return base * of_kind / peak
