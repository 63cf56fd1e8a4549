"""`sweep --autotune`: try the tile sizes that a Triton kernel names, and say which row its table should have.

Nothing is chosen at run time: the row is for a person to look at and paste.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from andrea_bench.errors import EnvironmentUnfit
from andrea_bench.kernel import Candidate, Kernel
from andrea_bench.measure.call import Prepared
from andrea_bench.measure.check import expect
from andrea_bench.measure.clock import Clock
from andrea_bench.measure.inputs import make_inputs
from andrea_bench.plan import Group, Plan
from andrea_bench.problem import Problem
from andrea_bench.statistics import median

SAMPLES = 25
WARMUP = 3


class Trial(msgspec.Struct, kw_only=True):
    """One candidate's time. median_us is None with the reason where it did not run or was wrong."""

    kernel: str
    problem: Problem
    part: str | None
    key: str
    row: str
    median_us: float | None = None
    reason: str | None = None


def compute_capability(device: str) -> str:
    """As in "9.0". Raises EnvironmentUnfit where there is no such GPU."""
    import torch

    if not device.startswith("cuda") or not torch.cuda.is_available():
        raise EnvironmentUnfit(
            "--autotune times tiles on a GPU, and there is none here; inspect compares them compiled"
        )
    major, minor = torch.cuda.get_device_capability(device)
    return f"{major}.{minor}"


def autotune(plan: Plan, clock: Clock, capability: str) -> Iterator[Trial]:
    """Try every candidate of every kernel that names some, on each Problem of the plan. A candidate that is
    wrong, needs too much memory or does not compile has a reason instead of a time."""
    for group in plan.groups:
        for cell in group.cells:
            if cell.status is None and cell.kernel.candidates is not None:
                for candidate in cell.kernel.candidates(group.problem, capability):
                    yield _try(cell.kernel, group, candidate, clock, plan)


def _try(kernel: Kernel, group: Group, candidate: Candidate, clock: Clock, plan: Plan) -> Trial:
    trial = Trial(
        kernel=kernel.name, problem=group.problem, part=candidate.part, key=str(candidate.key), row=candidate.row
    )
    seed = plan.protocol.seed
    try:
        inputs = make_inputs(kernel.op, group.problem, device=plan.device, seed=seed)
        with candidate.use():
            prepared = Prepared(kernel, group.problem, inputs, seed=seed)
            expected = expect(kernel.op, kernel.part, group.problem, inputs, seed=seed)
            error = expected.error(*prepared.outputs_and_gradients())
            if not error <= expected.tolerance:
                trial.reason = f"wrong: relative error {error:.2e}, tolerance {expected.tolerance:.2e}"
                return trial
            call = clock.prepare(prepared.call)
            samples = [clock.sample(call)[0] for _ in range(WARMUP + SAMPLES)][WARMUP:]
    except Exception as error:
        trial.reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return trial
    trial.median_us = median(samples)
    return trial


def best(trials: list[Trial]) -> list[Trial]:
    """The fastest trial of each kernel, Problem, part and key."""
    fastest: dict[tuple[Any, ...], Trial] = {}
    for trial in trials:
        place = (trial.kernel, trial.problem, trial.part, trial.key)
        if trial.median_us is None:
            continue
        present = fastest.get(place)
        if present is None or present.median_us is None or trial.median_us < present.median_us:
            fastest[place] = trial
    return list(fastest.values())
