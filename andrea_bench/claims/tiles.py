"""The statements about head_dim 64, 32 and 72 and the tensor-core tile: from machine code, and from the rules by
which torch's backends and other libraries take a head_dim."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from andrea_bench.claims.finding import Claim, Evidence, Outcome, claim
from andrea_bench.errors import Unsupported
from andrea_bench.inspect import Facts
from andrea_bench.predict.families import TILED
from andrea_bench.problem import Problem
from andrea_bench.report.rows import GroupRows

HEAD_DIMS = (64, 32, 72)
KERNELS = ("triton_exact", "triton_padded", "triton_scalar_loads")
DTYPES = ("bfloat16", "float16", "tf32", "float32")
# What a backend is asked with, and the source of its rule (see predict/families.py for the widths).
BACKENDS: Mapping[str, tuple[str, str, str]] = {
    "torch SDPA flash": (
        "sdpa_flash",
        "8.0",
        "flash-attention 0251105a, static_switch.h:90: 32, 64, 96, 128, 192, 256",
    ),
    "FlashAttention-3": ("flash_attention_3", "9.0", "flash-attention 0251105a, hopper/flash_api.cpp:492: from 64"),
    "torch SDPA cuDNN": ("sdpa_cudnn", "9.0", "PyTorch 001f694a, sdp_utils.cpp: head_dim a multiple of 8"),
    "torch SDPA efficient": ("sdpa_efficient", "8.0", "xformers 7a3838f3, generate_kernels.py:117: 64, 128, 65536"),
    "FlexAttention": ("flex", "8.0", "torch 2.14.1, inductor kernel/flex/common.py:459: next power of two"),
    "FlashInfer": ("flashinfer", "8.0", "FlashInfer, include/flashinfer/utils.cuh:197: 64, 128, 256, 512 only"),
}
# Where it was seen that a head_dim moved a user to another backend.
VLLM = Evidence(
    on="vLLM",
    how="published",
    finding="holds",
    text="head size 72 (a SigLIP tower) was refused by its FlashAttention-2 backend and ran on xFormers instead",
    source="vllm-project/vllm#12656",
)
FLASHINFER_WIDTHS = (64, 128, 256, 512)
NEEDS = "triton, to compile the kernels (and its tools)"


def problem(head_dim: int, dtype: str) -> Problem:
    """What the kernels are compiled for: andrea-120m's layer with heads of that width."""
    return Problem(batch=1, seq_len=1024, n_head=12, head_dim=head_dim, dtype=dtype)  # type: ignore[arg-type]


def tile_claims(facts: Sequence[Facts], groups: Sequence[GroupRows]) -> list[Claim]:
    """One Claim for each head_dim."""
    fits: dict[int, tuple[Callable[[Facts], tuple[Outcome, str]], str]] = {
        64: (_fits_exactly, "dtype: IEEE float32 uses no tensor core at all; in the others it fits"),
        32: (_underuses, "kernel, dtype and GPU: where no wider tile is computed and exp is not the limit, nothing "
                         "is under-used"),
        72: (_does_not_fit, "the first half holds wherever tensor cores are used; the second depends on the backend: "
                            "most compute it wider (80, 96 or 128) in the same kernel, some refuse it"),
    }  # fmt: skip
    made = []
    for head_dim, (judge, depends) in fits.items():
        evidence = [_compiled(one, judge) for one in facts if one.problem and one.problem.head_dim == head_dim]
        evidence += [_backend(name, head_dim) for name in BACKENDS]
        evidence += [VLLM] if head_dim == 72 else []
        evidence += _measured(groups, head_dim)
        made.append(claim(f"tile-{head_dim}", evidence, depends_on=depends, needs=NEEDS))
    return made


def _width(facts: Facts) -> int | None:
    widths = [one for one in (facts.computed_width_qk, facts.computed_width_pv) if one]
    return max(widths, default=None)


def _fits_exactly(facts: Facts) -> tuple[Outcome, str]:
    if not facts.mma:
        return "fails", "no tensor-core instruction"
    exact = _width(facts) == 64
    return ("holds" if exact else "fails"), "computed as it is" if exact else f"computed {_width(facts)} wide"


def _underuses(facts: Facts) -> tuple[Outcome, str]:
    """Fits, and the tensor cores wait: for exp or another unit, or compute more than 32."""
    if not facts.mma:
        return "fails", "no tensor-core instruction"
    if _width(facts) != 32:
        return "holds", f"computed {_width(facts)} wide"
    waits = facts.bound_by not in ("tensor", None)
    return ("holds" if waits else "fails"), f"computed 32 wide, tensor cores {'wait' if waits else 'are the limit'}"


def _does_not_fit(facts: Facts) -> tuple[Outcome, str]:
    if not facts.mma:
        return "fails", "no tensor-core instruction, so no tile to fit"
    width = _width(facts)
    waste = f", {1 - 72 / width:.0%} of it wasted" if width else ""
    return ("holds" if width != 72 else "fails"), f"computed {width} wide{waste}"


def _compiled(facts: Facts, judge: Callable[[Facts], tuple[Outcome, str]]) -> Evidence:
    assert facts.problem is not None
    on = f"{facts.kernel}, {facts.gpu}, {facts.problem.dtype}"
    if facts.status != "ok":
        return Evidence(on=on, how="compiled", finding="not_testable_here", text=f"{facts.status}: {facts.reason}")
    outcome, text = judge(facts)
    loads = sorted({*(facts.global_load_bytes or {}), *(facts.async_copy_bytes or {})}, key=int)
    numbers: dict[str, Any] = {
        name: getattr(facts, name)
        for name in ("computed_width_qk", "computed_width_pv", "mma_efficiency", "registers_per_thread",
                     "spill_store_bytes", "spill_load_bytes", "global_load_bytes", "async_copy_bytes", "bound_by")
    }  # fmt: skip
    if loads:
        text += f"; loads of {', '.join(loads)} bytes"
    if facts.spill_store_bytes:
        text += f"; {facts.spill_store_bytes} bytes spilled"
    return Evidence(on=on, how="compiled", finding=outcome, text=f"{text}; bound by {facts.bound_by}", numbers=numbers)


def _backend(name: str, head_dim: int) -> Evidence:
    """What a library's rule makes of a head_dim, in 16-bit types."""
    kernel, capability, source = BACKENDS[name]
    # Refused: another backend is needed, which is what tile-72 says, and no fit.
    refused: Outcome = "holds" if head_dim == 72 else "fails"
    if name == "FlashInfer" and head_dim not in FLASHINFER_WIDTHS:
        return Evidence(on=name, how="published", finding=refused, text=f"refuses head_dim {head_dim}", source=source)
    try:
        width = TILED[kernel].computed_width(head_dim, capability)
    except Unsupported as error:
        return Evidence(on=name, how="published", finding=refused, text=str(error), source=source)
    outcome: Outcome
    if head_dim == 72:
        outcome = "fails"  # it stays in its own kernel, so no fallback is forced
        text = f"no fallback: computed {width} wide by the same kernel ({width / 72 - 1:.0%} more than 72)"
    else:
        outcome = "holds" if (width == head_dim) == (head_dim == 64) else "fails"
        text = f"computed {width} wide"
    return Evidence(on=name, how="published", finding=outcome, text=text, numbers={"width": width}, source=source)


def _measured(groups: Sequence[GroupRows], head_dim: int) -> list[Evidence]:
    """Beside the statement: what a FLOP costs on this machine's own kernels, against head_dim 64."""
    timed = {
        g.problem.head_dim: g for g in groups if g.suite == "attention" and g.row("sdpa") and g.problem.n_head == 12
    }
    if head_dim == 64 or head_dim not in timed or 64 not in timed:
        return []
    one, other = timed[head_dim].row("sdpa"), timed[64].row("sdpa")
    if one is None or other is None or not one.tflops or not other.tflops:
        return []
    share = one.tflops / other.tflops
    return [
        Evidence(
            on=f"{timed[head_dim].device}, {timed[head_dim].problem.label()}",
            how="measured",
            finding="not_testable_here",
            text=f"no tensor core here; torch's attention does {share:.2f} of the FLOP/s of head_dim 64",
            numbers={"rate_over_head_dim_64": share},
        )
    ]
