"""`sweep`, `show` and `plan` from the command line, with a clock that doesn't measure."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from andrea_bench.cli.main import main
from andrea_bench.measure.sweep import default_folder

STUBS = Path(__file__).parents[1] / "measure" / "stub_kernels.py"
TINY = ["-a", "n_head=2", "-a", "head_dim=16", "-a", "seq_len=32,48"]
OUTPUT_KERNELS = ["--kernel", "concat_matmul,per_head_sum,strided_matmul"]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def command(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "andrea_bench", *arguments],
        capture_output=True,
        text=True,
        **options,  # type: ignore[call-overload]
    )


def kept(folder: str = "run") -> list[dict]:
    return [json.loads(line) for line in Path(folder, "records.jsonl").read_text().splitlines()]


def test_from_plan_to_report(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["output", *TINY, *OUTPUT_KERNELS]
    assert main(["plan", *arguments, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)["cells"]
    assert main(["sweep", *arguments, "--fake-clock", "--out", "run"]) == 0
    shown = capsys.readouterr().out
    records = kept()
    assert [cell["cell_id"] for cell in planned] == [record["cell_id"] for record in records]
    assert len({record["cell_id"] for record in records}) == 6
    assert all(record["status"] == "ok" for record in records)
    assert "6 cells: 6 ok. The Run lies in run" in shown
    assert "andrea-bench show run" in shown
    assert main(["show", "run"]) == 0
    again = capsys.readouterr().out
    assert shown.partition("\n6 cells")[0] == again.partition("\n6 cells")[0]
    assert max(map(len, shown.splitlines())) <= 80
    head = json.loads(Path("run/run.json").read_text())
    assert head["complete"] is True
    assert head["arguments"][:2] == ["sweep", "output"]


def test_json_is_one_document_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "output", *TINY, *OUTPUT_KERNELS, "--fake-clock", "--json", "--out", "run"]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert len(document["records"]) == 6
    # The fake clock gives kernel i of a group (i + 1) * 100 microseconds.
    ratios = [a["ratio"] for a in document["answers"] if a["kernel"] == "per_head_sum"]
    assert ratios
    assert all(abs(ratio - 2) < 0.02 or abs(ratio - 0.5) < 0.02 for ratio in ratios)


@pytest.mark.parametrize(
    ("kernel", "code"),
    [("wrong_mask", 5), ("broken", 0), ("out_of_memory", 0), ("good", 0)],
)
def test_exit_codes(kernel: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sweep", "attention", *TINY, "--kernel", f"{STUBS}:{kernel}", "--fake-clock"]
    assert main([*arguments, "--out", "run"]) == code
    counted = capsys.readouterr().out
    assert f"{STUBS.name}:{kernel}" in counted.replace("\n", "").replace(" ", "")
    if kernel in ("broken", "out_of_memory"):
        assert main([*arguments, "--strict", "--out", "strict"]) == 4


def test_nothing_that_could_run_is_exit_4() -> None:
    assert main(["sweep", "attention", *TINY, "-a", "dtype=tf32", "--fake-clock", "--out", "run"]) == 4
    assert {record["status"] for record in kept()} == {"unsupported"}


def test_text_of_users_is_printed_literally(capsys: pytest.CaptureFixture[str]) -> None:
    odd = Path("x[red]y :fire: [a].py")
    shutil.copy(STUBS, odd)
    assert main(["sweep", "attention", *TINY, "--kernel", f"{odd}:broken", "--fake-clock", "--out", "rack[/a]"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "x[red]y :fire: [a].py:broken" in text
    assert "[/] crashed [red]here" in text
    assert "The Run lies in rack[/a]" in text


def test_wrong_usage_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [
        (["sweep", "atention"], "unknown suite 'atention'; closest: attention"),
        (["swep"], "unknown verb 'swep'; closest: sweep"),
        (["sweep", "--kernel", "sdpa_flahs", "attention"], "sdpa_flash"),
        (["sweep", "-a", "n_haed=4"], "unknown axis 'n_haed'; closest: n_head"),
        (["sweep", "-a", "n_head="], "empty value"),
        (["sweep", "-a", "n_head=10"], "d_model 768 is not divisible by n_head 10; nearest n_head: 8, 12"),
        (["sweep", "-a", "d_model=1600", "-a", "n_head=48"], "nearest n_head: 40, 50"),
        (
            ["sweep", "-a", "n_head=33", "-a", "n_kv_head=2", "-a", "head_dim=8"],
            "n_head 33 is not a multiple of n_kv_head 2",
        ),
        (["sweep", "-a", "dtype=fp8"], "fp8 is not measured"),
        (["sweep", "--device", "gpu"], "none of cpu, cuda, cuda:N"),
        (["sweep", "--processes", "0"], "processes 0 is not positive"),
        (["sweep", "--graph", "--device", "cpu"], "--graph needs a CUDA device"),
        (["sweep", "--kernel", "nowhere.py:f", "attention"], "there is no file nowhere.py"),
        (["plan", "-a", "batch=1:2000000"], "at most 1,000,000"),
        (["sweep", "--seed", "99999999999999999999"], "seed 99999999999999999999 is not in 0 to"),
        (["show", "absent"], "absent: there is no such Run"),
    ]
    for arguments, says in wrong:
        assert main(arguments) == 2, arguments
        error = capsys.readouterr().err
        assert error.startswith("andrea-bench: ")
        assert error.count("\n") == 1
        assert says in error, error


def test_invalid_points_are_listed_and_valid_ones_run(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["output", "-a", "n_head=6", "-a", "n_kv_head=2,4", "-a", "head_dim=16", "-a", "seq_len=16"]
    assert main(["sweep", *arguments, *OUTPUT_KERNELS, "--fake-clock", "--out", "run"]) == 0
    assert "left out: n_head 6 is not a multiple of n_kv_head 4" in capsys.readouterr().err.replace("\n", " ")
    assert {record["problem"]["n_kv_head"] for record in kept()} == {2}


def test_a_second_sweep_into_the_folder_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sweep", "output", *TINY, *OUTPUT_KERNELS, "--fake-clock", "--out", "run"]
    assert main(arguments) == 0
    before = Path("run/records.jsonl").read_bytes()
    assert main(arguments) == 2
    assert "already holds a Run" in capsys.readouterr().err
    assert Path("run/records.jsonl").read_bytes() == before


@pytest.mark.parametrize("arguments", [["ab", "projection"], []])
def test_resume_refuses_a_run_that_no_sweep_made(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "output", *TINY, *OUTPUT_KERNELS, "--fake-clock", "--out", "run"]) == 0
    head = Path("run/run.json")
    head.write_text(json.dumps({**json.loads(head.read_text()), "arguments": arguments}))
    before = Path("run/records.jsonl").read_bytes()
    assert main(["sweep", "--resume", "run"]) == 2
    assert "not by a sweep" in capsys.readouterr().err
    assert Path("run/records.jsonl").read_bytes() == before


def test_resume_refuses_another_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "output", *TINY, *OUTPUT_KERNELS, "--fake-clock", "--out", "run"]) == 0
    assert main(["sweep", "--cache", "cold", "--resume", "run"]) == 2
    assert "cache 'warm' there, 'cold' here" in capsys.readouterr().err
    assert main(["sweep", "--where", "n_head == 2", "--resume", "run"]) == 2
    assert "--resume goes on with the Run's own suites" in capsys.readouterr().err


def test_resume_counts_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    def line() -> str:
        said = " ".join(capsys.readouterr().err.split())
        found = re.search(r"(\d+ of \d+ cells in .*), about (\d+) s;", said)
        assert found, said
        seconds.append(int(found[2]))
        return found[1]

    seconds: list[int] = []
    assert main(["sweep", "output", *TINY, *OUTPUT_KERNELS, "--fake-clock", "--out", "run"]) == 0
    assert line() == "6 of 6 cells in 2 groups to be measured on cpu"
    whole = Path("run/records.jsonl").read_text().splitlines(keepends=True)
    # One group is whole, of the other a record is stored: that group is measured anew.
    for kept_lines, left in ((whole[:4], "3 of 6 cells in 1 groups"), (whole, "0 of 6 cells in 0 groups")):
        Path("run/records.jsonl").write_text("".join(kept_lines))
        assert main(["sweep", "--resume", "run", "--fake-clock"]) == 0
        assert line() == f"{left} to be measured on cpu ({'3' if left[0] == '3' else '6'} are stored)"
        assert len(kept()) == 6
    assert seconds[0] >= seconds[1] > seconds[2] == 0


def test_a_closed_pipe_is_no_error() -> None:
    assert main(["sweep", "output", *TINY, *OUTPUT_KERNELS, "--fake-clock", "--out", "my runs/β x.json"]) == 0
    shown = subprocess.run(
        f"{sys.executable} -m andrea_bench show 'my runs/β x.json' | head -1",
        shell=True, capture_output=True, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert "Traceback" not in shown.stderr
    assert shown.stderr == ""


@pytest.mark.parametrize(
    "variables", [{"PYTHONIOENCODING": "cp1252"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}, {"NO_COLOR": "1"}]
)
def test_any_encoding_gets_the_whole_report(variables: dict[str, str]) -> None:
    assert main(["sweep", "output", *TINY, *OUTPUT_KERNELS, "--fake-clock", "--out", "βx"]) == 0
    shown = subprocess.run(
        [sys.executable, "-m", "andrea_bench", "show", "βx"], capture_output=True, env={**os.environ, **variables}
    )
    assert shown.returncode == 0, shown.stderr
    assert b"6 cells: 6 ok" in shown.stdout
    assert b"\x1b[" not in shown.stdout


def test_killed_at_random_moments_nothing_finished_is_lost() -> None:
    """SIGKILL at twenty moments: every record that was stored stays, and the resumed Run has each cell once."""
    axes = ["-a", "n_head=2", "-a", "head_dim=16", "-a", "seq_len=16:64:4"]
    start = [sys.executable, "-m", "andrea_bench", "sweep"]
    fresh = [*start, "output", *axes, *OUTPUT_KERNELS, "--fake-clock", "--out", "run"]
    generator = random.Random(7)
    stored: list[dict] = []
    for attempt in range(20):
        process = subprocess.Popen(
            [*start, "--resume", "run", "--fake-clock"] if Path("run/run.json").exists() else fresh,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        seen = len(stored)
        deadline = time.monotonic() + 20
        # Most of the time goes into importing torch: wait for the first new record, then kill somewhere after.
        while time.monotonic() < deadline and process.poll() is None:
            file = Path("run/records.jsonl")
            if attempt % 4 == 0 or (file.exists() and file.read_bytes().count(b"\n") > seen):
                break
            time.sleep(0.002)
        time.sleep(generator.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        process.wait()
        whole = Path("run/records.jsonl").read_bytes() if Path("run/records.jsonl").exists() else b""
        now = [json.loads(line) for line in whole.splitlines(keepends=True) if line.endswith(b"\n")]
        assert [r["cell_id"] for r in now[: len(stored) // 3 * 3]] == [
            r["cell_id"] for r in stored[: len(stored) // 3 * 3]
        ]
        stored = now
    assert main(["sweep", "--resume", "run", "--fake-clock"]) == 0
    ids = [record["cell_id"] for record in kept()]
    assert len(ids) == len(set(ids)) == 13 * 3
    assert json.loads(Path("run/run.json").read_text())["complete"] is True


@pytest.mark.parametrize("name", ["Büro/工作站:1", "CON", "..", "", "x" * 300, "node[gpu0]. "])
def test_a_run_has_a_folder_of_its_own_whatever_the_host_is_called(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("andrea_bench.measure.sweep.socket.gethostname", lambda: name)
    folder = default_folder()
    assert folder.parent == Path("results")
    assert re.fullmatch(r"\d{8}-\d{6}-[A-Za-z0-9-]{1,40}", folder.name)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_with_130_and_a_usable_run(number: int) -> None:
    axes = ["-a", "n_head=2", "-a", "head_dim=16", "-a", "seq_len=16:64:2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "andrea_bench", "sweep", "output", *axes, *OUTPUT_KERNELS, "--out", "run"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    file = Path("run/records.jsonl")
    while process.poll() is None and not (file.exists() and file.stat().st_size):
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "sweep --resume run" in err
    assert "ok. The Run lies in run" in out
    assert json.loads(Path("run/run.json").read_text())["complete"] is False
    assert len(kept()) % 3 == 0
    assert main(["show", "run"]) == 0


def test_where_nothing_could_be_measured_no_run_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "output", "-a", "seq_len=16", "--device", "cuda:99", "--out", "run"]) == 4
    assert "can't use cuda:99" in capsys.readouterr().err
    assert not Path("run").exists()
