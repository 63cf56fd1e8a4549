"""The noise of a machine: A/A of one suite, pairs of processes of the same code, as a gate would see them."""

import time
from collections.abc import Callable

import msgspec

from andrea_bench.calibration import GATE_SECONDS, CellNoise, SuiteNoise
from andrea_bench.errors import EnvironmentUnfit
from andrea_bench.measure.pairs import Pairs, device_name
from andrea_bench.measure.session import KernelStopped, Worker
from andrea_bench.measure.task import SAMPLING, Task
from andrea_bench.measure.turns import BASE, HEAD
from andrea_bench.plan import Group
from andrea_bench.protocol import Protocol
from andrea_bench.statistics import median
from andrea_bench.verdicts import Policy
from andrea_bench.verdicts.judge import paired_logs
from andrea_bench.verdicts.policy import PAIRED_QUANTILE
from andrea_bench.verdicts.replay import replay

ALLOWANCES = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
REPLAYED_GATES = 100
MOST_SAME = 0.9  # share of A/A gates that must end as `same` for an allowance to count as met
MAD_TO_SD = 1.4826  # of a normal distribution
FEWEST_PAIRS = 6  # of which a gate can be replayed

Report = Callable[[str], None]


def suite_noise(groups: list[Group], device: str, protocol: Protocol, seconds: float, report: Report) -> SuiteNoise:
    """A/A of one suite's Groups for about so many seconds: pairs of processes of the code at hand, each with the
    threads of the Protocol. Raises EnvironmentUnfit where no cell could be timed."""
    pairs = Pairs((_starter(device, protocol), _starter(device, protocol)), _tasks(groups, device, protocol))
    began, longest = time.monotonic(), 0.0
    while pairs.count < 2 or time.monotonic() + longest < began + seconds:
        started = time.monotonic()
        try:
            pairs.measure()
        except KernelStopped as stop:
            raise EnvironmentUnfit(f"{stop}; nothing can be calibrated") from None
        longest = max(longest, time.monotonic() - started)
        report(f"{groups[0].suite.name}: {pairs.count} pairs")
        if not pairs.left:
            break
    pair_seconds = (time.monotonic() - began) / max(1, pairs.count)
    cells = cell_noise(pairs)
    if not cells:
        reasons = [record.reason for side in (BASE, HEAD) for record in pairs.records(side) if record.reason]
        raise EnvironmentUnfit(f"suite {groups[0].suite.name}: no cell could be timed: {(reasons or ['held back'])[0]}")
    disturbed = len(pairs.turns.disturbed) / max(1, pairs.turns.count)
    return msgspec.structs.replace(summarise(cells, pairs.count, pair_seconds), disturbed=disturbed)


def cell_noise(pairs: Pairs) -> list[CellNoise]:
    """What each cell that was timed on both sides says, in the order of the Tasks."""
    heads = {record.cell_id: record for record in pairs.records(HEAD)}
    return [
        CellNoise(
            cell_id=base.cell_id,
            kernel=base.kernel,
            problem=base.problem.label(),
            median_us=median(base.samples_us),
            log_ratios=paired_logs(base, head),
        )
        for base in pairs.records(BASE)
        if base.samples_us and (head := heads.get(base.cell_id)) and head.samples_us
    ]


def summarise(cells: list[CellNoise], pairs: int, pair_seconds: float) -> SuiteNoise:
    """What the log ratios of A/A pairs (of one cell at least) mean for a gate of the default budget."""
    gate_pairs = max(2, int(GATE_SECONDS / pair_seconds))
    noise = [cell.log_ratios for cell in cells]
    alarms, least = {}, None
    for allowance in ALLOWANCES if pairs >= FEWEST_PAIRS else ():
        policy = Policy(max_slowdown=allowance)
        found = replay(noise, policy, gates=REPLAYED_GATES, max_pairs=gate_pairs)
        alarms[f"{100 * allowance:g}%"] = (found["slower"] + found["broken"]) / REPLAYED_GATES
        if least is None and found["same"] >= MOST_SAME * REPLAYED_GATES:
            least = allowance
    return SuiteNoise(
        pairs=pairs,
        gate_pairs=gate_pairs,
        pair_seconds=pair_seconds,
        noise=median([MAD_TO_SD * median([abs(x) for x in logs]) for logs in noise]),
        false_alarm_rate=alarms,
        smallest_allowance=least,
        cells=cells,
        quantile=PAIRED_QUANTILE,
        sampling=SAMPLING,
    )


def _starter(device: str, protocol: Protocol) -> Callable[[], Worker]:
    return lambda: Worker(device, protocol.threads)


def _tasks(groups: list[Group], device: str, protocol: Protocol) -> list[Task]:
    """One Task for each Group in which anything can run."""
    name = device_name(device, protocol.threads)
    return [
        Task(
            suite=group.suite.name, problem=group.problem, members=[(op, kernel) for op, kernel in group.members],
            device=device, device_name=name, protocol=protocol,
        )
        for group in groups
        if group.members
    ]  # fmt: skip
