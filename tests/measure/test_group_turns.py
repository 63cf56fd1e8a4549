"""A kernel's samples in a turn: what the kernel before it left in the caches must not show in them."""

from typing import Any

import msgspec
import pytest
from test_group import make_task, stub

from andrea_bench.measure.clock import Call, FakeClock
from andrea_bench.measure.group import measure_group
from andrea_bench.measure.session import InProcess
from andrea_bench.measure.turns import BASE, HEAD, Rhythm, Turns

GOOD, PRINTS = 0, 1


class SpoiledCaches(FakeClock):
    """A call of kernel i takes (i + 1) * 100 us; `slow` one twice as long, and it spoils the caches: what is called
    right after it, unless it is called again, takes half as long again."""

    def __init__(self, slow: int | None = None) -> None:
        super().__init__()
        self.slow = slow
        self.called: list[int] = []

    def sample(self, call: Call) -> tuple[float, float | None]:
        self._now += 1e-3
        kernel = self._known.index(call)
        spoiled = self.called[-1:] == [self.slow] != [kernel]
        self.called.append(kernel)
        return 100.0 * (kernel + 1) * (2 if kernel == self.slow else 1) * (1.5 if spoiled else 1), None


class Here(InProcess):
    def pin(self, cpu: int) -> None:
        """It stays where it is."""


def turn(**fields: Any) -> Any:
    task = make_task(stub("good"), stub("prints"), warmup_rounds=0, min_samples=1, target=1e-9, time_limit_s=0.03)
    return msgspec.structs.replace(task, checked=True, **fields)


@pytest.mark.parametrize("slow", [GOOD, PRINTS])
def test_a_change_of_a_kernel_does_not_show_in_its_neighbour(slow: int) -> None:
    sides = [Here(SpoiledCaches), Here(lambda: SpoiledCaches(slow))]
    found = Turns("cpu", seed=1, rhythm=Rhythm(0.03, 3)).take(sides, make_task(stub("good"), stub("prints")))
    times: dict[tuple[int, int], set[float]] = {}
    for side, records in found.turns:
        for kernel, record in enumerate(records):
            times.setdefault((side, kernel), set()).update(record.samples_us)
    assert {kernel: times[BASE, kernel] for kernel in (GOOD, PRINTS)} == {GOOD: {100.0}, PRINTS: {200.0}}
    assert times[HEAD, slow] == {2 * level for level in times[BASE, slow]}
    assert times[HEAD, 1 - slow] == times[BASE, 1 - slow]


def test_in_a_sweep_every_sample_has_the_machine_as_the_others_left_it() -> None:
    # What the test above rests on: where kernels are interleaved, this clock shows.
    _, other = measure_group(make_task(stub("good"), stub("prints"), min_samples=40), SpoiledCaches(GOOD))
    assert set(other.samples_us) == {200.0, 300.0}


def test_samples_of_a_turn_are_three_on_end_after_an_untimed_call() -> None:
    clock = SpoiledCaches()
    first, second = measure_group(turn(order_start=70), clock)
    rows = [clock.called[i : i + 4] for i in range(0, len(clock.called), 4)]
    assert all(row in ([GOOD] * 4, [PRINTS] * 4) for row in rows)
    assert [len(record.samples_us) for record in (first, second)] == [3 * len(rows) // 2] * 2
    # Calls of 0.001 s, eight of them until all kernels had their row; 0.03 s have passed after the fourth time.
    assert len(rows) == 2 * 4
    leads = [rows[i][0] for i in range(0, len(rows), 2)]
    assert set(leads) == {GOOD, PRINTS}  # in an order shuffled anew
    assert first.round == second.round == list(range(12))
    assert sorted(first.order + second.order) == list(range(70, 70 + 24))
    by_position = dict(zip(first.order, [GOOD] * 12, strict=True)) | dict(zip(second.order, [PRINTS] * 12, strict=True))
    assert [by_position[70 + i] for i in range(24)] == [row[0] for row in rows for _ in range(3)]


def test_a_kernel_that_fails_in_a_turn_leaves_the_others_their_rows() -> None:
    clock = SpoiledCaches()
    sample, calls = clock.sample, []

    def failing(call: Call) -> tuple[float, float | None]:
        calls.append(call)
        if clock._known.index(call) == PRINTS and len(calls) > 10:
            raise RuntimeError("no more")
        return sample(call)

    clock.sample = failing  # type: ignore[method-assign]
    first, second = measure_group(turn(), clock)
    assert second.status == "error" and second.samples_us == second.order == second.round == []
    assert first.status == "ok" and len(first.samples_us) == len(first.order) == len(first.round) >= 12


def test_every_call_of_a_turn_is_a_sign_of_life() -> None:
    # A row of calls of a minute each is no kernel that hangs.
    clock, beats = SpoiledCaches(), [0]

    def beat(member: int, stage: str) -> None:
        beats[0] += stage == "time"

    measure_group(turn(), clock, heartbeat=beat)
    assert beats[0] == len(clock.called) == 32
