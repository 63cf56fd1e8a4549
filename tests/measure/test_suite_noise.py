"""A/A of one suite on a made-up machine: what its pairs are, and what becomes of their times."""

import math

import pytest
from paired_machine import Machine

from andrea_bench import noise
from andrea_bench.axes import AxisRequest
from andrea_bench.calibration import SuiteNoise
from andrea_bench.errors import EnvironmentUnfit
from andrea_bench.hardware import cpu
from andrea_bench.measure import turns as turns_module
from andrea_bench.measure.turns import BASE, HEAD
from andrea_bench.plan import make_plan
from andrea_bench.protocol import Protocol


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Its processes are those of base and of head in turn."""
    made = Machine(drift=1.0)
    monkeypatch.setattr(noise, "Worker", lambda device, threads: made.make(len(made.born) % 2, threads))
    monkeypatch.setattr(noise, "REPLAYED_GATES", 10)
    for module in (noise, turns_module):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(cpu, "snapshot", made.snapshot)
    return made


def measure(seconds: float, threads: int = 1) -> SuiteNoise:
    protocol = Protocol(seed=3, threads=threads)
    request = AxisRequest(axes={"seq_len": [16], "n_head": [2], "head_dim": [16]})
    plan = make_plan(("projection",), request, device="cpu", protocol=protocol, only_kernels=["fused_qkv"])
    return noise.suite_noise(plan.groups, "cpu", protocol, seconds, lambda text: None)


def test_the_noise_is_that_of_the_pairs(machine: Machine) -> None:
    """A pair takes four turns of a second: 16 s are spent after the fourth, and a fifth would end beyond 20."""
    machine.by_pair = {
        (HEAD, "per_head_loop"): [1.01, 0.99, 1.02, 1.0],
        (HEAD, "fused_qkv"): [1.03, 1.0, 0.96, 1.01],
        (BASE, "fused_qkv"): [2.0],
    }
    found = measure(20)
    assert (found.pairs, found.pair_seconds, found.gate_pairs) == (4, 4.0, 30)
    cells = {cell.kernel: cell for cell in found.cells}
    assert cells["per_head_loop"].log_ratios == pytest.approx([math.log(x) for x in (1.01, 0.99, 1.02, 1.0)])
    assert cells["fused_qkv"].log_ratios == pytest.approx([math.log(x / 2) for x in (1.03, 1.0, 0.96, 1.01)])
    assert (cells["per_head_loop"].median_us, cells["fused_qkv"].median_us) == (100, 200)
    # The median of four is the mean of the middle two: of log 1.01 and -log 0.99; of log 2/1.0 and log 2/1.01.
    spreads = [(math.log(1.01) - math.log(0.99)) / 2, math.log(2) - math.log(1.01) / 2]
    assert found.noise == pytest.approx(1.4826 * sum(spreads) / 2)
    assert machine.alive == 0


def test_at_least_two_pairs_are_measured_with_the_threads_of_the_protocol(machine: Machine) -> None:
    machine.by_pair[HEAD, "fused_qkv"] = [1.01, 0.99]
    assert measure(1, threads=2).pairs == 2
    assert machine.born == [(BASE, 2), (HEAD, 2)] * 2


def test_a_suite_of_which_nothing_can_be_timed_has_no_noise(machine: Machine) -> None:
    """Not a noise of 0, by which every gate could be met."""
    machine.fail = {(HEAD, "per_head_loop"): "error", (BASE, "fused_qkv"): "out_of_memory"}
    with pytest.raises(EnvironmentUnfit, match="suite projection: no cell could be timed"):
        measure(1)
    assert machine.alive == 0


def test_a_kernel_that_ends_the_process_is_one_line(machine: Machine) -> None:
    machine.stops = True
    with pytest.raises(EnvironmentUnfit, match="SystemExit: 1; nothing can be calibrated"):
        measure(1)
