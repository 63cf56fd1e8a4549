"""What the Triton attention kernels compile to, on GPUs that are not there."""

import itertools
import os
import re
from collections import Counter

import pytest
import test_projection_compile

from andrea_bench.hardware import find_gpu
from andrea_bench.inspect import survey
from andrea_bench.inspect.cache import AnalysisCache
from andrea_bench.inspect.compile import Request, compile_here
from andrea_bench.inspect.disassembly import listing
from andrea_bench.inspect.facts import Facts
from andrea_bench.inspect.pipeline import Options
from andrea_bench.kernel import TritonLaunch, find_kernel, kernels
from andrea_bench.problem import Problem

pytest.importorskip("triton", reason="the package triton is not installed")

from andrea_kernels.flash import tiles  # triton is looked for first

GPUS = {
    "a100_sxm4_80gb": "8.0",
    "rtx_3090": "8.6",
    "rtx_4090": "8.9",
    "h200_sxm": "9.0",
    "b200": "10.0",
    "rtx_5090": "12.0",
}
MATRIX_INSTRUCTIONS = {"9.0": "HGMMA", "10.0": "UTCHMMA"}  # wgmma and tcgen05 as the machine code names them
# `make test` compiles the hardest: narrow, in two parts with a tail half used, in three parts, the widest without
# spills; without a causal mask, where the last tile alone is masked, wide ones. HEAD_DIMS=all compiles all multiples of
# 8 in their place (372 kernels), HEAD_DIMS=64,72 these. TILE_ROWS does the same for the rows of test_tile_search.py.
ASKED = os.environ.get("HEAD_DIMS", "")
GIVEN = tuple(range(16, 257, 8)) if ASKED == "all" else tuple(int(d) for d in ASKED.split(",") if d)
CAUSAL_HEAD_DIMS = GIVEN or (24, 72, 104, 128)
UNMASKED_HEAD_DIMS = GIVEN or (88, 104, 112, 128)
WIDEST_WITHOUT_SPILLS = 128
# The variants' computed width at 72.
VARIANTS = {"triton_padded": 128, "triton_scalar_loads": 80, "triton_per_head_block": 80}
# Machine instructions that change memory in one step: of shared and global memory, and of a tile by TMA.
ATOMICS = re.compile(r"\b(?:ATOM|ATOMG|ATOMS|RED|REDG|UTMAREDG)\b")


def compiled(kernel: str, head_dims: tuple[int, ...], gpus: list[str], **problem: object) -> list[Facts]:
    problems = [
        Problem(**{"n_head": 12, "head_dim": d, "seq_len": 4096, "dtype": "bfloat16"} | problem)  # type: ignore[arg-type]
        for d in head_dims
    ]
    return survey([find_kernel("attention", kernel)], problems, gpus, Options(cache=AnalysisCache()))


def rounded_up(head_dim: int) -> int:
    """To a multiple of 16, 240 excepted, which is computed as 256."""
    width = -(-head_dim // 16) * 16
    return 256 if width == 240 else width


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("causal", "head_dims"), [(True, CAUSAL_HEAD_DIMS), (False, UNMASKED_HEAD_DIMS)])
def test_forward_is_as_wide_as_said_spills_nothing_and_loads_16_bytes(causal: bool, head_dims: tuple[int, ...]) -> None:
    for facts in compiled("triton_exact", head_dims, list(GPUS), causal=causal):
        head_dim = facts.problem.head_dim  # type: ignore[union-attr]
        where = f"head_dim {head_dim} on {facts.gpu}"
        assert facts.status == "ok", (where, facts.reason)
        width = rounded_up(head_dim)
        assert (facts.computed_width_qk, facts.computed_width_pv) == (width, width), where
        if head_dim <= WIDEST_WITHOUT_SPILLS:
            assert (facts.spill_store_bytes, facts.spill_load_bytes) == (0, 0), where
        copies = loads(facts)
        # A tail 16 wide and 64 long has 8 bytes for each of 256 threads.
        assert set(copies) <= {8, 16}, where
        # By descriptors: K and V, each in as many copies as the width has parts, and no load by address beside them.
        assert copies.get(16, 0) >= copies.get(8, 0) if copies else facts.tma_copies, where
        instructions = {use.instruction.partition(".")[0] for use in facts.mma or []}
        assert instructions == {MATRIX_INSTRUCTIONS.get(GPUS[facts.gpu], "HMMA")}, where


def loads(facts: Facts) -> Counter[int]:
    """Loads and copies of the main loop: bytes a thread -> instructions."""
    counts: Counter[int] = Counter()
    for found in (facts.global_load_bytes, facts.async_copy_bytes):
        counts.update({int(width): n for width, n in (found or {}).items()})
    return counts


@pytest.mark.parametrize("gpu", ["rtx_4090", "h200_sxm"])
def test_only_blocks_on_the_diagonal_are_masked(gpu: str) -> None:
    causal, unmasked = (compiled("triton_exact", (72,), [gpu], causal=causal)[0] for causal in (True, False))
    assert causal.loop_instructions is not None
    assert unmasked.loop_instructions is not None
    # The loop over blocks below the diagonal is the one of no mask. A mask would cost a select a score, at least.
    chosen = tiles.tile(int(find_gpu(gpu).compute_capability.replace(".", "")), 80, "forward")
    scores_per_thread = chosen.block_m * chosen.block_n // (32 * chosen.warps)
    assert abs(causal.loop_instructions - unmasked.loop_instructions) < scores_per_thread / 2


@pytest.mark.parametrize("name", VARIANTS)
def test_the_variants_compile_everywhere(name: str) -> None:
    for facts in compiled(name, (72,), list(GPUS)):
        assert facts.status == "ok", (facts.gpu, facts.reason)
        assert facts.computed_width_qk == VARIANTS[name], facts.gpu


def test_no_triton_kernel_is_left_uncompiled() -> None:
    ours = {k.name for k in kernels() if k.launches and k.file.parent.name == "andrea_kernels"}
    assert ours == {"triton_exact", *VARIANTS, *test_projection_compile.KERNELS}
    assert {int(cc.replace(".", "")) for cc in GPUS.values()} == set(test_projection_compile.SHARED_MEMORY)


def test_what_sets_the_variants_apart_on_an_rtx_4090() -> None:
    exact, padded, scalar = (
        compiled(name, (72,), ["rtx_4090"])[0] for name in ("triton_exact", "triton_padded", "triton_scalar_loads")
    )
    assert (exact.computed_width_qk, padded.computed_width_qk, scalar.computed_width_qk) == (80, 128, 80)
    assert exact.mma_efficiency == 72 / 80
    assert padded.mma_efficiency == 72 / 128
    assert set(scalar.global_load_bytes or {}) == {"2"}
    # Where head_dim is a multiple of 16, Triton needs no hint.
    (aligned,) = compiled("triton_scalar_loads", (64,), ["rtx_4090"])
    assert set(aligned.async_copy_bytes or {}) == {"16"}


def test_backward_compiles_to_three_launches_as_wide_as_said() -> None:
    found = compiled("triton_exact", (72,), ["rtx_4090", "h200_sxm"], direction="backward")
    assert [f.kernel for f in found[:3]] == ["triton_exact/delta", "triton_exact/dkv", "triton_exact/dq"]
    for facts in found:
        assert facts.status == "ok", facts.reason
        if not facts.kernel.endswith("delta"):
            assert facts.computed_width_qk == 80
            assert facts.mma_efficiency == 72 / 80
            assert min(loads(facts), default=16) >= 4, facts.kernel  # 4: log-sums, deltas, a tail 16 wide


@pytest.mark.parametrize("gpu", ["rtx_4090", "h200_sxm"])
def test_backward_is_deterministic_as_it_has_no_atomics(gpu: str) -> None:
    # Query heads share key heads: where gradients of several blocks might be added up.
    problem = Problem(n_head=12, n_kv_head=4, head_dim=72, seq_len=4096, dtype="bfloat16", direction="backward")
    capability = find_gpu(gpu).compute_capability
    made: list[TritonLaunch] = find_kernel("attention", "triton_exact").launches(problem, capability)  # type: ignore[misc]
    assert [launch.part for launch in made] == ["delta", "dkv", "dq"]
    for launch in made:
        request = Request(launch.function, launch.signature, launch.constexprs, launch.num_warps, launch.num_stages,
                          int(capability.replace(".", "")), launch.divisible_by_16)  # fmt: skip
        code = listing(compile_here(request).cubin)
        assert "STG" in code, launch.part
        assert not ATOMICS.findall(code), launch.part


def test_backward_compiles_where_three_parts_need_most() -> None:
    # 112 is 64 + 32 + 16 wide: on 10.0 a tile of 64 x 128 would need 672 columns of tensor memory, of 512.
    for facts in compiled("triton_exact", (112,), list(GPUS), direction="backward"):
        assert facts.status == "ok", (facts.kernel, facts.gpu, facts.reason)
        assert min(loads(facts), default=16) >= 4, (facts.kernel, facts.gpu)


def test_backward_on_10_0_spills_nothing_beyond_128_either() -> None:
    for facts in compiled("triton_exact", (176, 256), ["b200"], direction="backward"):
        where = f"{facts.kernel} at {facts.problem.head_dim}"  # type: ignore[union-attr]
        assert (facts.status, facts.spill_store_bytes) == ("ok", 0), where


@pytest.mark.parametrize("dtype", ["float32", "tf32"])
def test_float32_compiles(dtype: str) -> None:
    (facts,) = compiled("triton_exact", (40,), ["rtx_4090"], dtype=dtype)
    assert facts.status == "ok", facts.reason
    # Exact products have no matrix instruction; tf32 ones have.
    assert bool(facts.mma) == (dtype == "tf32")


def test_parts_are_head_dim_rounded_up_to_16() -> None:
    assert tiles.parts(72) == ((0, 64), (64, 16))
    assert tiles.parts(112) == ((0, 64), (64, 32), (96, 16))
    assert tiles.parts(72, padded=True) == ((0, 128),)
    for head_dim in range(1, 257):
        split = tiles.parts(head_dim)
        assert tiles.computed_width(head_dim) == rounded_up(head_dim)
        assert all(width & (width - 1) == 0 for _, width in split)
        assert [start for start, _ in split] == [sum(w for _, w in split[:i]) for i in range(len(split))]


def test_every_architecture_and_width_has_a_tile() -> None:
    for cc, width, direction in itertools.product((80, 86, 87, 89, 90, 100, 103, 120, 121), range(16, 257, 16),
                                                  ("forward", "dq", "dkv")):  # fmt: skip
        found = tiles.tile(cc, width, direction)
        if direction == "forward":
            assert min(found.block_m, found.block_n) >= 32
            assert max(found.block_m, found.block_n) >= 64
    # Unknown ones take the nearest lower architecture's.
    assert tiles.tile(103, 64, "forward") == tiles.tile(100, 64, "forward")
    assert tiles.tile(87, 64, "forward") == tiles.tile(80, 64, "forward")


def test_a_description_is_what_a_launch_would_be() -> None:
    """Types and specialisation of TritonLaunch are those that Triton itself finds for the tensors of a Problem."""
    torch = pytest.importorskip("torch", reason="the package torch is not installed")
    import triton.language as tl
    from andrea_kernels.flash import function, launch
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.runtime.jit import create_function_from_signature

    for variant, head_dim in itertools.product(("exact", "padded", "scalar_loads", "per_head_block"), (64, 72)):
        problem = Problem(batch=2, n_head=4, n_kv_head=2, head_dim=head_dim, seq_len=48, dtype="bfloat16")
        q, out = (torch.empty(2, 4, 48, head_dim, dtype=torch.bfloat16) for _ in range(2))
        k, v = (torch.empty(2, 2, 48, head_dim, dtype=torch.bfloat16) for _ in range(2))
        call = function.describe({"q": q, "k": k, "v": v, "out": out}, causal=True, scale=head_dim**-0.5,
                                 variant=variant, precision="ieee")  # fmt: skip
        made = launch.forward(call, 89)
        tensors = {"q": q, "k": k, "v": v, "out": out, "log_sum": torch.empty(2, 4, 48)}
        binder = create_function_from_signature(
            made.function.signature, made.function.params, CUDABackend(GPUTarget("cuda", 89, 32))
        )
        constants = {n: tl.constexpr(c) if n.endswith("_row") else c for n, c in made.constants.items()}
        _, found, _ = binder(*[tensors[n] for n in made.tensors], **made.scalars, **constants)
        described: TritonLaunch = find_kernel("attention", f"triton_{variant}").launches(problem, "8.9")[0]  # type: ignore[misc]
        assert described.grid == made.grid
        for name, (kind, hint) in zip(made.function.arg_names, found, strict=True):
            if kind == "constexpr":
                assert described.constexprs[name] == getattr(hint, "value", hint), name
            else:
                assert described.signature[name] == kind, name
                assert (name in described.divisible_by_16) == (hint == "D"), name


def test_grids_and_compute_capabilities() -> None:
    assert all(find_gpu(name).compute_capability == cc for name, cc in GPUS.items())
    problem = Problem(batch=3, n_head=12, head_dim=64, seq_len=1000, dtype="bfloat16")
    (exact,) = find_kernel("attention", "triton_exact").launches(problem, "8.9")  # type: ignore[misc]
    (per_head,) = find_kernel("attention", "triton_per_head_block").launches(problem, "8.9")  # type: ignore[misc]
    assert exact.grid == (8, 12, 3)
    assert per_head.grid == (1, 12, 3)
    assert exact.useful_mma_flops == 4 * 128 * 64 * 64
