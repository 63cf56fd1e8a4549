"""The sequential rule: what it spends, and trials replayed on made-up noise and on recorded process times."""

import json
import math
import random
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from andrea_bench.verdicts import Policy
from andrea_bench.verdicts import replay as replaying
from andrea_bench.verdicts.replay import log_ratios, replay
from andrea_bench.verdicts.sequential import Looks

# Simulated, not recorded: adjacent fresh processes of the same code differed by 1.20 % (sd of the log ratio; SDPA,
# float32, 24 processes on a busy 2-core machine, 2026-11-29). One pair in twenty is three times as far off.
PUBLISHED_SD = 0.012


def noise(sd: float, cells: int = 8, seed: int = 1) -> list[list[float]]:
    generator = random.Random(seed)
    return [[generator.gauss(0, sd) * (3 if generator.random() < 0.05 else 1) for _ in range(60)] for _ in range(cells)]


@pytest.mark.parametrize("looks", [1, 2, 5, 40])
def test_looks_never_spend_more_than_the_whole(looks: int) -> None:
    trial = Looks(0.05, 8)
    spent = [trial.take(last=i == looks - 1) for i in range(looks)]
    assert sum(spent) == pytest.approx(0.05)
    assert all(level > 0 for level in spent)
    if looks > 1:
        assert spent[0] == pytest.approx(0.05 / 3)


def test_looks_come_when_pairs_suffice_and_ever_later() -> None:
    trial = Looks(0.05, 8)
    due = []
    for _ in range(5):
        due.append(trial.next_pairs)
        trial.take(last=False)
    # The first: 2 / 2**10 <= 0.05 / 3 / 8 = 0.0021 < 2 / 2**9.
    assert due == [10, 14, 20, 28, 40]
    assert Looks(0.05, 1).next_pairs == 7


def test_false_alarms_stay_below_the_level_at_the_very_border() -> None:
    """Every cell of 300 trials lies exactly on the allowance, and may be looked at seven times."""
    found = replay(noise(0.012, cells=3), Policy(max_slowdown=1e-4, floor_us=0), gates=300, max_pairs=60)
    assert found["slower"] + found["faster"] <= 15 + 2 * 3.8  # 5 % of 300, and two standard errors


def test_no_false_alarm_beyond_an_allowance() -> None:
    found = replay(noise(PUBLISHED_SD), Policy(max_slowdown=0.01), gates=150, max_pairs=20)
    assert found["slower"] <= 1


def test_same_code_ends_as_same_within_three_per_cent() -> None:
    found = replay(noise(PUBLISHED_SD), Policy(max_slowdown=0.03), gates=100, max_pairs=20)
    assert found["same"] >= 85 and found["slower"] == 0


def test_five_per_cent_is_found() -> None:
    found = replay(noise(PUBLISHED_SD), Policy(max_slowdown=0.01), gates=60, max_pairs=20, slowdown=0.05)
    assert found["slower"] >= 57


def test_three_per_cent_is_found_or_left_open_but_never_called_same() -> None:
    for sd in (PUBLISHED_SD, 0.03):
        found = replay(noise(sd), Policy(max_slowdown=0.01), gates=60, max_pairs=20, slowdown=0.03)
        assert found["same"] == 0 and found["faster"] == 0
        if sd == PUBLISHED_SD:
            assert found["slower"] >= 45


# Real kernels, the same code on both sides: `python tests/power/gate_power.py --record-times FILE`. The file tells
# under which conditions. The rows are those of tests/power, with as many gates as a test has time for.
RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("process_times.json").read_text())
PAIRS = int(120 / RECORDED["pair_seconds"])  # in ab's default budget
GATES = 200


def recorded_noise() -> list[list[float]]:
    return [log_ratios(cell["base_us"], cell["head_us"]) for cell in RECORDED["cells"]]


def spread(logs: list[float]) -> float:
    return 1.4826 * median(abs(x) for x in logs)  # as a standard deviation


def test_the_recorded_times_are_of_real_processes() -> None:
    assert len(RECORDED["cells"]) == 8
    for cell in RECORDED["cells"]:
        assert len(cell["base_us"]) == len(cell["head_us"]) >= 25
        assert len(set(cell["base_us"])) > 20 and 50 < median(cell["base_us"]) < 5000
        assert 0 < spread(log_ratios(cell["base_us"], cell["head_us"])) < 0.2
    assert RECORDED["machine"] and RECORDED["conditions"] and RECORDED["date"].startswith("20")


def test_all_cells_of_a_replayed_pair_come_from_one_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disturbed process is disturbed in all its cells; only the first is slower by what is put in."""
    seen: list[list[list[float]]] = []
    monkeypatch.setattr(replaying, "_verdict", lambda logs, *_: seen.append(logs) or "same")
    noise = [0.001 * i for i in range(1, 31)]
    replay([noise, [2 * x for x in noise]], Policy(), gates=3, max_pairs=15, slowdown=0.05)
    for first, second in seen:
        assert len(set(map(abs, second))) > 5 and {x > 0 for x in second} == {True, False}
        assert second == pytest.approx([2 * (x - math.log(1.05)) for x in first])


def bursts(generator: random.Random) -> list[list[float]]:
    """The recorded pairs, all cells of a random third of them ten times as far off.

    A stand-in: no file holds times taken under load bursts (the row `bursts` of tests/power stores verdicts, not
    times), so how far a burst puts a pair off is made up here; that it hits all cells of a pair alike is not."""
    noise = recorded_noise()
    factors = [10 if generator.random() < 1 / 3 else 1 for _ in noise[0]]
    return [[x * factor for x, factor in zip(logs, factors, strict=True)] for logs in noise]


def test_bursts_make_no_false_alarm() -> None:
    found = replay(bursts(random.Random(7)), Policy(max_slowdown=0.01), gates=GATES, max_pairs=PAIRS)
    assert found["slower"] + found["broken"] <= 0.025 * GATES  # 1 of 40


@pytest.mark.parametrize("allowance", [0.01, 0.03])
def test_recorded_noise_gives_no_false_alarm(allowance: float) -> None:
    found = replay(recorded_noise(), Policy(max_slowdown=allowance), gates=GATES, max_pairs=PAIRS)
    assert found["slower"] + found["broken"] <= 1


def test_five_per_cent_is_found_in_recorded_noise() -> None:
    """The row of 5 % as it stands, whatever the noise is."""
    found = replay(recorded_noise(), Policy(max_slowdown=0.01), gates=GATES, max_pairs=PAIRS, slowdown=0.05)
    assert found["slower"] >= 0.95 * GATES
    assert found["same"] == found["faster"] == 0


def test_a_slowdown_within_the_recorded_noise_is_never_called_same() -> None:
    found = replay(recorded_noise(), Policy(max_slowdown=0.01), gates=100, max_pairs=PAIRS, slowdown=0.03)
    assert found["same"] == found["faster"] == 0
