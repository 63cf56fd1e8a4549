"""A history that asv recorded of this repository's own commits (see fixtures/asv_history)."""

import json
import math
from pathlib import Path

import pytest
from asv.results import Results

from andrea_bench.cli.main import main
from andrea_bench.tracking.folder import result_files
from andrea_bench.tracking.results import read_results
from andrea_bench.tracking.series import Series, read_history

FOLDER = Path(__file__).parents[1] / "fixtures" / "asv_history"
COMMITS = ("b3e258cd", "93e0a257", "0b00cfd9", "c565ecd2", "dfe51a31", "30b09d4e", "461a7ce3")


@pytest.fixture
def series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Series]:
    """By label, in the order of the commits' dates (no git here, so that a shallow checkout gives the same)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    return {one.label: one for one in read_history(FOLDER).series}


@pytest.mark.parametrize("file", result_files(FOLDER / "vm"), ids=lambda file: file.name[:8])
def test_every_value_is_what_asv_itself_reads(file: Path) -> None:
    theirs, ours = Results.load(str(file)), read_results(file)
    count = 0
    for name in theirs.get_all_result_keys():
        params = theirs.get_result_params(name)
        points = [point for point in ours.points.values() if point.benchmark == name]
        values = theirs.get_result_value(name, params)
        samples = theirs.get_result_samples(name, params)
        for point, value, kept in zip(points, values, samples, strict=True):
            known = value is not None and not math.isnan(value)
            assert point.value == (value if known else None)
            assert point.status == ("ok" if known else "failed" if value is None else "skipped")
            assert point.samples == tuple(kept or ())
            count += 1
    assert count == len(ours.points) > 100


def test_commits_stand_in_order(series: dict[str, Series]) -> None:
    times = series["output.Output.time_call(einsum, 12, 64, float32)"]
    assert tuple(commit[:8] for commit in times.commits) == COMMITS
    assert all(1e-3 < value < 0.02 for value in times.values() if value is not None)
    assert times.unit == "seconds"


def test_what_is_counted_agrees_over_all_commits(series: dict[str, Series]) -> None:
    """The result of one matmul in place, by hand, and compiled code that no commit touched."""
    memory = series["output.Output.track_peak_memory(strided_matmul, 4, 64, float32)"]
    assert {value for value in memory.values() if value is not None} == {128 * 256 * 4}
    spilled = [one for one in series.values() if "track_spilled_bytes(triton_exact, 64" in one.label]
    assert len(spilled) == 5 and not any(one.steps for one in spilled)


def test_a_disturbed_time_is_a_step_where_the_disturbance_ended(series: dict[str, Series]) -> None:
    (step,) = series["output.Output.time_call(per_head_sum, 12, 64, float32)"].steps
    assert step.commit.startswith("93e0a257") and step.new < 0.5 * step.old


def test_the_gpus_cells_are_skipped_throughout(series: dict[str, Series]) -> None:
    assert not any(label.startswith("output.") and "triton" in label for label in series)


def test_two_commits_compared(capsys: pytest.CaptureFixture[str]) -> None:
    sides = [str(FOLDER / "vm" / f"{commit}-virtualenv-py3.11-torch2.13.0.json") for commit in COMMITS[-2:]]
    assert main(["compare", *sides, "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    counted = {cell["verdict"] for cell in cells if not cell["suite"].endswith("time_call")}
    assert counted == {"same"}
    timed = [cell for cell in cells if cell["suite"].endswith("time_call")]
    assert len(timed) == 8 and all(0.2 < cell["ratio"] < 5 for cell in timed)
