"""Reading asv's result files: values, skips and failures apart, every bad file one clear line."""

import json
import math
import shutil
from pathlib import Path

import pytest
from asv_files import COUNTED, TIME, times, write

from andrea_bench.errors import BadInput
from andrea_bench.tracking.results import read_results

KERNELS = [["'eager'", "'sdpa'"], ["64", "72"]]
NAN = math.nan


def test_values_skips_and_failures_keep_their_parameters(tmp_path: Path) -> None:
    """A hole in the list shifts nothing: null failed, NaN skipped."""
    results = read_results(write(tmp_path, 1, {TIME: times([1.0, None, NAN, 4.0], KERNELS)}))
    found = {
        tuple(value for _, value in p.parameters): (p.status, p.value) for p in results.points.values()
    }  # fmt: skip
    assert found == {
        ("eager", "64"): ("ok", 1.0),
        ("eager", "72"): ("failed", None),
        ("sdpa", "64"): ("skipped", None),
        ("sdpa", "72"): ("ok", 4.0),
    }
    point = results.points[TIME, (("kernel", "sdpa"), ("head_dim", "72"))]
    assert (point.type, point.unit, point.low, point.high) == ("time", "seconds", 3.96, 4.04)


def test_a_row_may_be_cut_and_null_as_a_whole(tmp_path: Path) -> None:
    results = read_results(write(tmp_path, 1, {TIME: [None, KERNELS, "1"], COUNTED: [[8.0], [["'eager'"]], "1"]}))
    assert [p.status for p in results.points.values()] == ["failed"] * 4 + ["ok"]


def test_infinite_intervals_are_none(tmp_path: Path) -> None:
    row = times([1.0], [])
    row[5], row[6] = [-math.inf], [math.inf]
    (point,) = read_results(write(tmp_path, 1, {"a.time_it": row})).points.values()
    assert (point.value, point.low, point.high) == (1.0, None, None)


def test_asv_reads_the_same(tmp_path: Path) -> None:
    """asv's own reader is the truth for what stands in a file that it wrote."""
    from asv.results import Results

    file = write(tmp_path, 1, {TIME: times([1.0, 2.0, NAN, None], KERNELS, samples=[[1.0, 1.1], [2.0], None, None])})
    theirs, ours = Results.load(str(file)), read_results(file)
    assert ours.commit == theirs.commit_hash and ours.date_ms == theirs.date and ours.environment == theirs.env_name
    for point, value, samples in zip(
        ours.points.values(),
        theirs.get_result_value(TIME, KERNELS),
        theirs.get_result_samples(TIME, KERNELS),
        strict=True,
    ):
        assert point.value == (None if value is None or math.isnan(value) else value)
        assert point.samples == tuple(samples or ())


@pytest.mark.parametrize(("version", "said"), [(1, "asv update"), (3, "update andrea-bench"), (None, "reads 2")])
def test_another_format_is_refused_by_name(tmp_path: Path, version: int, said: str) -> None:
    file = write(tmp_path, 1, {}, version=version)
    with pytest.raises(BadInput, match=said) as error:
        read_results(file)
    assert str(file) in str(error.value) and f"format {version!r}" in str(error.value)


def test_the_old_file_of_the_wild_is_refused_not_misread(tmp_path: Path) -> None:
    """Format 1 as it lies in old projects, with a bare NaN."""
    file = tmp_path / "fcf8c079-old.json"
    file.write_text('{"version":1,"params":{"machine":"gpu-node-a"},"results":{"t_fail":null,"t_skip":NaN,'
                    '"t_ok":0.15,"t_p":{"params":[["1","2","3"]],"result":[1,4,null]}}}')  # fmt: skip
    with pytest.raises(BadInput, match="format 1"):
        read_results(file)


@pytest.mark.parametrize("cut", [1, 2, 10, 100])
def test_a_file_that_is_cut_off(tmp_path: Path, cut: int) -> None:
    file = write(tmp_path, 1, {TIME: times([1.0] * 4, KERNELS)})
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(BadInput, match="no whole JSON"):
        read_results(file)


@pytest.mark.parametrize(
    "text", ["", "[]", "3", '{"version": 2}', '{"version": 2, "params": 3, "results": {}}', "\xff"]
)
def test_what_is_no_result_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "00000001-venv.json"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(BadInput, match=str(file)):
        read_results(file)


def test_values_that_are_not_as_many_as_the_combinations(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="4 combinations"):
        read_results(write(tmp_path, 1, {TIME: times([1.0, 2.0, 3.0], KERNELS)}))


def test_a_file_of_another_machine(tmp_path: Path) -> None:
    file = write(tmp_path, 1, {TIME: times([1.0] * 4, KERNELS)})
    write(tmp_path, 2, {}, machine="other")
    moved = shutil.copy(file, tmp_path / "other" / file.name)
    with pytest.raises(BadInput, match="measured on machine node"):
        read_results(Path(moved))


def test_older_commits_may_have_had_other_parameters(tmp_path: Path) -> None:
    """benchmarks.json holds the last discovery only; the row's own parameters count."""
    (a, b) = read_results(write(tmp_path, 1, {TIME: times([1.0, 2.0], [["64", "128"]])})).points.values()
    assert a.parameters == (("param1", "64"),) and b.value == 2.0


def test_without_benchmarks_json(tmp_path: Path) -> None:
    file = write(tmp_path, 1, {TIME: times([1.0] * 4, KERNELS)})
    (tmp_path / "benchmarks.json").unlink()
    assert {p.type for p in read_results(file).points.values()} == {"time"}


def test_text_and_infinite_values(tmp_path: Path) -> None:
    file = write(tmp_path, 1, {"a.track_a": [["text"], [], "1"], "a.track_b": [[True], [], "1"]})
    assert [(p.status, p.value) for p in read_results(file).points.values()] == [("skipped", None), ("ok", 1.0)]
    assert json.loads(file.read_text())["version"] == 2
