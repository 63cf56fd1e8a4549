"""Series over commits: joined by value, never across versions or names; where their level changed."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from asv_files import COUNTED, TIME, commit, times, write

from andrea_bench.cli.main import main
from andrea_bench.errors import BadInput
from andrea_bench.tracking.series import History, read_history, sparkline

EAGER = [["'eager'"], ["64"]]


@pytest.fixture(autouse=True)
def _outside_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))


def history(tmp_path: Path, values: list[float | None], name: str = TIME, params: list[list[str]] = EAGER) -> History:
    for number, value in enumerate(values, 1):
        write(tmp_path, number, {name: times([value], params)})
    return read_history(tmp_path)


def test_values_in_order_of_date_with_holes(tmp_path: Path) -> None:
    found = history(tmp_path, [1.0, None, float("nan"), 1.1])
    assert found.commits == tuple(map(commit, (1, 2, 3, 4)))
    (series,) = found.series
    assert series.values() == [1.0, None, None, 1.1]
    assert [point.status for point in series.points if point] == ["ok", "failed", "skipped", "ok"]


def test_a_step_is_found_at_its_commit_and_noise_is_none(tmp_path: Path) -> None:
    noise = random.Random(1)
    level = [1.0] * 12 + [1.3] * 12
    (series,) = history(tmp_path, [v * (1 + noise.uniform(-0.02, 0.02)) for v in level]).series
    (step,) = series.steps
    assert (step.before, step.commit) == (commit(12), commit(13))
    assert step.change == pytest.approx(0.3, abs=0.03)


def test_noise_alone_has_no_step(tmp_path: Path) -> None:
    noise = random.Random(2)
    (series,) = history(tmp_path, [1 + noise.uniform(-0.02, 0.02) for _ in range(24)]).series
    assert series.steps == ()


@pytest.mark.parametrize(("spread", "steps"), [(0.02, 1), (0.3, 0)])
def test_one_commit_alone_is_a_step_only_outside_the_interval(tmp_path: Path, spread: float, steps: int) -> None:
    """30 % more, by two values whose intervals of 30 % meet, and by values whose intervals of 2 % don't."""
    for number, value in enumerate([1.0, 1.0, 1.0, 1.3], 1):
        write(tmp_path, number, {TIME: times([value], EAGER, spread=spread)})
    (series,) = read_history(tmp_path).series
    assert len(series.steps) == steps
    write(tmp_path, 5, {TIME: times([1.3], EAGER, spread=spread)})
    (series,) = read_history(tmp_path).series
    assert [step.commit for step in series.steps] == [commit(4)]


def test_compiled_code_steps_at_once(tmp_path: Path) -> None:
    (series,) = history(tmp_path, [0, 0, 8, 8, 0], COUNTED, [["'triton_exact'"]]).series
    assert [(step.old, step.new, step.commit) for step in series.steps] == [
        (0, 8, commit(3)),
        (8, 0, commit(5)),
    ]
    assert [step.change for step in series.steps] == [None, -1.0]


def test_a_renamed_kernel_is_gone_and_new_never_joined(tmp_path: Path) -> None:
    write(tmp_path, 1, {TIME: times([1.0], [["'old'"], ["64"]])})
    write(tmp_path, 2, {TIME: times([5.0], [["'new'"], ["64"]])})
    found = read_history(tmp_path)
    assert {s.label: s.state(found.commits) for s in found.series} == {
        f"{TIME}(old, 64)": "gone after 00000001",
        f"{TIME}(new, 64)": "new",
    }
    assert not any(series.steps for series in found.series)


def test_an_added_parameter_shifts_nothing(tmp_path: Path) -> None:
    write(tmp_path, 1, {TIME: times([1.0, 2.0], [["64", "128"]])})
    write(tmp_path, 2, {TIME: times([1.0, 9.0, 2.0, 9.0], [["64", "128"], ["'bf16'", "'fp16'"]])})
    assert all(sum(v is not None for v in series.values()) == 1 for series in read_history(tmp_path).series)


def test_a_value_added_in_front_shifts_nothing(tmp_path: Path) -> None:
    write(tmp_path, 1, {TIME: times([1.0, 2.0], [["'a'", "'b'"], ["64"]])})
    write(tmp_path, 2, {TIME: times([7.0, 1.0, 2.0], [["'new'", "'a'", "'b'"], ["64"]])})
    found = {series.label: series.values() for series in read_history(tmp_path).series}
    assert found[f"{TIME}(a, 64)"] == [1.0, 1.0] and found[f"{TIME}(b, 64)"] == [2.0, 2.0]


def test_another_version_is_another_series(tmp_path: Path) -> None:
    write(tmp_path, 1, {TIME: times([1.0], EAGER, version="1")})
    write(tmp_path, 2, {TIME: times([2.0], EAGER, version="2")})
    found = read_history(tmp_path)
    assert [series.values() for series in found.series] == [[1.0, None], [None, 2.0]]
    assert any("several versions" in note for note in found.notes)


@pytest.mark.parametrize("facts", [{"cpu": "Xeon"}, {"num_cpu": "4"}, {"ram": "50000000000"}, {"arch": "aarch64"}])
def test_two_machines_under_one_name(tmp_path: Path, facts: dict[str, str]) -> None:
    write(tmp_path, 1, {TIME: times([1.0], EAGER)})
    write(tmp_path, 2, {TIME: times([1.0], EAGER)}, facts=facts)
    with pytest.raises(BadInput, match=f"different machines \\({next(iter(facts))}"):
        read_history(tmp_path)


def test_a_reboot_is_no_other_machine(tmp_path: Path) -> None:
    write(tmp_path, 1, {TIME: times([1.0], EAGER)})
    write(tmp_path, 2, {TIME: times([1.0], EAGER)}, facts={"ram": "25276059648"})
    assert len(read_history(tmp_path).commits) == 2


def test_the_newest_commits_environment_is_shown_and_others_are_named(tmp_path: Path) -> None:
    write(tmp_path, 1, {TIME: times([1.0], EAGER)})
    write(tmp_path, 2, {TIME: times([9.0], EAGER)}, env="venv-torch2.12")
    found = read_history(tmp_path)
    assert (found.environment, found.commits) == ("venv-torch2.12", (commit(2),))
    assert "venv-torch2.12 only; `history --environment` shows venv-py3.11" in found.notes
    other = read_history(tmp_path, environment="venv-py3.11")
    assert other.commits == (commit(1),) and not any("only" in note for note in other.notes)
    with pytest.raises(BadInput, match="no environment 'x'"):
        read_history(tmp_path, environment="x")


def test_an_update_of_the_system_is_a_note(tmp_path: Path) -> None:
    write(tmp_path, 1, {TIME: times([1.0], EAGER)})
    write(tmp_path, 2, {TIME: times([1.0], EAGER)}, facts={"os": "Linux 6.2"})
    found = read_history(tmp_path)
    assert len(found.commits) == 2 and "os: Linux 6.1 -> Linux 6.2 at 00000002" in found.notes


def test_a_machine_of_which_only_the_name_is_known(tmp_path: Path) -> None:
    """As `asv machine --yes --machine NAME` leaves it."""
    write(tmp_path, 1, {TIME: times([1.0], EAGER)}, facts={"cpu": ""})
    assert any("CPU" in note for note in read_history(tmp_path).notes)
    write(tmp_path, 1, {TIME: times([1.0], EAGER)})
    assert not any("CPU" in note for note in read_history(tmp_path).notes)


def test_a_commit_that_no_longer_exists_is_said(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    assert "ordered by date: git lacks 2 of 2 commits (00000001, 00000002)" in history(tmp_path, [1.0, 1.0]).notes


@pytest.mark.parametrize(
    ("latest", "state"), [(None, "failed at 00000003"), (float("nan"), "no value at 00000003"), (1.0, "")]
)
def test_what_the_latest_commit_has_no_value_of(tmp_path: Path, latest: float | None, state: str) -> None:
    found = history(tmp_path, [1.0, 1.0, latest])
    assert found.series[0].state(found.commits) == state


@pytest.mark.parametrize(
    ("values", "change"),
    [
        ([10, 10, 20, 20, 15, 15], 0.5),  # half recovered: still above the level that it had
        ([10, 10, 10, 10], 0.0),  # a zero is a number, not "not known"
        ([10, 10, 12, None], None),  # the latest commit has no value to compare
        ([10, 10], None),
    ],
)
def test_the_latest_value_against_the_best_level(tmp_path: Path, values: list[float], change: float | None) -> None:
    (series,) = history(tmp_path, values).series
    assert series.from_best() == (None if change is None else pytest.approx(change))


def test_a_slow_drift_can_not_creep_in(tmp_path: Path) -> None:
    """Each commit takes 1 % more: no step is one of 5 %, the whole is 21 %."""
    (series,) = history(tmp_path, [1.01**i for i in range(21)]).series
    assert series.from_best() == pytest.approx(1.01**19 - 1)
    assert series.changed()


def test_more_may_be_better(tmp_path: Path) -> None:
    (series,) = history(tmp_path, [1.0, 1.0, 2.0], "a.track_score", []).series
    assert series.from_best() is None and not history(tmp_path, [1.0, 1.0, 1.0]).series[0].changed()


@pytest.mark.parametrize("arguments", [["history"], ["report", "--history", ".", "--markdown", "m.md"]])
def test_without_asv_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    history(tmp_path, [1.0, 1.0])
    for name in [*(one for one in sys.modules if one.startswith("asv.")), "asv"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert main(arguments) == 4
    error = capsys.readouterr().err
    assert "pip install 'andrea-bench[asv]'" in error and "step detection" in error and error.count("\n") == 1


def test_names_are_chosen_as_by_asv(tmp_path: Path) -> None:
    write(tmp_path, 1, {TIME: times([1.0] * 2, [["'eager'", "'sdpa'"], ["64"]]), "a.track_score": [[3.0], [], "1"]})
    assert [s.label for s in read_history(tmp_path, benchmark=r"time_call\(sdpa").series] == [f"{TIME}(sdpa, 64)"]
    with pytest.raises(BadInput, match=re.escape("there are a.track_score")):
        read_history(tmp_path, benchmark="nothing")
    with pytest.raises(BadInput, match="no regular expression"):
        read_history(tmp_path, benchmark="(")


def test_sparkline() -> None:
    assert sparkline([0.0, 3.5, None, 7.0]) == "▁▅·█"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([None]) == "·"
