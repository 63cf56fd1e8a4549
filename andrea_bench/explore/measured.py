"""Measured times from a Run, in the place of predicted ones."""

import itertools
from collections.abc import Iterable, Sequence

import msgspec

from andrea_bench.axes import AxisRequest
from andrea_bench.errors import BadInput
from andrea_bench.explore.choice import Choice, Timing
from andrea_bench.explore.splits import LEAST_HEAD_DIM, MOST_HEAD_DIM, Candidates, of_one_gpu
from andrea_bench.hardware import Gpu, match_device_name
from andrea_bench.plan import Plan, available_memory_bytes, make_plan
from andrea_bench.problem import Problem
from andrea_bench.protocol import Protocol
from andrea_bench.record import Record, RunHead
from andrea_bench.statistics import median, median_interval

# The kernels that stand for each part of a Choice: the layer without copies, as the predicted one.
PARTS = {
    "qkv_projection": "fused_qkv",
    "output_projection": "strided_matmul",
    "layer": "five_steps_strided",
}
# The attention kernel within five_steps_strided.
LAYER_ATTENTION = "sdpa"


def run_gpu(head: RunHead) -> Gpu | None:
    """The GPU of the catalogue that a Run was measured on; None: a CPU, or a GPU that is not in it."""
    name = (head.environment.get("gpu") or {}).get("name")
    return match_device_name(name) if name else None


def refuse_other_device(head: RunHead, folder: str, gpu: Gpu) -> None:
    """Raises BadInput where the Run was measured on something else than `gpu`."""
    found = run_gpu(head)
    if found is None or found.name != gpu.name:
        where = head.environment.get("gpu") or {}
        device = where.get("name") or head.environment.get("device") or "cpu"
        raise BadInput(f"{folder}: was measured on {device}, not on {gpu.name}; name a Run of that GPU")


def add_measurements(choices: Iterable[Choice], records: Iterable[Record], kernel: str, gpu: Gpu | None) -> int:
    """Replace times by measured ones where a Record of that Problem and kernel has samples; returns how many
    were found. What can't be true, or was judged invalid, is not ranked, with the reason."""
    wanted = PARTS | {"attention": kernel}
    held = {(_one_layer(r.problem), r.op): r for r in records if wanted.get(r.op) == r.kernel}
    found = 0
    for one in choices:
        ops = [op for op in wanted if op != "layer" or kernel == LAYER_ATTENTION]
        mine = {op: held[_one_layer(one.problem), op] for op in ops if (_one_layer(one.problem), op) in held}
        timed = {op: record for op, record in mine.items() if record.samples_us}
        found += len(timed)
        for op, record in timed.items():
            setattr(one, op, _timing(record, getattr(one, op)))
        _set_layer(one, timed.get("layer"))
        doubts = [f"{op} measured: {doubt}" for op, record in mine.items() if (doubt := _doubt(record, gpu))]
        if doubts:
            one.reason = doubts[0]
        elif one.layer and one.layer.how == "measured":
            # What the model can't do but was measured can be ranked.
            one.reason = None
    return found


def _one_layer(problem: Problem) -> Problem:
    """n_layer multiplies no time, so a Run's may be another."""
    return problem.replace(n_layer=1)


def _set_layer(one: Choice, record: Record | None) -> None:
    """The layer's own measurement; else, where all its parts were measured, their sum."""
    if record is not None and one.layer is not None:
        one.set_layer(one.layer)
        energy = record.counters.get("gpu_energy_per_call") or {}
        if energy.get("joules_per_call") is not None:
            one.energy_joules, one.energy_how = energy["joules_per_call"], "measured"
            one.energy_relative_error = energy.get("relative_error_bound")
        return
    parts = [one.qkv_projection, one.attention, one.output_projection]
    timed = [part for part in parts if part is not None and part.how == "measured"]
    if len(timed) < len(parts):
        return
    time_us = sum(part.time_us for part in timed)
    one.set_layer(
        Timing(
            how="measured",
            time_us=time_us,
            low_us=sum(part.low_us for part in timed),
            high_us=sum(part.high_us for part in timed),
            tflops=one.problem.flops("layer") / time_us / 1e6,
            percent_of_bound=None,
            prediction=one.layer.prediction if one.layer else None,
            doubts=list(dict.fromkeys(doubt for part in timed for doubt in part.doubts)),
        )
    )


def _timing(record: Record, predicted: Timing | None) -> Timing:
    middle = median(record.samples_us)
    low, high = median_interval(record.samples_us)
    bound = predicted.prediction.bound_us if predicted and predicted.prediction else None
    return Timing(
        how="measured",
        time_us=middle,
        low_us=low,
        high_us=high,
        tflops=record.flops / middle / 1e6 if record.flops else None,
        percent_of_bound=100 * bound / middle if bound else None,
        prediction=predicted.prediction if predicted else None,
        doubts=list(record.validity.reasons) if record.validity.verdict != "valid" else [],
    )


def _doubt(record: Record, gpu: Gpu | None) -> str | None:
    """Why a Record must not win: its status, its validity, or a rate that the GPU can't reach."""
    if record.status != "ok":
        return f"{record.status}: {record.reason}" if record.reason else record.status
    if record.validity.verdict == "invalid":
        return "; ".join(record.validity.reasons) or "invalid"
    peak = gpu.peak_tflops(record.problem.dtype) if gpu else None
    rate = record.flops / median(record.samples_us) / 1e6
    if peak and rate > peak:
        return f"implausible: {rate:.3g} TFLOP/s, above the peak of {peak:.3g}"
    return None


def splits_plan(found: Candidates, shares: Sequence[int], kernel: str, device: str, protocol: Protocol) -> Plan:
    """The Plan that measures the parts and the layer of every split, as each of `shares` GPUs computes it.
    Head_dims that no attention kernel is made for are left out. Raises BadInput where that leaves nothing."""
    plan = Plan(device=device, protocol=protocol, groups=[], memory_bytes=available_memory_bytes(device))
    problems: dict[Problem, None] = {}
    for whole, share in itertools.product(found.problems, shares):
        if LEAST_HEAD_DIM <= whole.head_dim <= MOST_HEAD_DIM and whole.n_head % share == 0:
            problems[of_one_gpu(whole, share)] = None
    if not problems:
        raise BadInput(f"no split to measure: none has head_dim from {LEAST_HEAD_DIM} to {MOST_HEAD_DIM}")
    suites = {"layer": [PARTS["qkv_projection"], PARTS["layer"]], "output": [PARTS["output_projection"]]}
    if kernel == LAYER_ATTENTION:
        suites["layer"].append(kernel)
    else:
        suites["attention"] = [kernel]
    for problem in problems:
        axes = {name: [value] for name, value in msgspec.structs.asdict(problem).items()}
        for suite, only in suites.items():
            made = make_plan([suite], AxisRequest(axes=axes), device=device, protocol=protocol, only_kernels=only,
                             memory_bytes=plan.memory_bytes)  # fmt: skip
            plan.groups += made.groups
    return plan
