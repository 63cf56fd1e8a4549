"""Decode and projections compile for GPUs that are not there, without spilling, within their shared memory."""

import re
from collections.abc import Iterator

import pytest

from andrea_bench.kernel import TritonLaunch, find_kernel
from andrea_bench.problem import Problem

pytest.importorskip("triton", reason="the package triton is not installed")
compile_module = pytest.importorskip("andrea_bench.inspect.compile", reason="the compiler's driver is not there")

# Of one block, in bytes (andrea_bench/hardware/catalogue/arch).
SHARED_MEMORY = {80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 120: 101376}
KERNELS = {
    "triton_decode": "attention",
    "triton_fused_qkv": "qkv_projection",
    "triton_per_head_projection": "qkv_projection",
    "triton_output_projection": "output_projection",
}


def launches(name: str, architecture: int, head_dim: int, dtype: str) -> Iterator[TritonLaunch]:
    problem = Problem(seq_len=1024, n_head=8, head_dim=head_dim, dtype=dtype)
    if name == "triton_decode":
        problem = problem.replace(seq_len=1, kv_len=4096, direction="decode")
    kernel = find_kernel(KERNELS[name], name)
    assert kernel.launches is not None
    yield from kernel.launches(problem, f"{architecture // 10}.{architecture % 10}")


@pytest.mark.parametrize("architecture", SHARED_MEMORY)
@pytest.mark.parametrize("name", KERNELS)
def test_compiles_with_wide_loads_and_without_spills(name: str, architecture: int) -> None:
    for made in launches(name, architecture, 72, "bfloat16"):
        binary = compile_module.compile_here(
            compile_module.Request(
                made.function,
                made.signature,
                made.constexprs,
                made.num_warps,
                made.num_stages,
                architecture,
                made.divisible_by_16,
            )
        )
        assert binary.shared_memory_bytes <= SHARED_MEMORY[architecture]
        assert set(re.findall(r"(\d+) bytes spill", binary.log)) <= {"0"}
        if made.part == "reduce":
            continue
        copies = set(re.findall(r"LDGSTS\S*", binary.sass))
        assert any(".128" in copy for copy in copies)
        # The part of a head that is 16 wide may load 8 bytes a thread; nothing loads 2.
        assert not re.search(r"LDG\S*\.U16", binary.sass)
        instruction = {90: "HGMMA", 100: "UTCHMMA"}.get(architecture, "HMMA")
        if name == "triton_decode":  # too few rows for a warpgroup
            instruction = "HMMA"
        assert instruction in binary.sass


def test_a_gpu_between_two_rows_takes_the_lower_ones_tile() -> None:
    (like_89,) = launches("triton_fused_qkv", 89, 64, "float16")
    (like_86,) = launches("triton_fused_qkv", 86, 64, "float16")
    assert like_89 == like_86


def test_tf32_only_where_the_problem_says_so() -> None:
    for name in KERNELS:
        for dtype, precision in (("float32", "ieee"), ("tf32", "tf32"), ("bfloat16", "ieee")):
            first = next(launches(name, 90, 64, dtype))
            assert first.constexprs["PRECISION"] == precision
