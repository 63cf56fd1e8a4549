"""A kernel that hangs, dies or is killed takes only itself: real measuring processes."""

import os
import threading
import time
from pathlib import Path

import msgspec
import pytest
from test_group import make_task, stub

from andrea_bench.errors import EnvironmentUnfit
from andrea_bench.measure.clock import FakeClock
from andrea_bench.measure.session import InProcess, KernelStopped, Lost, Progress, Session, Worker
from andrea_bench.measure.task import Task
from andrea_bench.record import Record


@pytest.fixture(scope="module")
def session():  # type: ignore[no-untyped-def]
    with Session([Worker("cpu", threads=1)]) as one:
        yield one


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("hangs", "timeout", "hung: no end after 2 s"),
        ("hangs_later", "timeout", "hung"),
        ("killed", "out_of_memory", "killed (signal 9)"),
        ("crashes", "error", "SIGABRT"),
    ],
)
def test_a_lost_kernel_is_marked_and_its_group_repeated(session: Session, name: str, status: str, says: str) -> None:
    records = session.measure(make_task(stub("good"), stub(name), stub("prints"), kernel_limit_s=2.0))
    assert [r.status for r in records] == ["ok", status, "ok"]
    assert says in (records[1].reason or "")
    assert records[0].round == records[2].round


def test_a_kernel_that_exits_ends_the_sweep(session: Session) -> None:
    with pytest.raises(KernelStopped, match="SystemExit"):
        session.measure(make_task(stub("good"), stub("wants_out")))


def test_samples_come_from_every_process() -> None:
    with Session([Worker("cpu", threads=1), Worker("cpu", threads=1)]) as two:
        (record,) = two.measure(make_task(stub("good")))
    assert record.status == "ok"
    assert sorted(set(record.block)) == [0, 1]
    assert len(set(zip(record.block, record.round, strict=True))) == len(record.samples_us)
    assert sorted(record.order) == list(range(len(record.samples_us)))


def test_records_are_of_the_schema(session: Session) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = Path(__file__).parents[2] / "andrea_bench" / "schema" / "record.schema.json"
    validator = jsonschema.Draft202012Validator(msgspec.json.decode(schema.read_bytes()))
    for record in session.measure(make_task(stub("good"), stub("broken"), stub("wrong_mask"))):
        validator.validate(msgspec.to_builtins(record))


def test_the_current_folder_is_not_what_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("andrea_bench", "andrea_kernels", "torch", "msgspec"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise ImportError('another checkout')\n")
    monkeypatch.chdir(tmp_path)
    with Session([Worker("cpu", threads=1)]) as one:
        (record,) = one.measure(make_task(stub("good")))
    assert (record.status, record.reason) == ("ok", None)


def test_a_kernel_that_hung_is_not_tried_in_further_processes() -> None:
    """A clock of 16 processes would else wait for it 16 times."""
    asked = []

    class Hanging:
        def run(self, task: Task, progress: Progress) -> list[Record]:
            asked.append([name for _, name in task.members])
            if stub("hangs") in task.members:
                raise Lost(task.members.index(stub("hangs")), "timeout", "hung")
            return InProcess(FakeClock).run(task, progress)

        def close(self) -> None:
            pass

    with Session([Hanging(), Hanging(), Hanging()]) as three:
        good, hung = three.measure(make_task(stub("good"), stub("hangs")))
    assert (good.status, hung.status) == ("ok", "timeout") and set(good.block) == {0, 1, 2}
    assert [len(names) for names in asked] == [2, 1, 1, 1]


def test_samples_of_a_second_process_are_not_taken_for_those_of_the_first() -> None:
    """A process that was killed while it waited for its turn: a new one would not have compared the kernel."""
    worker = Worker("cpu", 1)
    worker.start()
    try:
        assert worker._process is not None
        worker._process.kill()
        worker._process.wait()
        with pytest.raises(Lost):
            worker.run(msgspec.structs.replace(make_task(stub("good")), checked=True), lambda kernel, stage: None)
        (record,) = worker.run(make_task(stub("good")), lambda kernel, stage: None)
        assert record.status == "ok"
    finally:
        worker.close()


def test_a_process_can_be_kept_on_one_cpu() -> None:
    worker = Worker("cpu", 1)
    last = max(os.sched_getaffinity(0))
    worker.pin(last)  # before it is there: nothing to keep
    try:
        worker.start()
        assert worker._process is not None
        worker.pin(last)
        assert os.sched_getaffinity(worker._process.pid) == {last}
        worker.pin(4095)  # none of the machine's: it stays where it is
        assert os.sched_getaffinity(worker._process.pid) == {last}
        (record,) = worker.run(make_task(stub("good")), lambda kernel, stage: None)
        assert record.status == "ok"
    finally:
        worker.close()


@pytest.mark.parametrize("seconds", [0.0, 0.5])  # before its process is there, and while it is waited for
def test_closing_ends_what_another_thread_waits_for(seconds: float, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(600)\n")
    worker = Worker("cpu", 1, {"PYTHONPATH": str(tmp_path)})
    ended: list[str] = []

    def start() -> None:
        try:
            worker.start()
        except (EnvironmentUnfit, Lost) as error:
            ended.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    time.sleep(seconds)
    worker.close()
    thread.join(timeout=30)
    assert not thread.is_alive() and len(ended) == 1
    with pytest.raises(Lost, match="no process is started any more"):
        worker.run(make_task(stub("good")), lambda kernel, stage: None)
