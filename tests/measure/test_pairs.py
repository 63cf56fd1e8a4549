"""Pairs of processes in turns, with made-up processes: order, drift, failures."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from paired_machine import MEMBERS, Machine, make_task

from andrea_bench.hardware import cpu
from andrea_bench.measure.pairs import Pairs
from andrea_bench.measure.task import Task
from andrea_bench.measure.turns import BASE, HEAD, Rhythm
from andrea_bench.protocol import Protocol
from andrea_bench.record import RunHead
from andrea_bench.store import StoredRun
from andrea_bench.verdicts import Document, Policy, judge


def pairs_of(machine: Machine, tasks: list[Task], fours: int = 1) -> Pairs:
    make = (lambda: machine.make(BASE), lambda: machine.make(HEAD))
    return Pairs(make, tasks, rhythm=Rhythm(0.1, fours))


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else this machine does is none of these tests' business."""
    monkeypatch.setattr(cpu, "snapshot", Machine().snapshot)


def document_of(pairs: Pairs, **policy: object) -> Document:
    head = RunHead(complete=True, started_at="")
    base_run = StoredRun(Path("base"), head, pairs.records(BASE))
    head_run = StoredRun(Path("head"), head, pairs.records(HEAD))
    return judge(base_run, head_run, Policy(paired=True, **policy))  # type: ignore[arg-type]


def verdicts(pairs: Pairs, **policy: object) -> dict[str, str]:
    return {cell.kernel: cell.verdict for cell in document_of(pairs, **policy).cells}


def test_turns_are_abba_or_baab_group_by_group() -> None:
    machine = Machine()
    pairs = pairs_of(machine, [make_task(64), make_task(128)])
    for _ in range(12):
        pairs.measure()
    orders = [tuple(side for side, _ in machine.turns[i : i + 4]) for i in range(0, len(machine.turns), 4)]
    assert set(orders) == {(0, 1, 1, 0), (1, 0, 0, 1)}
    assert [n for _, n in machine.turns[:8]] == [64] * 4 + [128] * 4
    assert machine.alive == 0 and pairs.count == 12
    record = pairs.records(BASE)[0]
    assert record.block == [b for b in range(12) for _ in range(6)]
    # As in a sweep: equal block and round are one moment, and each sample has its own place in the order.
    assert record.round == list(range(6)) * 12
    order = [position for record in pairs.records(BASE) for position in record.order]
    assert sorted(order) == list(range(len(order))) and len(order) == 12 * 2 * 2 * 6


def test_both_sides_are_on_one_cpu_drawn_for_each_group() -> None:
    machine = Machine()
    pairs = pairs_of(machine, [make_task(64), make_task(128)])
    for _ in range(20):
        pairs.measure()
    base, head = ([pin[1:] for pin in machine.pinned if pin[0] == side] for side in (BASE, HEAD))
    assert base == head and [turns for turns, _ in base] == list(range(0, 160, 4))
    assert {cpu for _, cpu in base} <= os.sched_getaffinity(0)
    if len(os.sched_getaffinity(0)) > 1:
        assert len({cpu for _, cpu in base}) > 1


@pytest.mark.parametrize("change", [{"device": "cuda"}, {"protocol": Protocol(threads=2)}])
def test_what_needs_more_than_one_cpu_is_left_where_it_is(change: dict[str, Any]) -> None:
    machine = Machine()
    pairs_of(machine, [msgspec.structs.replace(make_task(), **change)]).measure()
    assert machine.turns and machine.pinned == []


def test_a_group_has_several_fours_of_turns() -> None:
    machine = Machine()
    pairs = pairs_of(machine, [make_task(64), make_task(128)], fours=3)
    for _ in range(6):
        pairs.measure()
    assert [n for _, n in machine.turns[:24]] == [64] * 12 + [128] * 12
    orders = [tuple(side for side, _ in machine.turns[i : i + 4]) for i in range(0, len(machine.turns), 4)]
    assert set(orders) == {(0, 1, 1, 0), (1, 0, 0, 1)}
    assert pairs.records(HEAD)[0].round == list(range(18)) * 6


def test_drift_cancels_in_every_pair() -> None:
    machine = Machine(factors=(1.0, 1.04))
    pairs = pairs_of(machine, [make_task()])
    for _ in range(8):
        pairs.measure()
    document = document_of(pairs, max_slowdown=0.01)
    for cell in document.cells:
        # A drift of 2 % a turn, 6 % over a four, leaves 0.04 % in the medians.
        assert [cell.low, cell.ratio, cell.high] == pytest.approx([1.04] * 3, rel=6e-4)
        assert cell.verdict == "slower" and cell.blocks_head == 8


def test_load_in_some_turns_is_hardly_seen() -> None:
    """Twice the time in two turns of one side in each pair, as a busy process makes it: the medians stay."""
    machine = Machine(factors=(1.0, 1.0001), drift=1.0)
    machine.loaded = {turn for pair in range(8) for turn in (32 * pair + 2, 32 * pair + 3)}
    pairs = pairs_of(machine, [make_task()], fours=8)
    for _ in range(8):
        pairs.measure()
    assert set(verdicts(pairs, max_slowdown=0.001).values()) == {"same"}


def test_a_kernel_that_fails_is_left_out_and_broken() -> None:
    machine = Machine()
    machine.fail[HEAD, "fused_qkv"] = "out_of_memory"
    pairs = pairs_of(machine, [make_task()])
    for _ in range(6):
        pairs.measure()
    assert all(members == (MEMBERS[0],) for _, members in machine.measured)
    assert verdicts(pairs) == {"per_head_loop": "same", "fused_qkv": "broken"}


def test_a_process_that_hangs_voids_its_pair_and_names_the_kernel() -> None:
    machine = Machine()
    machine.lose = (HEAD, "fused_qkv")
    pairs = pairs_of(machine, [make_task()])
    pairs.measure()
    assert pairs.count == 0 and machine.alive == 0
    for _ in range(6):
        pairs.measure()
    assert pairs.count == 6
    assert verdicts(pairs) == {"per_head_loop": "same", "fused_qkv": "broken"}
    assert next(r for r in pairs.records(HEAD) if r.kernel == "fused_qkv").status == "timeout"


@pytest.mark.parametrize("side", [BASE, HEAD])
@pytest.mark.parametrize("in_check", [False, True])
@pytest.mark.parametrize(("times", "verdict"), [(1, "slower"), (2, "died")])
def test_a_process_that_dies_once_by_chance_decides_nothing(
    side: int, in_check: bool, times: int, verdict: str
) -> None:
    machine = Machine(factors=(1.0, 1.2))
    pairs = pairs_of(machine, [make_task()])
    for _ in range(4):
        pairs.measure()
    machine.lose, machine.lose_status, machine.lose_in_check = (side, "fused_qkv"), "error", in_check
    machine.lose_times = times
    for _ in range(8):
        pairs.measure()
    # In a check it is tried again alone, and that is the second time.
    pair_lost = 1 if in_check or times == 1 else 2
    assert pairs.count == 12 - pair_lost and machine.alive == 0
    # One that could run in base may not be passed over because it then died.
    died = "inconclusive" if side == BASE else "broken"
    assert verdicts(pairs, max_slowdown=0.1) == {
        "per_head_loop": "slower", "fused_qkv": died if verdict == "died" else verdict
    }  # fmt: skip


def test_memory_that_only_both_sides_together_lack_breaks_nothing() -> None:
    machine = Machine()
    machine.scarce = "fused_qkv"
    pairs = pairs_of(machine, [make_task()])
    for _ in range(9):
        pairs.measure()
    document = document_of(pairs)
    assert {cell.kernel: cell.verdict for cell in document.cells} == {
        "per_head_loop": "same", "fused_qkv": "inconclusive"
    }  # fmt: skip
    assert document.exit_code == 3 and "both sides at work" in document.cells[1].reason


def test_a_kernel_that_goes_wrong_in_its_turns_is_found() -> None:
    """By a check after the turns of the first, second, fourth, ... pair."""
    machine = Machine()
    machine.wrong_after = 3
    pairs = pairs_of(machine, [make_task()])
    pairs.measure()
    document = document_of(pairs)
    assert (document.verdict, document.exit_code) == ("broken", 5)
    machine = Machine()
    pairs = pairs_of(machine, [make_task()])
    checks = []
    for _ in range(9):
        before = len(machine.checked)
        pairs.measure()
        checks.append(len(machine.checked) - before)
    assert checks == [4, 4, 2, 4, 2, 2, 2, 4, 2]


def test_what_disturbed_the_turns_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a CPU around all turns of a Group in a pair: one alone is shorter than a tick of the kernel's counters."""
    machine = Machine()
    monkeypatch.setattr(cpu, "snapshot", machine.snapshot)
    pairs = pairs_of(machine, [make_task(64), make_task(128)])
    pairs.measure()
    assert (pairs.turns.count, pairs.turns.disturbed) == (8, [])
    machine.foreign_cpus = 1.0
    pairs.measure()
    assert (pairs.turns.count, pairs.turns.disturbed) == (16, ["other processes kept 1.00 of 2 CPUs busy"] * 8)


def test_what_disturbed_a_turn_on_a_gpu_its_process_tells() -> None:
    machine = Machine()
    pairs = pairs_of(machine, [msgspec.structs.replace(make_task(), device="cuda")])
    machine.counters = {"interval_s": 0.5, "gpu_sm_clock_mhz": 1900, "gpu_max_sm_clock_mhz": 1980}
    pairs.measure()
    assert (pairs.turns.count, pairs.turns.disturbed) == (4, [])
    machine.counters |= {"gpu_slowdown_power_cap_s": 0.1}
    pairs.measure()
    assert (pairs.turns.count, pairs.turns.disturbed) == (8, ["software power cap for 0.1 of 0.5 s"] * 4)


@pytest.mark.parametrize(("stolen", "left_out"), [(1, 0), (2, 2), (4, 2)])
def test_a_group_whose_turns_the_hypervisor_held_back_is_left_out_of_the_pair(
    monkeypatch: pytest.MonkeyPatch, stolen: int, left_out: int
) -> None:
    """A third of both CPUs' time in one turn of four is 8.3 % of them, in two 16.7 %; a tenth is too much."""
    machine = Machine()
    monkeypatch.setattr(cpu, "snapshot", machine.snapshot)
    pairs = pairs_of(machine, [make_task(64), make_task(128)])
    machine.stolen_turns = {8 + 1 + turn for turn in range(stolen)}
    for _ in range(3):
        pairs.measure()
    assert pairs.left_out == left_out
    held_back, other = pairs.records(BASE)[0], pairs.records(BASE)[2]
    assert set(held_back.block) == ({0, 1, 2} if left_out == 0 else {0, 2})
    assert set(other.block) == {0, 1, 2}
    steal = f"steal {stolen / 12:.1%}: the hypervisor gave this machine's CPU time to others"
    assert pairs.turns.disturbed == [steal] * 4


def test_a_cell_to_which_no_process_came_is_neither_missing_nor_passed_over() -> None:
    for side in (BASE, HEAD):
        machine = Machine()
        machine.lose, machine.lose_in_check = (side, "per_head_loop"), True
        pairs = pairs_of(machine, [make_task()])
        pairs.measure()
        assert verdicts(pairs) == {"fused_qkv": "inconclusive"} | ({} if side == BASE else {"per_head_loop": "broken"})


def test_a_cell_of_which_every_turn_was_invalid_never_passes() -> None:
    machine = Machine()
    machine.invalid_turns = set(range(100))
    pairs = pairs_of(machine, [make_task()])
    for _ in range(9):
        pairs.measure()
    document = document_of(pairs, on_inconclusive="pass")
    assert document.exit_code == 3 and all(cell.invalid for cell in document.cells)
    assert "held back" in document.cells[0].reason
    machine.invalid_turns = set()
    for _ in range(9):
        pairs.measure()
    assert document_of(pairs).exit_code == 0


def test_a_pair_in_which_a_process_was_lost_leaves_nothing_of_its_other_groups() -> None:
    machine = Machine()
    machine.lose, machine.lose_at = (HEAD, "fused_qkv"), 128
    pairs = pairs_of(machine, [make_task(64), make_task(128)])
    for _ in range(3):
        pairs.measure()
    assert pairs.count == 2
    # Two turns of three samples a pair: the lost one's would be counted to the first pair.
    assert pairs.records(HEAD)[0].block == [0] * 6 + [1] * 6


def test_a_kernel_that_fails_in_a_turn_is_broken_and_not_held_back() -> None:
    machine = Machine()
    pairs = pairs_of(machine, [make_task()])
    for _ in range(3):
        pairs.measure()
    machine.fail_in_turn = (HEAD, "fused_qkv")
    for _ in range(5):
        pairs.measure()
    assert pairs.left_out == 0
    assert verdicts(pairs) == {"per_head_loop": "same", "fused_qkv": "broken"}


def test_turns_on_a_machine_that_was_held_back_are_left_out() -> None:
    machine = Machine()
    machine.invalid_turns = {2}
    pairs = pairs_of(machine, [make_task()])
    for _ in range(3):
        pairs.measure()
    assert pairs.left_out == 2
    assert set(pairs.records(BASE)[0].block) == set(pairs.records(HEAD)[0].block) == {1, 2}


def test_a_four_in_which_the_machine_was_held_back_is_left_out() -> None:
    machine = Machine()
    machine.invalid_turns = {
        2,
        32 + 1,
        32 + 5,
        32 + 9,
        32 + 13,
        32 + 17,
    }
    pairs = pairs_of(machine, [make_task()], fours=8)
    for _ in range(3):
        pairs.measure()
    assert pairs.left_out == 2  # both cells in the second pair
    for side in (BASE, HEAD):
        record = pairs.records(side)[0]
        assert sorted(set(zip(record.block, record.round, strict=True))) == [
            *((0, n) for n in range(6, 48)), *((2, n) for n in range(48))
        ]  # fmt: skip


def test_settled_cells_are_measured_no_more() -> None:
    machine = Machine()
    pairs = pairs_of(machine, [make_task(64), make_task(128)])
    pairs.measure()
    first = pairs.records(BASE)
    pairs.settle({r.cell_id for r in first if r.problem.seq_len == 64})
    machine.turns.clear()
    pairs.measure()
    assert {n for _, n in machine.turns} == {128} and pairs.left
    pairs.settle({r.cell_id for r in first})
    assert not pairs.left
    assert [r.cell_id for r in pairs.records(BASE)] == [r.cell_id for r in first]
