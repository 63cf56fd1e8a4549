"""A Run on disk survives kills, full disks and second writers; what can't be read is named by file and line."""

import multiprocessing
import os
import resource
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from andrea_bench import Problem
from andrea_bench.errors import BadInput
from andrea_bench.files import write_whole
from andrea_bench.record import Record, RunHead, cell_id
from andrea_bench.store import RunWriter, read_run

NOW = "2026-01-02T03:04:05.678+00:00"


def make_record(kernel: str, **changes: object) -> Record:
    problem = Problem(d_model=64, n_head=4)
    fields: dict[str, object] = {
        "cell_id": cell_id("attention", "attention", kernel, problem),
        "suite": "attention",
        "op": "attention",
        "kernel": kernel,
        "problem": problem,
        "device": "cpu",
        "status": "ok",
        "samples_us": [1.0, 2.0],
        "timing_mode": "host_wall",
        "cache": "warm",
        "order": [0, 1],
        "block": [0, 0],
        "round": [0, 1],
        "flops": 1,
        "min_bytes": 1,
        "started_at": NOW,
    }
    return Record(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "my runs" / "β x"
    with RunWriter.create(folder, RunHead(started_at=NOW)) as writer:
        writer.append([make_record("a"), make_record("b")])
    return folder


def lines(folder: Path) -> list[bytes]:
    return (folder / "records.jsonl").read_bytes().splitlines(keepends=True)


def test_what_was_written_is_read(run: Path) -> None:
    stored = read_run(run)
    assert [r.kernel for r in stored.records] == ["a", "b"]
    assert stored.records[0] == make_record("a")
    assert stored.head.complete is False


def test_unknown_fields_are_ignored(run: Path) -> None:
    document = msgspec.json.decode(lines(run)[0])
    document["a_later_field"] = 1
    (run / "records.jsonl").write_bytes(msgspec.json.encode(document) + b"\n")
    assert read_run(run).records[0].kernel == "a"


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda whole: whole[:-20], "line 2: is cut off"),
        (lambda whole: whole + b"garbage\n", "line 3: is not JSON"),
        (lambda whole: whole + b"[]\n", "line 3: is a JSON list"),
        (lambda whole: whole + b"{}\n", "line 3: Object missing required field"),
        (lambda whole: b"\xff\xfe" + whole, "line 1: is not UTF-8 (byte 0)"),
        (lambda whole: whole.replace(b'"schema_version":1', b'"schema_version":7', 1), "line 1: has schema_version 7"),
        (lambda whole: whole.replace(b'"schema_version":1', b'"schema_version":"2.0.0"', 1), "'2.0.0'"),
        (lambda whole: whole + whole.splitlines(keepends=True)[0], "line 3: has the same cell as line 1"),
    ],
)
def test_damage_is_named_by_file_and_line(run: Path, damage, says: str) -> None:  # type: ignore[no-untyped-def]
    file = run / "records.jsonl"
    damaged = damage(file.read_bytes())
    file.write_bytes(damaged)
    with pytest.raises(BadInput) as error:
        read_run(run)
    assert says in str(error.value)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)
    assert file.read_bytes() == damaged


@pytest.mark.parametrize(("content", "says"), [(b"", "is empty"), (b"[]", "is a JSON list"), (b"{}", "started_at")])
def test_a_damaged_head_is_named(run: Path, content: bytes, says: str) -> None:
    (run / "run.json").write_bytes(content)
    with pytest.raises(BadInput, match=says):
        read_run(run)


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is no Run"):
        read_run(tmp_path)
    with pytest.raises(BadInput, match="there is no such Run"):
        read_run(tmp_path / "absent")


def test_nan_of_other_writers_is_read(run: Path) -> None:
    file = run / "records.jsonl"
    file.write_bytes(file.read_bytes().replace(b"[1.0,2.0]", b"[NaN,2.0]", 1))
    assert read_run(run).records[0].samples_us[0] != read_run(run).records[0].samples_us[0]


def test_a_cut_line_is_set_aside_on_resume(run: Path) -> None:
    file = run / "records.jsonl"
    first, second = lines(run)
    file.write_bytes(first + second[:30])
    with RunWriter.resume(run):
        assert file.read_bytes() == first
        assert (run / "records.cut").read_bytes() == second[:30]


def test_a_second_sweep_is_refused(run: Path, tmp_path: Path) -> None:
    with RunWriter.resume(run), pytest.raises(BadInput, match="another sweep writes there"):
        RunWriter.resume(run)
    with pytest.raises(BadInput, match="already holds a Run"):
        RunWriter.create(run, RunHead(started_at=NOW))
    with RunWriter.resume(run):
        pass  # the lock is free again


def test_nothing_can_be_written_into_a_device_or_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (Path("/dev/full"), tmp_path / "file", Path("/proc/none")):
        with pytest.raises(BadInput, match=str(place)):
            RunWriter.create(place, RunHead(started_at=NOW))


def _append_with_little_space(folder: str, answer: "multiprocessing.connection.Connection") -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = os.path.getsize(Path(folder) / "records.jsonl")
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
    try:
        with RunWriter.resume(Path(folder)) as writer:
            writer.append([make_record("c")])
        answer.send("no error")
    except BadInput as error:
        answer.send(str(error))


def test_a_write_cut_short_leaves_the_older_records(run: Path) -> None:
    before = lines(run)
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_append_with_little_space, args=(str(run), theirs))
    process.start()
    process.join()
    assert "records.jsonl: can't be written: File too large" in mine.recv()
    assert lines(run) == before


def test_a_full_disk(tmp_path: Path) -> None:
    mounted = tmp_path / "tiny"
    mounted.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", mounted], capture_output=True)
    if done.returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        with RunWriter.create(mounted / "run", RunHead(started_at=NOW)) as writer:
            writer.append([make_record("a")])
            with pytest.raises(BadInput, match="No space left on device"):
                writer.append([make_record(f"k{i}") for i in range(100)])
            with pytest.raises(BadInput, match="No space left on device"):
                write_whole(mounted / "run" / "run.json", b"x" * 100_000)
        assert [r.kernel for r in read_run(mounted / "run").records] == ["a"]
        assert sorted(f.name for f in (mounted / "run").iterdir()) == [".lock", "records.jsonl", "run.json"]
    finally:
        subprocess.run(["umount", mounted], check=True)


def test_scalars_of_other_libraries_are_stored_as_numbers(tmp_path: Path) -> None:
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    samples = [numpy.float32(1.5), numpy.float64(2.5), torch.tensor(3.5)]
    places = {name: [0, 1, 2] for name in ("order", "block", "round")}
    record = msgspec.structs.replace(make_record("a"), samples_us=samples, flops=numpy.int64(7), **places)
    with RunWriter.create(tmp_path / "run", RunHead(started_at=NOW)) as writer:
        writer.append([record])
        with pytest.raises(NotImplementedError, match="a Record holds a object"):
            writer.append([msgspec.structs.replace(record, samples_us=[object()])])
    (stored,) = read_run(tmp_path / "run").records
    assert stored.samples_us == [1.5, 2.5, 3.5] and stored.flops == 7


def test_a_removed_folder_is_named(run: Path) -> None:
    with RunWriter.resume(run) as writer:
        for file in run.iterdir():
            file.unlink()
        run.rmdir()
        with pytest.raises(BadInput, match=r"records\.jsonl: can't be opened"):
            writer.append([make_record("c")])
