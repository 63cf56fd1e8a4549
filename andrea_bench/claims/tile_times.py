"""The statements about head_dim 64, 32 and 72 as measured: what a FLOP costs against head_dim 64, and whether torch
or a library left its backend for another."""

from collections.abc import Sequence

from andrea_bench.claims.finding import Evidence, Outcome
from andrea_bench.claims.machine import Measured
from andrea_bench.claims.measured import NO_GAIN, slower
from andrea_bench.report.rows import Row

# What no other kernel is worse for: it takes any head_dim, so that nothing is learnt of tiles.
PLAIN = ("eager", "per_head_loop", "compiled")


def tile_times(groups: Sequence[Measured], head_dim: int) -> list[Evidence]:
    """Measured evidence of every kernel at that head_dim; for 64 its rate alone."""
    attention = [group for group in groups if group.suite == "attention"]
    found = []
    for group in attention:
        if group.problem.head_dim != head_dim:
            continue
        at_64 = next((one for one in attention if _alike(one) == _alike(group) and one.problem.head_dim == 64), None)
        for row in group.rows:
            if row.record.kernel in PLAIN:
                continue
            made = _rate(group, row) if head_dim == 64 else _against_64(group, row, at_64)
            found += [made] if made else []
    return found


def _alike(group: Measured) -> tuple[object, ...]:
    """What must be equal between two head_dims."""
    return group.problem.replace(d_model=1, head_dim=1), group.device


def _on(group: Measured, row: Row) -> str:
    return f"{row.record.kernel}, {group.on}"


def _rate(group: Measured, row: Row) -> Evidence | None:
    """Beside tile-64: the rate, and on a GPU of the catalogue its share of the peak."""
    if row.tflops is None:
        return None
    numbers = {"tflops": row.tflops}
    text = f"{row.tflops:.3g} TFLOP/s"
    gpu = group.machine.gpu
    if gpu and (peak := gpu.peak_tflops(group.problem.dtype)):
        numbers["share_of_peak"] = row.tflops / peak
        text += f", {row.tflops / peak:.0%} of the peak"
    return Evidence(on=_on(group, row), how="measured", finding="not_testable_here", text=text, numbers=numbers)


def _against_64(group: Measured, row: Row, at_64: Measured | None) -> Evidence | None:
    """At 32: whether a FLOP surely costs more than at 64. At 72: whether the backend is still the one of 64."""
    head_dim = group.problem.head_dim
    other = at_64.row(row.record.kernel) if at_64 else None
    if other is None or other.median_us is None or other.low_us is None or other.high_us is None:
        return None
    if row.median_us is None or row.low_us is None or row.high_us is None:
        if row.record.status != "unsupported":
            return None
        finding: Outcome = "holds" if head_dim == 72 else "fails"
        return Evidence(on=_on(group, row), how="measured", finding=finding,
                        text=f"does head_dim 64, refuses {head_dim}: {row.record.reason}",
                        numbers={"head_dim": head_dim, "against": 64, "reason": row.record.reason})  # fmt: skip
    work = head_dim / 64
    value = row.median_us / other.median_us / work
    low, high = row.low_us / other.high_us / work, row.high_us / other.low_us / work
    costs, sure = slower(low, high)
    text = f"a useful FLOP takes {value:.2f} ({low:.2f} to {high:.2f}) of its time at head_dim 64: {sure}"
    numbers = {"time_per_flop_over_head_dim_64": value, "low": low, "high": high, "against": 64, "no_gain": NO_GAIN}
    if head_dim == 72:
        return _same_backend(group, row, other, text, numbers)
    on_tensor_cores = group.on_gpu and group.problem.dtype != "float32"
    outcome: Outcome = costs if on_tensor_cores else "not_testable_here"
    text = text if on_tensor_cores else f"no tensor core at work; {text}"
    return Evidence(on=_on(group, row), how="measured", finding=outcome, text=text, numbers=numbers)


def _same_backend(group: Measured, row: Row, other: Row, text: str, numbers: dict[str, float]) -> Evidence:
    """`sdpa` names its backend; a kernel that is forced to one, or is the project's own, has no other."""
    chosen, of_64 = row.record.selected_backend, other.record.selected_backend
    left = row.record.kernel == "sdpa" and chosen != of_64
    said = f"another backend, {chosen} instead of {of_64}" if left else "no fallback"
    return Evidence(
        on=_on(group, row),
        how="measured",
        finding="holds" if left else "fails",
        text=f"{said}: {text}",
        numbers={**numbers, "backend": chosen, "backend_at_64": of_64},
    )
