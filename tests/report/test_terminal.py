"""`show` on the terminal: the golden text, widths, plain output, hostile names, odd bytes, readers that leave."""

import json
import os
import re
import subprocess
import sys
import unicodedata
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from test_rows import make

from andrea_bench import Problem
from andrea_bench.cli.main import main
from andrea_bench.record import RunHead
from andrea_bench.report.rows import group_rows
from andrea_bench.report.terminal import print_groups
from andrea_bench.store import RunWriter

FIXTURES = Path(__file__).parents[1] / "fixtures"
RUN = FIXTURES / "run_fake"
GOLDEN = FIXTURES / "run_fake.txt"
NOW = "2026-01-02T03:04:05.678+00:00"
ESCAPE = "\x1b"
# Cases C31 and RP03: what rich would take as markup or emoji, and what could break a line or a terminal.
NASTY = [
    "[red]x[/]", "[/a]", "[/]", "node[gpu0]", "rig :fire: 1", "x[bold]y", "\\[z]", "back\\", "[link=file:///x]y[/link]",
    "attn<64,true>", "a'b\"c", "a|b", "{{x}}", "Zürich-β",
]  # fmt: skip
# What a terminal would obey, and what is shown of it.
CONTROLS = {
    "\x1b[31mred": "\u241b[31mred", "t\x1b]0;x\x07": "t\u241b]0;x", "csi\x9b2J": "csi\ufffd2J", "nel\x85": "nel\ufffd",
    "nul\x00": "nul\u2400", "del\x7f": "del\u2421", "a\nb": "a b", "c\td": "c d", "e\rf": "e f",
}  # fmt: skip
NASTY += CONTROLS
LONG = "a_kernel_whose_name_is_much_longer_than_its_column_can_be_in_80_columns_of_a_terminal"


def seen(name: str) -> str:
    """What is shown of a name."""
    return CONTROLS.get(name, name)


@pytest.fixture(autouse=True)
def ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)


def shown(run: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["show", str(run)]) == 0
    return capsys.readouterr().out


def run_of(folder: Path, kernels: list[str], head: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A Run of one Group with these kernels, timed, and once more each with an error of that text."""
    problem = Problem(d_model=768, n_head=12, seq_len=16)
    timed = [make("attention", "attention", kernel, [1e3, 2e3, 3e3], problem, **changes) for kernel in kernels]
    failed = [
        make("attention", "attention", f"failed {n}", [], problem, status="error", reason=text, timing_mode=None)
        for n, text in enumerate(kernels)
    ]
    with RunWriter.create(folder, RunHead(started_at=NOW, complete=True, environment=head or {})) as writer:
        writer.append([*timed, *failed])
    return folder


def test_the_terminal_is_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    golden = GOLDEN.read_text(encoding="utf-8")
    text = shown(RUN, capsys)
    again = f"if the change is meant: andrea-bench show {RUN.name} | cat, into {GOLDEN.name}"
    # Spaces at the ends of lines can't be seen.
    assert [line.rstrip() for line in text.splitlines()] == golden.splitlines(), again


def test_the_golden_text_says_what_the_samples_say() -> None:
    records = [json.loads(line) for line in (RUN / "records.jsonl").read_text().splitlines()]
    golden = GOLDEN.read_text(encoding="utf-8")
    # The fake clock's fifth of ten kernels: its median by hand.
    strided = next(r for r in records if r["kernel"] == "five_steps_strided")
    ordered = sorted(strided["samples_us"])
    median = (ordered[4] + ordered[5]) / 2
    assert re.search(rf"^ five_steps_strided +{median:.0f} us ", golden, re.MULTILINE)
    status = {s: sum(r["status"] == s for r in records) for s in ("ok", "unsupported")}
    assert f"{len(records)} cells: {status['ok']} ok, {status['unsupported']} unsupported" in golden


@pytest.mark.parametrize("columns", [20, 40, 63, 64, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    hostile = run_of(tmp_path / "run", [*NASTY, LONG])
    for run in (RUN, hostile):
        text = shown(run, capsys)
        assert max(map(len, text.splitlines())) <= columns
    # Nothing of a name is lost, be it folded.
    joined = re.sub(r"\s", "", text)
    for name in [*(NASTY if columns >= 64 else []), *(["failed"] if columns >= 40 else [])]:
        assert re.sub(r"\s", "", seen(name)) in joined


def test_tables_grow_with_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path / "run", [LONG])
    rows = {}
    for columns in (80, 160):
        monkeypatch.setenv("COLUMNS", str(columns))
        rows[columns] = any(LONG in line and "2.00 ms" in line for line in shown(run, capsys).splitlines())
    assert rows == {80: False, 160: True}


def test_hostile_names_stay_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path / "run", NASTY, device="cpu[/x]")
    text = shown(run, capsys)
    lines = text.splitlines()
    for name in NASTY:
        assert any(line.startswith(f" {seen(name)} ") and "2.00 ms" in line for line in lines), name
        assert f"error: {seen(name)}" in text
    assert "on cpu[/x]" in text
    assert {char for char in text if unicodedata.category(char) == "Cc"} == {"\n"}


@pytest.mark.parametrize("name", ["[red]no[/]", "no[/a]", "no :fire:"])
def test_hostile_paths_stay_text(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tmp_path / name)]) == 2
    assert f"{name}: there is no such Run" in capsys.readouterr().err
    folder = tmp_path / name.replace("/", "_")
    with RunWriter.create(folder, RunHead(started_at=NOW)) as writer:
        writer.append([make("attention", "attention", "eager", [1.0, 2.0])])
    assert main(["show", str(folder)]) == 0
    assert f"--resume {folder}" in capsys.readouterr().err


def in_a_terminal(arguments: list[str], columns: int = 100, **environment: str) -> tuple[int, str]:
    """Exit code and output of andrea-bench on a pseudo-terminal of so many columns."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    command = [sys.executable, "-m", "andrea_bench", *arguments]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **environment})
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end was closed
            break
        if not part:
            break
        written += part
    os.close(ours)
    return process.wait(), written.decode().replace("\r\n", "\n")


def test_a_terminal_has_styles_and_its_own_width() -> None:
    code, text = in_a_terminal(["show", str(RUN)], columns=120, TERM="xterm-256color")
    assert code == 0 and f"{ESCAPE}[1m" in text
    widest = max(len(re.sub(rf"{ESCAPE}\[[0-9;]*m", "", line)) for line in text.splitlines())
    assert 80 < widest <= 120


@pytest.mark.parametrize("environment", [{"TERM": "xterm-256color", "NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_color_and_dumb_terminals_are_plain(environment: dict[str, str]) -> None:
    code, text = in_a_terminal(["show", str(RUN)], **environment)
    assert code == 0 and "five_steps_strided" in text
    assert ESCAPE not in text


def piped(
    command: str, *arguments: str | bytes, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """A line of bash, in which $@ is `andrea-bench ARGUMENTS`; its exit code is the first failing one's."""
    program: list[str | bytes] = [sys.executable, "-m", "andrea_bench", *arguments]
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command, "bash", *program],
        env={**os.environ, **environment}, capture_output=True, check=False, cwd=cwd,
    )  # fmt: skip


@pytest.mark.parametrize("arguments", [["show", str(RUN)], ["show", str(RUN), "--json"]])
@pytest.mark.parametrize("environment", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_a_reader_that_leaves_is_no_error(arguments: list[str], environment: dict[str, str]) -> None:
    # `true` leaves without having read; the sleep lets it go first.
    for reader in ("head -1", "true"):
        done = piped(f'{{ sleep 0.2; "$@"; }} | {reader}', *arguments, **environment)
        assert (done.returncode, done.stderr) == (0, b""), reader


def test_a_report_whose_reader_leaves_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "cells.csv"
    done = piped('"$@" --json | true', "report", str(RUN), "--csv", str(file), PYTHONUNBUFFERED="1")
    assert (done.returncode, done.stderr) == (0, b"")
    assert file.read_text().count("\n") == len((RUN / "records.jsonl").read_text().splitlines()) + 1
    done = piped('{ sleep 0.3; "$@" 2>&1; } | true', "report", str(RUN), "--csv", str(file))
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize("environment", [
    {"PYTHONIOENCODING": "cp1252"}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"},
])  # fmt: skip
def test_any_encoding_gets_the_whole_text(environment: dict[str, str], tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", NASTY)
    done = piped('"$@" | cat', "show", str(run), **environment)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode("cp1252", "replace")
    assert f"{2 * len(NASTY)} cells" in text and ESCAPE not in text
    assert "rich-" in text  # of Zürich-β, whose other letters the encoding may lack


def test_bytes_that_are_no_text_in_paths_and_host_names(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/run \xff\xfe"
    host = "caf\\udce9"  # as JSON holds what the system's bytes were taken for
    run = run_of(Path(os.fsdecode(folder)), ["eager"], {"device": "cpu"})
    document = (run / "run.json").read_text().replace('"cpu"', f'"cpu", "host": "{host}"')
    (run / "run.json").write_text(document)
    for arguments in (["show"], ["show", "--json"]):
        done = piped('"$@"', *arguments, folder)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr
        assert b"eager" in done.stdout
    for kind in ("csv", "parquet", "markdown", "html"):
        done = piped('"$@"', "report", folder, f"--{kind}", folder + b"/out." + kind.encode())
        assert done.returncode == 0, done.stderr
        assert (run / f"out.{kind}").stat().st_size > 100
    assert "run \\udcff\\udcfe" in (run / "out.csv").read_text(encoding="utf-8")
    done = piped('"$@"', "show", folder + b"/none")
    assert done.returncode == 2 and b"no such Run" in done.stderr and b"Traceback" not in done.stderr


def test_what_the_host_launches_slower_than_the_gpu_runs_is_said() -> None:
    on_gpu = {"device": "cuda", "timing_mode": "cuda_event", "host_us": [231.0, 231.0]}
    slow = make("layer", "layer", "five_steps", [47.0, 48.0], **on_gpu)
    quick = make("layer", "layer", "five_steps_per_head", [400.0, 401.0], **on_gpu)
    with StringIO() as out:
        print_groups(Console(file=out, width=200), group_rows([slow, quick]))
        text = out.getvalue()
    assert "the host takes longer to launch than the GPU to run (--graph: launched once): five_steps 231 us\n" in text
