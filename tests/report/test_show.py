"""`show`: on what and how well a Run was measured, several Runs, Runs at the edge."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from made_up import RUN, Change, changed_run, on_h200

from andrea_bench.cli.console import note
from andrea_bench.cli.main import main
from andrea_bench.report.rows import group_rows
from andrea_bench.report.terminal import tally
from andrea_bench.store import read_run

GPU = {"device": "cuda", "gpu": {"name": "NVIDIA H200"}, "driver_version": "580.95"}


@pytest.fixture(autouse=True)
def ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["show", *map(str, arguments)]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    return text


def flat(text: str) -> str:
    """The text in one line, however it was folded."""
    return " ".join(text.split())


def records_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]


def no_times(record: dict[str, Any]) -> None:
    record |= {"status": "error", "reason": "out of luck", "samples_us": [], "order": [], "block": [], "round": []}


# ---- machine and validity ----------------------------------------------------------------------------
def test_the_end_says_machine_conditions_and_validity(capsys: pytest.CaptureFixture[str]) -> None:
    end = flat(shown(capsys, RUN).rpartition("\n\n")[2])
    records = records_of(RUN)
    timed = [record for record in records if record["samples_us"]]
    doubted = [record for record in timed if record["validity"]["verdict"] == "suspect"]
    assert (len(records), len(timed), len(doubted)) == (76, 60, 2)
    assert end == (
        "76 cells: 60 ok, 16 unsupported, measured from 2026-01-31T12:00:00.000+00:00 "
        "times: 58 valid, 2 suspect, 0 invalid; most often: other processes kept N of N CPUs busy (2 cells) "
        "without a time: 16 cells; most often: unsupported: runs on cuda only (or TRITON_INTERPRET=1, for correctness "
        "only), not on cpu (16 cells) on Example CPU (1 thread), host bench-host, torch 2.13.0+cpu"
    )


def test_the_commonest_doubts_and_reasons_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turns = iter(range(1000))

    def change(record: dict[str, Any]) -> None:
        at = next(turns)
        if not record["samples_us"]:
            record["reason"] = "no such kernel" if at % 2 else f"needs {at} GiB"
        elif at % 3 == 0:
            reasons = [f"the clock fell to {at} MHz", "the clock fell to 3 MHz"]
            record["validity"] = {"verdict": "invalid", "reasons": reasons}
        elif at % 6 == 1:
            record["validity"] = {"verdict": "suspect", "reasons": ["steal"]}

    run = changed_run(tmp_path / "run", change)
    records = records_of(run)
    verdicts = Counter(record["validity"]["verdict"] for record in records if record["samples_us"])
    missing = sum(record["reason"] == "no such kernel" for record in records)
    assert verdicts["invalid"] > verdicts["suspect"] > 2 < missing
    end = flat(shown(capsys, run).rpartition("\n\n")[2])
    assert f"times: {verdicts['valid']} valid, {verdicts['suspect']} suspect, {verdicts['invalid']} invalid; " in end
    # A cell with two doubts of one kind counts once.
    assert f"most often: the clock fell to N MHz ({verdicts['invalid']} cells) without" in end
    assert f"most often: unsupported: no such kernel ({missing} cells) on" in end


def test_a_gpu_is_named_with_its_driver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, changed_run(tmp_path / "run", on_h200, GPU))
    assert "\non NVIDIA H200, host bench-host, torch 2.13.0+cpu, driver 580.95\n" in text
    assert "\n- on NVIDIA H200, bfloat16, batch 1, seq_len 32: " in text and "this GPU" not in text


def test_numbers_of_threads_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def half(record: dict[str, Any]) -> None:
        if record["suite"] == "layer":
            record["device"] = "cpu:threads=2"

    text = shown(capsys, changed_run(tmp_path / "run", half))
    assert "on Example CPU (1 thread) and Example CPU (2 threads), host bench-host" in flat(text)
    assert "- on Example CPU (2 threads), float32, batch 1, seq_len 32: a layer of fused projections" in flat(text)


# ---- several -----------------------------------------------------------------------------------------
def test_several_runs_stand_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    changed_run(Path("one"))
    changed_run(Path("two[/a]"), None, {"host": "other-host"}, suites=("layer",))
    one, two = shown(capsys, "one"), shown(capsys, "two[/a]")
    assert "host bench-host" in one and "host other-host" in two
    assert shown(capsys, "one", "two[/a]") == f"one\n{one}\ntwo[/a]\n{two}"


def test_json_of_several_is_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = changed_run(tmp_path / "other", suites=("layer",))
    assert main(["show", str(RUN), "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert main(["show", str(RUN), str(other), "--json"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert both[0] == one and one["run"] == str(RUN)
    assert [document["run"] for document in both] == [str(RUN), str(other)]
    assert one["answers"][0]["text"].startswith("on Example CPU (1 thread), float32, batch 1, seq_len 32: ")


def test_a_run_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in ([], ["--json"]):
        assert main(["show", str(RUN), str(tmp_path / "none"), *as_json]) == 2
        out, err = capsys.readouterr()
        assert err == f"andrea-bench: {tmp_path / 'none'}: there is no such Run (a folder that `sweep` wrote)\n"
        # What comes before it is shown; half a JSON document is not.
        assert ("76 cells: 60 ok" in out) == (not as_json) and bool(out) == (not as_json)
    assert main(["show"]) == 2
    assert "Missing argument" in capsys.readouterr().err


# ---- at the edge -------------------------------------------------------------------------------------
def on_two_devices(record: dict[str, Any]) -> None:
    if record["suite"] in ("projection", "layout"):
        record["device"] = "cuda"
        record["problem"]["dtype"] = "bfloat16"


EDGES: dict[str, tuple[Change | None, int | None, str]] = {
    "every cell failed": (no_times, None, "76 cells: 76 error, measured from 2026-01-31T12:00:00.000+00:00 without a "
                          "time: 76 cells; most often: error: out of luck (76 cells) on Example CPU (1 thread), host"),
    "one cell": (None, 1, "1 cell: 1 ok, measured from 2026-01-31T12:00:00.000+00:00 times: 1 valid, 0 suspect, 0 "
                 "invalid on Example CPU (1 thread), host"),
    "none": (None, 0, "no cells, measured from 2026-01-31T12:00:00.000+00:00 on Example CPU (1 thread), host"),
    "two devices": (on_two_devices, None, "on this GPU (cuda) and Example CPU (1 thread), host bench-host"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("columns", ["20", "80"])
def test_runs_at_the_edge(
    name: str, columns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    change, keep, says = EDGES[name]
    run = changed_run(tmp_path / "run", change, complete=keep is None)
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    (run / "records.jsonl").write_text("".join(lines[:keep]))
    monkeypatch.setenv("COLUMNS", columns)
    text = shown(capsys, run)
    assert max(map(len, text.splitlines())) <= int(columns)
    if columns == "80":
        assert says in flat(text)
    assert ("Answers" in text) == (name == "two devices")
    if name == "two devices" and columns == "80":
        assert "- on this GPU (cuda), bfloat16, batch 1, seq_len 32: " in text
        assert "- on Example CPU (1 thread), float32, batch 1, seq_len 32" in text


def test_runs_of_two_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    h200 = changed_run(tmp_path / "h200", on_h200, GPU)
    text = shown(capsys, RUN, h200)
    assert "\non Example CPU (1 thread), host bench-host" in text and "\non NVIDIA H200, host bench-host" in text


def test_environments_that_say_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = {"device": "cpu", "cpu": None, "libraries": None, "host": None, "gpu": None}
    text = shown(capsys, changed_run(tmp_path / "run", None, nothing))
    assert text.endswith("\non this CPU\n") and "- on this CPU, float32, batch 1, seq_len 32: " in text


# ---- control characters ------------------------------------------------------------------------------
def test_notes_show_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = changed_run(tmp_path / "esc\x1b[2Jape", complete=False)
    assert main(["show", str(run)]) == 0
    said = capsys.readouterr().err
    assert "esc\u241b[2Jape" in said and "\x1b" not in said
    note("bell\x07 [red]\r[/] 100\x9b1m")
    assert capsys.readouterr().err == "bell\u2407 [red]\u240d[/] 100\ufffd1m\n"


def test_a_machine_s_own_names_show_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"host": "a\x1b[1mb", "cpu": {"model": "c\nd"}, "libraries": {"torch": "2\x9b1"}}
    text = shown(capsys, changed_run(tmp_path / "run", None, names))
    assert text.endswith("\non c d (1 thread), host a\u241b[1mb, torch 2\ufffd1\n") and "\x1b" not in text


def test_a_tally_counts_each_cell_once() -> None:
    counts = tally(group_rows(read_run(RUN).records))
    assert counts.statuses.total() == counts.devices.total() == 76
    assert counts.verdicts.total() + counts.reasons.total() == 76
