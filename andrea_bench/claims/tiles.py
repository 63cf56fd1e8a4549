"""The statements about head_dim 64, 32 and 72 and the tensor-core tile: from machine code, and from the rules by
which torch's backends and other libraries take a head_dim."""

from collections.abc import Callable, Sequence
from typing import Any

from andrea_bench.claims.backends import backend_rules
from andrea_bench.claims.finding import Claim, Evidence, Outcome, claim
from andrea_bench.claims.machine import Measured
from andrea_bench.claims.tile_times import tile_times
from andrea_bench.inspect import Facts
from andrea_bench.problem import Problem

HEAD_DIMS = (64, 32, 72)
KERNELS = ("triton_exact", "triton_padded", "triton_scalar_loads")
DTYPES = ("bfloat16", "float16", "tf32", "float32")
NEEDS = "triton, to compile the kernels (and its tools)"


def problem(head_dim: int, dtype: str) -> Problem:
    """What the kernels are compiled for: andrea-120m's layer with heads of that width."""
    return Problem(batch=1, seq_len=1024, n_head=12, head_dim=head_dim, dtype=dtype)  # type: ignore[arg-type]


def tile_claims(facts: Sequence[Facts], groups: Sequence[Measured]) -> list[Claim]:
    """One Claim for each head_dim."""
    fits: dict[int, tuple[Callable[[Facts], tuple[Outcome, str]], str]] = {
        64: (_fits_exactly, "dtype: IEEE float32 uses no tensor core at all; in the others it fits"),
        32: (_underuses, "kernel, dtype and GPU: where no wider tile is computed and exp is not the limit, nothing "
                         "is under-used"),
        72: (_does_not_fit, "the first half holds wherever tensor cores are used; the second depends on the backend: "
                            "most compute it wider in the same kernel, some refuse it"),
    }  # fmt: skip
    made = []
    for head_dim, (judge, depends) in fits.items():
        evidence = [_compiled(one, judge) for one in facts if one.problem and one.problem.head_dim == head_dim]
        evidence += backend_rules(head_dim)
        evidence += tile_times(groups, head_dim)
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
        return Evidence(on=on, how="compiled", finding="not_testable_here", text=f"{facts.status}: {facts.reason}",
                        numbers={"reason": facts.reason})  # fmt: skip
    outcome, text = judge(facts)
    loads = sorted({*(facts.global_load_bytes or {}), *(facts.async_copy_bytes or {})}, key=int)
    numbers: dict[str, Any] = {"head_dim": facts.problem.head_dim} | {
        name: getattr(facts, name)
        for name in ("computed_width_qk", "computed_width_pv", "mma_efficiency", "registers_per_thread",
                     "spill_store_bytes", "spill_load_bytes", "global_load_bytes", "async_copy_bytes", "bound_by")
    }  # fmt: skip
    if width := _width(facts):
        numbers["width_wasted"] = 1 - facts.problem.head_dim / width
    if loads:
        text += f"; loads of {', '.join(loads)} bytes"
    if facts.spill_store_bytes:
        text += f"; {facts.spill_store_bytes} bytes spilled"
    return Evidence(on=on, how="compiled", finding=outcome, text=f"{text}; bound by {facts.bound_by}", numbers=numbers)
