"""Cycles of each unit, against the limits that facts of the architectures give by hand."""

from typing import Any

import pytest

from andrea_bench.hardware import find_gpu
from andrea_bench.inspect.analysis import Analysis, MatrixCount, UnitWork
from andrea_bench.inspect.resources import Resources
from andrea_bench.inspect.units import bound_by, matrix_flops_per_clk, unit_cycles


def analysis(flops: float, exp: int = 0, shared: float = 0.0, kind: str = "bfloat16") -> Analysis:
    matrix = MatrixCount(
        instruction="X", m=1, n=1, k=1, in_loop=1, total=1, kind=kind, float16_accumulator=False, flops=flops
    )
    work = UnitWork(exp_results=exp, fma_results=0, integer_fma_results=0, alu_results=0, shared_memory_bytes=shared,
                    load_store_lanes=0)  # fmt: skip
    used = Resources(registers_per_thread=1, spill_store_bytes=0, spill_load_bytes=0, stack_bytes=0,
                     static_shared_memory_bytes=0, barriers=0)  # fmt: skip
    none: dict[str, Any] = dict.fromkeys(("passes", "width_qk", "width_pv", "loop_instructions", "matrix_flops"))
    counts = dict.fromkeys(
        ("exp_instructions", "fma_instructions", "shared_memory_instructions", "branch_instructions", "tma_copies",
         "kernel_instructions", "tensor_memory_columns", "shared_memory_bytes"), 0,
    )  # fmt: skip
    return Analysis(name="k", resources=used, threads_per_block=128, mma=[matrix], global_load_bytes={}, unknown={},
                    async_copy_bytes={}, work=work, code_hash="", compile_seconds=0.0, **none, **counts)  # fmt: skip


def tile(head_dim: int, m: int = 128, n: int = 128) -> Analysis:
    """One tile of attention: two products, one exponential a score."""
    return analysis(2 * 2 * m * n * head_dim, exp=m * n)


def test_head_dim_32_is_bound_by_exp_on_hopper_but_not_on_a_4090():
    cycles, _ = unit_cycles(tile(32), find_gpu("h200_sxm"))
    assert bound_by(cycles) == "exp"
    # 495 of 989 TFLOP/s at most: half of the tensor cores' rate.
    assert cycles["tensor"] / cycles["exp"] == pytest.approx(0.5)
    cycles, _ = unit_cycles(tile(32), find_gpu("rtx_4090"))
    assert bound_by(cycles) == "tensor"
    assert cycles["tensor"] / cycles["exp"] == pytest.approx(4)
    # A100: exactly balanced at 32; B200: at 128.
    for gpu, head_dim in (("a100_sxm4_80gb", 32), ("b200", 128)):
        cycles, _ = unit_cycles(tile(head_dim), find_gpu(gpu))
        assert cycles["tensor"] / cycles["exp"] == pytest.approx(1)


def test_shared_memory_of_a_blackwell_tile():
    """Published for a 128 x 128 x 128 tile on B200: 1024 cycles of matrix products and of exponentials, 768 of
    shared memory (Q K^T reads both operands there, P V one)."""
    reads = 2 * (2 * 128 * 128 + 128 * 128)
    cycles, _ = unit_cycles(analysis(2 * 2 * 128**3, exp=128 * 128, shared=reads), find_gpu("b200"))
    assert (cycles["tensor"], cycles["exp"], cycles["shared"]) == (1024, 1024, 768)


def test_rate_by_kind_comes_from_the_peaks():
    gpu = find_gpu("rtx_4090")
    assert matrix_flops_per_clk(gpu, "float16") == 512
    assert matrix_flops_per_clk(gpu, "float16", float16_accumulator=True) == pytest.approx(1024, rel=0.001)
    assert matrix_flops_per_clk(gpu, "tf32") == pytest.approx(256, rel=0.001)
    assert matrix_flops_per_clk(gpu, "float64") is None


def test_unknown_rate_is_null_with_a_reason():
    cycles, reason = unit_cycles(tile(64), find_gpu("sm_90"))
    assert cycles["tensor"] is None
    assert bound_by(cycles) is None
    assert reason is not None
    assert "sm_90" in reason
