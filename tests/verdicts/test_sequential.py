"""The sequential rule: what it spends, and trials replayed on noise as it was published."""

import random

import pytest

from andrea_bench.verdicts import Policy
from andrea_bench.verdicts.replay import replay
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
