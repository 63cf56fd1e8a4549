"""Every torch kernel against the float64 reference, on a CPU: outputs and gradients, masks, layouts, shapes."""

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import torch
from andrea_kernels.heads import packed_views
from torch import Tensor

from andrea_bench.errors import Unsupported
from andrea_bench.kernel import Kernel, find_kernel, kernels
from andrea_bench.measure import reference
from andrea_bench.measure.call import Prepared
from andrea_bench.measure.check import Expected, expect
from andrea_bench.measure.inputs import TORCH_DTYPES, make_inputs
from andrea_bench.measure.profile import peak_memory_bytes, selected_backend
from andrea_bench.problem import Problem

SEED = 7
COMPILED = ("compiled", "flex")  # slow to build: tried on one Problem each
TORCH_KERNELS = [k for k in kernels() if k.modules == ("torch",) and k.name not in COMPILED]
NOT_ON_A_CPU = ("sdpa_efficient", "sdpa_cudnn")
RUNNING = [k for k in TORCH_KERNELS if k.name not in NOT_ON_A_CPU]

PROBLEMS = {
    "plain": Problem(batch=2, seq_len=17, d_model=40, n_head=3, head_dim=16),
    "full, GQA": Problem(batch=2, seq_len=12, n_head=6, n_kv_head=2, head_dim=24, causal=False),
    "odd head_dim, MQA, backward": Problem(
        batch=2, seq_len=33, d_model=48, n_head=4, n_kv_head=1, head_dim=65, direction="forward_backward"
    ),
    "bfloat16, GQA, backward": Problem(
        seq_len=20, n_head=6, n_kv_head=3, head_dim=16, dtype="bfloat16", direction="backward"
    ),
    "float16, full, backward": Problem(
        batch=2, seq_len=16, n_head=2, head_dim=72, dtype="float16", causal=False, direction="backward"
    ),
    "more keys, GQA, backward": Problem(
        batch=2, seq_len=5, kv_len=19, n_head=4, n_kv_head=2, head_dim=8, direction="backward"
    ),
    "more keys, full": Problem(seq_len=7, kv_len=19, n_head=2, head_dim=8, causal=False),
    "rows without keys, backward": Problem(
        batch=2, seq_len=20, kv_len=9, n_head=4, n_kv_head=2, head_dim=8, direction="backward"
    ),
    "rows without keys, bfloat16": Problem(seq_len=20, kv_len=9, n_head=2, head_dim=8, dtype="bfloat16"),
    "decode": Problem(batch=2, seq_len=1, kv_len=100, n_head=4, n_kv_head=2, head_dim=16, direction="decode"),
    "one token, one head": Problem(seq_len=1, n_head=1, head_dim=1, direction="backward"),
}


@cache
def inputs_of(op: str, problem: Problem) -> dict[str, Tensor]:
    return make_inputs(op, problem, device="cpu", seed=SEED)


@cache
def expected_of(op: str, part: str | None, problem: Problem) -> Expected:
    return expect(op, part, problem, inputs_of(op, problem), seed=SEED)


def prepare(kernel: Kernel, problem: Problem) -> Prepared:
    return Prepared(kernel, problem, inputs_of(kernel.op, problem), seed=SEED)


def assert_right(kernel: Kernel, problem: Problem) -> None:
    expected = expected_of(kernel.op, kernel.part, problem)
    outputs, gradients = prepare(kernel, problem).outputs_and_gradients()
    assert (gradients is None) == (expected.gradients is None)
    assert {o.dtype for o in outputs} == {TORCH_DTYPES[problem.dtype]}, "no silent cast"
    assert expected.error(outputs, gradients) <= expected.tolerance


def identify(kernel: Kernel) -> str:
    return f"{kernel.op}-{kernel.name}"


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("kernel", TORCH_KERNELS, ids=identify)
def test_kernel_equals_the_float64_reference(kernel: Kernel, name: str) -> None:
    problem = PROBLEMS[name]
    if kernel.name in NOT_ON_A_CPU:
        with pytest.raises(Unsupported, match="for a CPU; torch: No viable backend"):
            prepare(kernel, problem)
    elif kernel.op in ("layout", "layer") and problem.kv_len != problem.seq_len:
        assert f"not {problem.kv_len}" in (kernel.unsupported(problem, "cpu") or "")
    else:
        assert kernel.unsupported(problem, "cpu") is None
        assert_right(kernel, problem)


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_kernels_equal_the_float64_reference(name: str) -> None:
    kernel = find_kernel("attention", name)
    problem = Problem(seq_len=12, kv_len=40, n_head=4, n_kv_head=2, head_dim=65)
    if reason := kernel.unsupported(problem, "cpu"):
        pytest.skip(reason)
    assert_right(kernel, problem)


def test_flex_refuses_backward_on_a_cpu_and_narrow_heads_on_a_gpu() -> None:
    flex = find_kernel("attention", "flex")
    problem = Problem(seq_len=16, n_head=2, head_dim=8, direction="backward")
    assert "no backward pass" in (flex.unsupported(problem, "cpu") or "")
    assert "at least 16, not 8" in (flex.unsupported(problem, "cuda") or "")


def test_compiled_kernels_say_that_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    for name in COMPILED:
        reason = find_kernel("attention", name).unsupported(PROBLEMS["plain"], "cpu")
        assert reason is not None
        assert "there is no no-such-compiler" in reason


# ---- the checks have teeth ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("problem", "wrong"),
    [
        (Problem(seq_len=64, n_head=2, head_dim=16), {}),
        (Problem(seq_len=48, n_head=2, head_dim=16, dtype="bfloat16"), {}),
        (Problem(seq_len=16, kv_len=48, n_head=2, head_dim=16), {"is_causal": True}),
        (Problem(seq_len=16, n_head=2, head_dim=16, causal=False), {"is_causal": True}),
    ],
    ids=["mask dropped", "mask dropped in bfloat16", "aligned top-left", "mask not asked for"],
)
def test_wrong_mask_is_found(problem: Problem, wrong: dict[str, Any]) -> None:
    q, k, v = inputs_of("attention", problem).values()
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, **wrong)
    expected = expected_of("attention", None, problem)
    assert expected.error((out,), None) > 5 * expected.tolerance


def block(packed: Tensor, problem: Problem) -> tuple[Tensor, ...]:
    return packed_views(packed, problem)


def per_head(packed: Tensor, problem: Problem) -> tuple[Tensor, ...]:
    """Columns as NeoX and BLOOM store them: q, k, v of the first head, then of the next."""
    return packed.unflatten(-1, (problem.n_head, 3, problem.head_dim)).permute(3, 0, 2, 1, 4).unbind(0)


def per_kv_group(packed: Tensor, problem: Problem) -> tuple[Tensor, ...]:
    """Columns as Falcon stores them: the query heads of a group, its K head, its V head, then the next group."""
    group = problem.n_head // problem.n_kv_head
    heads = packed.unflatten(-1, (problem.n_kv_head, group + 2, problem.head_dim)).transpose(1, 2)
    q = heads[..., :group, :].transpose(2, 3).flatten(1, 2)
    return q, heads[..., group, :], heads[..., group + 1, :]


Split = Callable[[Tensor, Problem], tuple[Tensor, ...]]
PYTHIA_1B = Problem(seq_len=8, d_model=64, n_head=8, head_dim=256)
FALCON_40B = Problem(seq_len=8, d_model=64, n_head=128, n_kv_head=8, head_dim=64)


@pytest.mark.parametrize(
    ("problem", "split", "right"),
    [
        (PYTHIA_1B, block, True),
        (PYTHIA_1B, per_head, False),
        (PYTHIA_1B, per_kv_group, False),
        (FALCON_40B, block, True),
        (FALCON_40B, per_kv_group, False),
    ],
)
def test_fused_projection_is_laid_out_in_blocks(problem: Problem, split: Split, right: bool) -> None:
    """All Q heads, then all K, then all V; a split that takes another layout has the right shapes only."""
    inputs = inputs_of("qkv_projection", problem)
    packed = prepare(find_kernel("qkv_projection", "fused_qkv"), problem).work.run()
    expected = expected_of("qkv_projection", None, problem)
    outputs = split(packed, problem)
    assert [o.shape for o in outputs] == [o.shape for o in expected.outputs]
    assert (expected.error(outputs, None) <= expected.tolerance) == right

    # The same from separate projections, one head at a time, with nothing fused.
    columns = inputs["w_qkv"].double().split(problem.head_dim, dim=1)
    separate = torch.stack([inputs["x"].double() @ w for w in columns], dim=1)
    counts = (problem.n_head, problem.n_kv_head, problem.n_kv_head)
    same = all(
        reference.relative_error(mine, theirs) < 1e-5
        for mine, theirs in zip(outputs, separate.split(counts, dim=1), strict=True)
    )
    assert same == right


def test_non_finite_never_passes_as_equal() -> None:
    whole, broken = torch.ones(4), torch.tensor([1.0, float("nan"), 1.0, 1.0])
    assert reference.relative_error(broken, whole) == float("inf")
    assert reference.relative_error(whole, broken) == float("inf")
    assert reference.relative_error(broken, broken) == float("inf")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ["per_head_loop", "eager", "sdpa", "sdpa_math", "sdpa_flash"])
def test_rows_without_keys_give_zero(name: str, dtype: Any) -> None:
    """With seq_len 8 and kv_len 4, bottom-right, the first four queries see no key."""
    problem = Problem(seq_len=8, kv_len=4, n_head=2, head_dim=8, dtype=dtype, direction="forward_backward")
    (out,), gradients = prepare(find_kernel("attention", name), problem).outputs_and_gradients()
    assert torch.equal(out[:, :, :4], torch.zeros(1, 2, 4, 8, dtype=out.dtype))
    assert out[:, :, 4:].abs().amin(-1).min() > 0
    assert gradients is not None
    assert all(g.isfinite().all() for g in gradients)
    assert gradients[0][:, :, :4].abs().max() == 0


# ---- which backend ran ----------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "backend"), [("sdpa_math", "math"), ("sdpa_flash", "flash")])
@pytest.mark.parametrize(
    "problem",
    [
        Problem(seq_len=8, n_head=32, n_kv_head=4, head_dim=512),
        Problem(seq_len=8, n_head=2, head_dim=63),
        Problem(seq_len=8, kv_len=20, n_head=2, head_dim=64, dtype="bfloat16"),
    ],
    ids=Problem.label,
)
def test_forced_backend_is_the_one_that_ran(name: str, backend: str, problem: Problem) -> None:
    assert selected_backend(prepare(find_kernel("attention", name), problem).call, "cpu") == backend


def switches() -> Iterator[bool]:
    yield torch.backends.cuda.math_sdp_enabled()
    yield torch.backends.cuda.flash_sdp_enabled()
    yield torch.backends.cuda.mem_efficient_sdp_enabled()
    yield torch.backends.cuda.cudnn_sdp_enabled()


def test_forcing_a_backend_leaves_no_trace() -> None:
    before = list(switches())
    problem = Problem(seq_len=8, n_head=2, head_dim=63)
    prepare(find_kernel("attention", "sdpa_math"), problem).call()
    with pytest.raises(Unsupported):
        prepare(find_kernel("attention", "sdpa_efficient"), problem)
    assert list(switches()) == before
    # torch alone would take flash here, as it does again.
    assert selected_backend(prepare(find_kernel("attention", "sdpa"), problem).call, "cpu") == "flash"


def test_forced_backend_names_torchs_reason_after_ours() -> None:
    from andrea_kernels import torch_sdpa

    problem = Problem(seq_len=8, kv_len=4, n_head=2, head_dim=64)
    warned = [
        "Flash attention kernel not used because: (Triggered internally at sdp_utils.cpp:1.)",
        "Expected query, key and value to all be of dtype: {Half, BFloat16}. (Triggered internally at x.cpp:2.)",
    ]
    error = RuntimeError("No available kernel. Aborting execution.")
    assert torch_sdpa._reason(problem, "flash", "cuda", warned, error) == (
        "flash does not do float32; does bfloat16, float16; torch: Expected query, key and value to all be of "
        "dtype: {Half, BFloat16}.; No available kernel. Aborting execution."
    )
    half = problem.replace(dtype="float16")
    assert torch_sdpa._reason(half, "flash", "cuda", [], error).startswith("causal with kv_len below seq_len")


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("no memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_forced_backend_that_fails_is_not_called_unsupported(
    error: RuntimeError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", fail)
    with pytest.raises(RuntimeError) as raised:
        prepare(find_kernel("attention", "sdpa_flash"), PROBLEMS["plain"])
    assert raised.value is error


def test_group_of_six_runs_or_says_why_not() -> None:
    """12 query heads over 2 KV heads are legal, whatever one kernel makes of them."""
    problem = Problem(seq_len=1, kv_len=4096, n_head=12, n_kv_head=2, head_dim=16, direction="decode")
    for name in ("per_head_loop", "eager", "sdpa", "sdpa_math", "sdpa_flash"):
        assert_right(find_kernel("attention", name), problem)
    with pytest.raises(Unsupported, match="cudnn"):
        prepare(find_kernel("attention", "sdpa_cudnn"), problem)


def test_packages_that_are_not_there_are_named() -> None:
    problem = Problem(seq_len=16, n_head=2, head_dim=64, dtype="bfloat16")
    for name in ("flash_attn", "xformers", "flashinfer"):
        kernel = find_kernel("attention", name)
        absent = dataclasses.replace(kernel, modules=("torch", "no_such_package"))
        assert absent.unsupported(problem, "cuda") == ("needs the package no_such_package, which is not installed")
        present = dataclasses.replace(kernel, modules=("torch",))
        assert present.unsupported(problem, "cuda") is None
        assert present.unsupported(problem, "cpu") == "runs on cuda only, not on cpu"


def test_half_only_packages_refuse_float32_instead_of_casting() -> None:
    problem = Problem(seq_len=16, n_head=2, head_dim=64)
    for name in ("flash_attn", "flashinfer"):
        kernel = dataclasses.replace(find_kernel("attention", name), modules=("torch",))
        assert kernel.unsupported(problem, "cuda") == "does not do float32; does bfloat16, float16"


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("flash_attn", {"head_dim": 288}, "at most 256, not 288"),
        ("xformers", {"head_dim": 63}, "rows of a multiple of 16 bytes; head_dim 63 makes them 126"),
        ("xformers", {"kv_len": 8}, "rows that see no key"),
        ("flashinfer", {"head_dim": 72}, "64, 128, 256, not 72"),
        ("flashinfer", {"kv_len": 8}, "rows that see no key"),
        ("flashinfer", {"direction": "backward"}, "does not do direction backward"),
    ],
)
def test_packages_refuse_what_they_can_not_do(name: str, change: dict[str, Any], reason: str) -> None:
    problem = Problem(seq_len=16, n_head=2, head_dim=64, dtype="bfloat16").replace(**change)
    kernel = dataclasses.replace(find_kernel("attention", name), modules=("torch",))
    assert reason in (kernel.unsupported(problem, "cuda") or "")


# ---- what is, and is not, copied ------------------------------------------------------------------------
def run(op: str, name: str, problem: Problem) -> tuple[Any, tuple[Tensor, ...]]:
    work = prepare(find_kernel(op, name), problem).work
    result = work.run()
    return result, work.canonical(result)


def test_fused_projections_are_not_copied() -> None:
    problem = Problem(batch=2, seq_len=6, n_head=4, n_kv_head=2, head_dim=8)
    packed, heads = run("qkv_projection", "fused_qkv", problem)
    assert {h.untyped_storage().data_ptr() for h in heads} == {packed.untyped_storage().data_ptr()}
    assert heads[0].stride() == (6 * 64, 8, 64, 1)
    each, heads = run("qkv_projection", "fused_each", problem)
    assert [h.data_ptr() for h in heads] == [e.data_ptr() for e in each]


def test_layouts_are_what_their_names_say() -> None:
    problem = Problem(batch=2, seq_len=6, n_head=4, n_kv_head=2, head_dim=8)
    copies, _ = run("layout", "split_heads", problem)
    assert all(copy.is_contiguous() for copy in copies)
    for part in ("qk", "attention"):
        for where, contiguous in {"strided": False, "contiguous": True, "copy_then_contiguous": False}.items():
            leaves = prepare(find_kernel("layout", f"{part}_{where}"), problem).work.leaves
            assert leaves is not None
            assert all(leaf.is_contiguous() == contiguous for leaf in leaves)
    for name, copied in {"concat_matmul": True, "strided_matmul": False}.items():
        prepared = prepare(find_kernel("output_projection", name), problem)
        peak = peak_memory_bytes(prepared.call, "cpu")
        out_bytes, heads_bytes = 2 * 6 * 32 * 4, 2 * 6 * 32 * 4
        assert peak is not None
        assert (peak >= out_bytes + heads_bytes) == copied


@pytest.mark.parametrize(
    ("direction", "dtype"),
    [("forward", "float32"), ("forward", "bfloat16"), ("backward", "float32"), ("forward_backward", "bfloat16")],
)
@pytest.mark.parametrize("kernel", RUNNING, ids=identify)
def test_workspace_is_an_upper_estimate(kernel: Kernel, direction: Any, dtype: Any) -> None:
    """What a call holds at its peak is no more than its outputs and what the kernel says it needs."""
    problem = Problem(batch=2, seq_len=128, n_head=4, n_kv_head=2, head_dim=32, direction=direction, dtype=dtype)
    prepared = prepare(kernel, problem)
    peak = peak_memory_bytes(prepared.call, "cpu")
    allowed = problem.min_bytes(kernel.op, kernel.part)
    if kernel.workspace_bytes:
        allowed += kernel.workspace_bytes(problem)
    assert peak is not None
    assert peak <= allowed, f"{peak / allowed:.2f} times what was said"
