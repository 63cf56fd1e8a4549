"""A trial of two revisions from its first pair to its end, on a made-up machine whose clock is known.

There are two cells in one Group, and a turn takes one second, so that a pair is one four of turns: four seconds.
The first look that can decide for two cells is at eight pairs: 2 / 2**8 is below 5 % / 3 / 2, 2 / 2**7 is not.
"""

from pathlib import Path

import pytest
from paired_machine import MEMBERS, Machine, make_task

from andrea_bench import trial as trial_module
from andrea_bench.errors import BadInput, EnvironmentUnfit
from andrea_bench.hardware import cpu
from andrea_bench.measure import turns as turns_module
from andrea_bench.measure.session import KernelStopped, Lost, Worker
from andrea_bench.measure.turns import BASE, HEAD
from andrea_bench.protocol import Protocol
from andrea_bench.record import cell_id
from andrea_bench.revisions import PlannedCell, Revision, Revisions
from andrea_bench.store import read_run
from andrea_bench.trial import RevisionTrial, RevisionWorker
from andrea_bench.verdicts import Document, Policy

LOOP, FUSED = (name for _, name in MEMBERS)
POLICY = Policy(max_slowdown=0.03)


def planned(threads: int = 1) -> list[PlannedCell]:
    problem = make_task().problem
    return [
        PlannedCell(
            cell_id=cell_id("projection", op, name, problem), suite="projection", op=op, kernel=name, problem=problem,
            threads=threads,
        )
        for op, name in MEMBERS
    ]  # fmt: skip


class MadeUp(Revision):
    """A revision that plans what it is told."""

    def plan(self, arguments: list[str]) -> list[PlannedCell]:
        return planned(int(arguments[0]))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Without drift, and with noise of 0.2 % that differs between the sides."""
    made = Machine(drift=1.0)
    for kernel in (LOOP, FUSED):
        made.by_pair |= {(BASE, kernel): [1.0, 1.002, 0.999], (HEAD, kernel): [1.001, 1.0, 1.0005, 0.999]}
    sides = {"base": BASE, "head": HEAD}
    monkeypatch.setattr(
        trial_module,
        "RevisionWorker",
        lambda revision, device, threads, _: made.make(sides[revision.side], threads),
    )
    monkeypatch.setattr(trial_module, "environment", lambda device: {"device": device})
    for module in (trial_module, turns_module):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(cpu, "snapshot", made.snapshot)
    return made


def make_trial(threads: int = 1, planned_threads: int | None = None) -> RevisionTrial:
    sides = [MadeUp(side, side, None, Path(side)) for side in ("base", "head")]
    return RevisionTrial(
        Revisions(Path(), *sides, ["what to know"]), [str(planned_threads or threads)], device="cpu",
        protocol=Protocol(seed=3, threads=threads), policy=POLICY,
    )  # fmt: skip


def run(machine: Machine, seconds: float) -> Document:
    document = make_trial().run(seconds, lambda text: None)
    assert machine.alive == 0
    return document


def verdicts(document: Document) -> dict[str, str]:
    return {cell.kernel: cell.verdict for cell in document.cells}


def test_it_ends_as_soon_as_every_cell_is_settled(machine: Machine) -> None:
    document = run(machine, 1000)
    assert (document.verdict, document.exit_code) == ("same", 0)
    assert verdicts(document) == {LOOP: "same", FUSED: "same"}
    assert [look.pairs for look in document.looks] == [8] and len(document.looks[0].settled) == 2
    assert (document.policy.paired, document.policy.quantile) == (True, 0.05)
    assert machine.now == 8 * 4 and len(machine.born) == 16
    assert [cell.blocks_base for cell in document.cells] == [8, 8]
    assert document.warnings == ["what to know"]


def test_it_ends_when_the_budget_is_spent(machine: Machine) -> None:
    """One cell is settled at the first look and measured no more; the other never is: each second pair 10 % slower."""
    machine.by_pair[HEAD, FUSED] = [1.0, 1.1]
    document = run(machine, 60)
    assert (document.verdict, document.exit_code) == ("inconclusive", 3)
    assert verdicts(document) == {LOOP: "same", FUSED: "inconclusive"}
    # Another pair might take 1.3 * 4 s: 56 + 5.2 > 60.
    assert machine.now == 14 * 4
    assert [look.pairs for look in document.looks] == [8, 12, 14]
    assert sum(look.level for look in document.looks) == pytest.approx(0.05)
    assert {cell.kernel: cell.blocks_head for cell in document.cells} == {LOOP: 8, FUSED: 14}
    assert [members for _, members in machine.measured] == [tuple(MEMBERS)] * 8 * 4 + [(MEMBERS[1],)] * 6 * 4
    (cell,) = (cell for cell in document.cells if cell.kernel == FUSED)
    assert (cell.low, cell.high) == pytest.approx((1.0, 1.1), rel=0.003)


def test_a_slowdown_is_found(machine: Machine) -> None:
    machine.by_pair[HEAD, FUSED] = [1.05, 1.052]
    document = run(machine, 1000)
    assert (document.verdict, document.exit_code) == ("slower", 1)
    assert verdicts(document) == {LOOP: "same", FUSED: "slower"}
    assert machine.now == 8 * 4
    assert next(c.ratio for c in document.cells if c.kernel == FUSED) == pytest.approx(1.051, rel=0.002)


def test_a_budget_of_less_than_a_pair_still_measures_one(machine: Machine) -> None:
    document = run(machine, 1)
    assert document.exit_code == 3 and set(verdicts(document).values()) == {"inconclusive"}
    assert [(look.pairs, look.level) for look in document.looks] == [(1, pytest.approx(0.05))]


def test_a_kernel_that_hangs_leaves_the_others_their_time(machine: Machine) -> None:
    """60 s of 120 until the hang is seen: no pair took so long, and the other cell has those that are left."""
    machine.lose, machine.lose_in_check, machine.lose_seconds = (HEAD, FUSED), True, 60.0
    document = run(machine, 120)
    assert verdicts(document) == {LOOP: "same", FUSED: "broken"}
    assert (document.verdict, document.exit_code) == ("broken", 1)


def test_a_busy_machine_is_said(machine: Machine) -> None:
    machine.foreign_cpus = 1.0
    warnings = run(machine, 1000).warnings
    assert "the machine was disturbed in 100 % of the turns: other processes kept 1.00 of 2 CPUs busy" in warnings


def test_where_no_kernel_can_run_any_more_it_ends_at_once(machine: Machine) -> None:
    machine.fail = {(HEAD, LOOP): "error", (HEAD, FUSED): "out_of_memory"}
    document = run(machine, 1000)
    assert (document.verdict, document.exit_code) == ("broken", 1)
    # What found no memory is tried alone, too.
    assert machine.turns == [] and machine.born == [(BASE, 1), (HEAD, 1), (HEAD, 1)]


def test_a_kernel_that_ends_the_process_is_one_line(machine: Machine) -> None:
    machine.stops = True
    with pytest.raises(EnvironmentUnfit, match="SystemExit: 1; nothing can be judged"):
        run(machine, 1000)
    assert machine.alive == 0


def test_whose_kernel_ended_the_process_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: Worker, task: object, progress: object) -> None:
        raise KernelStopped("a kernel raised SystemExit: 1")

    monkeypatch.setattr(Worker, "run", stop)
    worker = RevisionWorker(MadeUp("head", "my-branch", None, Path("head")), "cpu", 1, set())
    with pytest.raises(KernelStopped, match="head my-branch: a kernel raised SystemExit"):
        worker.run(make_task(), lambda kernel, stage: None)


def test_only_a_process_that_never_answered_is_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the system ends later, before it begins a kernel, is lost as any other."""
    answers: list[object] = [[], Lost(0, "out_of_memory", "killed")]

    def run(self: Worker, task: object, progress: object) -> object:
        answer = answers.pop(0)
        if isinstance(answer, Lost):
            raise answer
        return answer

    monkeypatch.setattr(Worker, "run", run)
    understood: set[str] = set()
    side = MadeUp("head", "my-branch", None, Path("head"))
    for expected in (None, Lost):
        worker = RevisionWorker(side, "cpu", 1, understood)
        if expected is None:
            worker.run(make_task(), lambda kernel, stage: None)
        else:
            with pytest.raises(expected, match="killed"):
                worker.run(make_task(), lambda kernel, stage: None)
    answers.append(Lost(0, "out_of_memory", "killed"))
    with pytest.raises(EnvironmentUnfit, match="head my-branch: its measuring process can't be used"):
        RevisionWorker(side, "cpu", 1, set()).run(make_task(), lambda kernel, stage: None)


def test_each_process_has_the_threads_that_were_asked_for(machine: Machine, tmp_path: Path) -> None:
    trial = make_trial(threads=2)
    assert trial.run(1000, lambda text: None).exit_code == 0
    assert set(machine.born) == {(BASE, 2), (HEAD, 2)}
    trial.store(tmp_path)
    for side in ("base", "head"):
        stored = read_run(tmp_path / side)
        assert stored.head.protocol["threads"] == 2
        # As in a sweep: more threads are another device.
        assert {record.device for record in stored.records} == {"cpu:threads=2"}


def test_cells_planned_for_another_number_of_threads_are_not_measured(machine: Machine) -> None:
    with pytest.raises(BadInput, match="no cell in common"):
        make_trial(threads=2, planned_threads=1)
    assert machine.born == []


def test_an_interrupted_trial_can_store_its_whole_pairs(machine: Machine, tmp_path: Path) -> None:
    machine.interrupt_in_turn = 3 * 4 + 2
    trial = make_trial()
    with pytest.raises(KeyboardInterrupt):
        trial.run(1000, lambda text: None)
    assert trial.pairs == 3 and machine.alive == 0
    trial.store(tmp_path, complete=False)
    for side in ("base", "head"):
        stored = read_run(tmp_path / side)
        assert stored.head.complete is False and stored.head.ended_at
        assert [sorted(set(record.block)) for record in stored.records] == [[0, 1, 2]] * 2


def test_the_runs_of_a_trial_hold_all_that_it_judged(machine: Machine, tmp_path: Path) -> None:
    trial = make_trial()
    document = trial.run(1000, lambda text: None)
    trial.store(tmp_path)
    stored = [read_run(tmp_path / side) for side in ("base", "head")]
    assert all(one.head.complete and one.head.ended_at for one in stored)
    for base, head, cell in zip(stored[0].records, stored[1].records, document.cells, strict=True):
        # Samples of a process are equal here, so that each is its percentile.
        assert [base.samples_us[6 * pair] for pair in range(8)] == cell.base_us
        assert [head.samples_us[6 * pair] for pair in range(8)] == cell.head_us
