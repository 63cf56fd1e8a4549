"""The verbs gate and compare: exit codes, one line for bad input, every output form."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import msgspec
import pytest
from verdict_runs import make_record

from andrea_bench.cli.main import main
from andrea_bench.errors import BadInput
from andrea_bench.verdicts import parse_percent

WriteRun = Callable[..., Path]
BASE = [100.0, 101.0, 99.5, 100.4, 99.8, 100.9, 100.2, 99.1]
SCHEMA = json.loads((Path(__file__).parents[2] / "andrea_bench/schema/verdict.schema.json").read_text())


def runs(write_run: WriteRun, factor: float) -> tuple[str, str]:
    base = write_run("base run", [make_record(k, BASE) for k in ("a", "b")])
    head = write_run("head", [make_record("a", BASE[::-1]), make_record("b", [factor * us for us in BASE[::-1]])])
    return str(base), str(head)


@pytest.fixture(autouse=True)
def no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("factor", "options", "exit_code"),
    [(1.0, [], 0), (1.2, [], 1), (1.2, ["--max-slowdown", "30%"], 0), (1.05, [], 3),
     (1.05, ["--on-inconclusive", "fail"], 1), (1.05, ["--on-inconclusive", "pass"], 0), (0.8, [], 0)],
)  # fmt: skip
def test_exit_codes_and_schema(
    write_run: WriteRun, capsys: pytest.CaptureFixture[str], factor: float, options: list[str], exit_code: int
) -> None:
    paths = runs(write_run, factor)
    assert main(["gate", *paths, "--json", *options]) == exit_code
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert document["exit_code"] == exit_code
    assert main(["compare", *paths, "--json", *options]) == 0
    compared = json.loads(capsys.readouterr().out)
    jsonschema.validate(compared, SCHEMA)
    assert compared["exit_code"] == exit_code
    assert compared["policy"]["family"] == "benjamini_hochberg"


def test_table_names_the_slow_cell_first(write_run: WriteRun, capsys: pytest.CaptureFixture[str]) -> None:
    paths = runs(write_run, 1.2)
    assert main(["gate", *paths]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("slower") and " b " in lines[1] and "1.200" in lines[1]
    assert lines[-1] == "slower: 1 slower, 1 same (exit 1)"
    assert main(["compare", *paths]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "slower: 1 slower, 1 same (gate would exit 1)"


@pytest.mark.parametrize(
    ("system", "variable", "start"),
    [("github", "GITHUB_ACTIONS", "::error title=slower head_width b"),
     ("azure", "TF_BUILD", "##vso[task.logissue type=error]slower head_width b"),
     ("teamcity", "TEAMCITY_VERSION", "##teamcity[message text='slower head_width b")],
)  # fmt: skip
def test_annotations_of_ci_systems(
    write_run: WriteRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, system: str,
    variable: str, start: str,
) -> None:  # fmt: skip
    paths = runs(write_run, 1.2)
    monkeypatch.setenv(variable, "true")
    main(["gate", *paths])
    assert sum(line.startswith(start) for line in capsys.readouterr().out.splitlines()) == 1
    main(["gate", *paths, "--json"])
    captured = capsys.readouterr()
    json.loads(captured.out)
    assert start in captured.err
    main(["gate", *paths, "--annotations", "none"])
    assert start not in capsys.readouterr().out


def test_markdown_and_junit(write_run: WriteRun, tmp_path: Path) -> None:
    hostile = "a|b <script> [x](y) @me \x07"
    head = make_record("a", status="error", reason=hostile)
    base = write_run("b", [make_record("a", BASE), make_record("b", BASE), make_record("c", [5.0])])
    other = write_run("h", [head, make_record("b", [1.2 * us for us in BASE]), make_record("c", [5.1])])
    markdown, junit = tmp_path / "out.md", tmp_path / "out.xml"
    assert main(["gate", str(base), str(other), "--markdown", str(markdown), "--junit", str(junit)]) == 1
    text = markdown.read_text()
    assert text.startswith("**broken: 1 broken, 1 slower, 1 inconclusive")
    assert "a\\|b \\<script\\> \\[x\\](y) \\@me" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows] == ["| verdict", "| broken", "| slower", "| inconclusive"]
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "3", "1")
    whole, broken, _ = suite.findall("testcase/failure")
    assert (whole.get("message") or "").endswith("(exit 1)")
    assert "a|b <script>" in (broken.get("message") or "")


def test_a_full_disk_is_one_line(write_run: WriteRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", *runs(write_run, 1.0), "--markdown", "/dev/full/x.md"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [("5", "ambiguous; write --max-slowdown 5%, or --max-slowdown 500% if it is a share"),
     ("0.05", "ambiguous; write --max-slowdown 0.05%, or --max-slowdown 5% if it is a share"),
     ("five", "not a percentage"), ("%", "not a percentage"), ("-5%", "not between"), ("nan%", "not between"),
     ("٥%", "not a percentage"), ("1_0%", "not a percentage"),
     ("inf%", "not between"), ("2000%", "not between"), ("", "not a percentage")],
)  # fmt: skip
def test_percentages_that_are_refused(
    write_run: WriteRun, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    assert main(["gate", *runs(write_run, 1.0), "--max-slowdown", text]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and len(captured.err.splitlines()) == 1 and captured.out == ""


def test_percentages_that_are_taken() -> None:
    assert [parse_percent(t) for t in ("5%", "0.5 %", " 12% ", "0%")] == [0.05, 0.005, 0.12, 0.0]
    with pytest.raises(BadInput):
        parse_percent("5")


BAD_RECORDS: dict[str, tuple[str, str | bytes | None]] = {
    "empty head": ("run.json", ""),
    "an object without fields": ("run.json", "{}"),
    "an array": ("run.json", "[]"),
    "null results": ("run.json", '{"results": null}'),
    "cut JSON": ("run.json", '{"started_at": "2026'),
    "a newer schema": ("run.json", '{"schema_version": 99, "started_at": "x"}'),
    "a cut record": ("records.jsonl", '{"cell_id": "x"'),
    "a record without fields": ("records.jsonl", "{}\n"),
    "an array for a record": ("records.jsonl", "[]\n"),
    "a null sample": ("records.jsonl", b"null"),
    "a sample that is text": ("records.jsonl", b'"N/A"'),
    "bytes that are no text": ("records.jsonl", b"\xff\xfe\n"),
    "compressed bytes": ("records.jsonl", b"\x1f\x8b\x08\x00 \xff\n"),
    "deep nesting": ("run.json", '{"started_at": "x", "environment": {"a": ' + "[" * 9000 + "]" * 9000 + "}}"),
    "a machine that is a list": ("run.json", '{"started_at": "x", "environment": {"cpu": ["x"]}}'),
    "libraries that are text": ("run.json", '{"started_at": "x", "environment": {"libraries": "torch"}}'),
    "fewer blocks than samples": ("records.jsonl", b'"block":[0]'),
    "no record": ("records.jsonl", ""),
    "no file of records": ("records.jsonl", None),
}
SAMPLES = (b"null", b'"N/A"', b'"block":[0]')  # put into a record in place of one sample, or of its blocks


@pytest.mark.parametrize("case", BAD_RECORDS)
@pytest.mark.parametrize("side", [0, 1])
def test_bad_files_are_one_line_that_names_the_file(
    write_run: WriteRun, capsys: pytest.CaptureFixture[str], case: str, side: int
) -> None:
    paths = runs(write_run, 1.0)
    file, content = BAD_RECORDS[case]
    if content in SAMPLES:
        line = msgspec.json.encode(make_record("a", BASE)) + b"\n"
        content = re.sub(rb'"block":\[[^]]*\]' if b"block" in content else rb"100\.0", content, line)
    if content is None:
        (Path(paths[side]) / file).unlink()
    else:
        (Path(paths[side]) / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    for arguments in (["gate", *paths], ["compare", *paths], ["report", paths[side], "--markdown", "/dev/null"]):
        assert main(arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and len(captured.err.splitlines()) == 1
        assert file in captured.err


@pytest.mark.parametrize("on_inconclusive", ["report", "fail", "pass"])
def test_nan_and_infinity_in_a_file_never_pass(
    write_run: WriteRun, capsys: pytest.CaptureFixture[str], on_inconclusive: str
) -> None:
    for name in ("NaN", "Infinity", "-Infinity", "0", "-1", "1e308", "5e-324"):
        line = msgspec.json.encode(make_record("a", BASE)).decode().replace("100.0", name, 1)
        base = write_run(f"b{name}", [make_record("a", BASE[::-1])])
        head = write_run(f"h{name}", [line])
        assert main(["gate", str(base), str(head), "--json", "--on-inconclusive", on_inconclusive]) == 3
        document = json.loads(capsys.readouterr().out)
        jsonschema.validate(document, SCHEMA)
        assert document["cells"][0]["verdict"] == "inconclusive" and "invalid" in document["cells"][0]["reason"]


def test_a_time_of_zero_for_a_cell_that_ran_out_of_memory_is_no_speed_up(
    write_run: WriteRun, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = make_record("a", [0.0], status="out_of_memory", reason="killed")
    paths = [str(write_run("b", [make_record("a", BASE)])), str(write_run("h", [gone]))]
    assert main(["gate", *paths, "--json"]) == 1
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert cell["verdict"] == "broken" and "out_of_memory" in cell["reason"]


def test_a_run_of_one_record_is_judged_by_what_it_holds(
    write_run: WriteRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """With eight processes it can be decided, with one it can't; neither is an error."""
    for times, exit_code in ((BASE, 0), (BASE[:1], 3)):
        base = write_run(f"b{len(times)}", [make_record("a", times)])
        head = write_run(f"h{len(times)}", [make_record("a", [us + 0.1 for us in times])])
        assert main(["gate", str(base), str(head), "--json"]) == exit_code
        assert len(json.loads(capsys.readouterr().out)["cells"]) == 1


def test_identical_runs_are_one_line(write_run: WriteRun, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    base, _ = runs(write_run, 1.0)
    copy = tmp_path / "copy"
    shutil.copytree(base, copy)
    for head, says in ((base, "is both base and head"), (str(copy), "is a copy of the other")):
        assert main(["gate", base, head]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and len(captured.err.splitlines()) == 1 and says in captured.err


def test_nothing_that_could_run_is_no_pass(write_run: WriteRun, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(write_run(name, [make_record("a"), make_record("b")])) for name in ("b", "h")]
    assert main(["gate", *paths]) == 3
    assert "no time in base for 2 cells" in capsys.readouterr().out


def test_times_in_other_units_are_not_compared(write_run: WriteRun, capsys: pytest.CaptureFixture[str]) -> None:
    base = write_run("b", [make_record("a", BASE)])
    head = write_run("h", [make_record("a", [us / 1000 for us in BASE[::-1]])])
    assert main(["gate", str(base), str(head)]) == 3
    told = " ".join(capsys.readouterr().out.split())
    # No option lets that pass.
    assert "one of them is not in microseconds; 1 not comparable (exit 3)" in told


def test_a_run_that_is_partly_a_copy_does_not_pass(write_run: WriteRun, capsys: pytest.CaptureFixture[str]) -> None:
    base = write_run("b", [make_record("a", BASE), make_record("b", BASE[::-1])])
    head = write_run("h", [make_record("b", BASE[::-1]), make_record("a", [us * 1.001 for us in BASE])])
    assert main(["gate", str(base), str(head), "--json", "--on-inconclusive", "pass"]) == 3
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [cell["verdict"] for cell in cells] == ["same", "inconclusive"]
    assert "copy of the other" in cells[1]["reason"]


def test_what_editors_leave_is_read(write_run: WriteRun, capsys: pytest.CaptureFixture[str]) -> None:
    """A byte order mark, and empty lines at the end."""
    base, head = runs(write_run, 1.0)
    file = Path(base) / "records.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes() + b"\n\n")
    assert main(["gate", base, head]) == 0


def test_outputs_are_looked_at_before_anything_is_judged(
    write_run: WriteRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = runs(write_run, 1.0)
    for verb in ("gate", "compare"):
        assert main([verb, *paths, "--junit", str(tmp_path)]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and f"{tmp_path}: is no file's name" in captured.err


def test_a_missing_baseline_has_its_own_message(write_run: WriteRun, capsys: pytest.CaptureFixture[str]) -> None:
    _, head = runs(write_run, 1.0)
    assert main(["gate", "nowhere", head]) == 2
    assert "no baseline" in capsys.readouterr().err
    assert main(["gate", "nowhere", head, "--allow-missing", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert "no baseline" in document["reason"]
    assert main(["gate", head, "nowhere", "--allow-missing"]) == 2
    capsys.readouterr()
    assert main(["gate", str(Path(head).parent), head]) == 2
    assert "is no Run" in capsys.readouterr().err


def test_records_of_older_versions_are_compared_on_what_they_have(
    write_run: WriteRun, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(msgspec.json.encode(make_record("a", BASE)))
    for name in ("validity", "counters", "code", "host_us", "selected_backend", "order"):
        del document[name]
    base = write_run("b", [json.dumps({**document, "a_newer_field": 1})])
    head = write_run("h", [make_record("a", BASE[::-1])])
    assert main(["gate", str(base), str(head)]) == 0


def test_zeros_are_numbers(write_run: WriteRun, capsys: pytest.CaptureFixture[str]) -> None:
    """No spread at all: the smallest detectable change beyond an allowance of 0 is 0, and is shown as such."""
    base = write_run("b", [make_record("a", [100.0] * 6)])
    head = write_run("h", [make_record("a", [100.0] * 7)])
    assert main(["gate", str(base), str(head), "--json", "--max-slowdown", "0%"]) == 0
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert cell["ratio"] == cell["low"] == cell["high"] == 1.0
    assert cell["smallest_detectable_change"] == pytest.approx(0.001)  # the clock's floor: 0.1 of 100 us


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("case", "exit_code"),
    [("clean", 0), ("regression", 1), ("undecided", 3), ("incompatible", 3), ("no baseline", 2), ("bad argument", 2),
     ("corrupt JSON", 2)],
)  # fmt: skip
def test_the_document_keeps_the_code_that_make_loses(
    write_run: WriteRun, tmp_path: Path, case: str, exit_code: int
) -> None:
    """make turns any failure into its own 2. What is no verdict writes no document, and says why in one line."""
    base, head = runs(write_run, {"regression": 1.2, "undecided": 1.05}.get(case, 1.0))
    options = ""
    if case == "incompatible":
        moved = [make_record(k, BASE[::-1], cache="cold") for k in ("a", "b")]
        head = str(write_run("cold", moved))
    elif case == "no baseline":
        base = str(tmp_path / "nowhere")
    elif case == "bad argument":
        options = "--max-slowdown 5"
    elif case == "corrupt JSON":
        (Path(head) / "records.jsonl").write_text('{"cell_id": "x"')
    gate = f"{sys.executable} -m andrea_bench gate '{base}' '{head}' {options} --json > verdict.json"
    (tmp_path / "Makefile").write_text(f"gate:\n\t@{gate}\n")
    done = subprocess.run(["make", "-C", str(tmp_path), "gate"], capture_output=True, text=True, check=False)
    assert done.returncode == (2 if exit_code else 0)
    text = (tmp_path / "verdict.json").read_text()
    if exit_code == 2:
        assert text == "" and sum(line.startswith("andrea-bench: ") for line in done.stderr.splitlines()) == 1
    else:
        assert json.loads(text)["exit_code"] == exit_code


def test_gate_never_imports_torch(write_run: WriteRun) -> None:
    base, head = runs(write_run, 1.0)
    code = (
        "import sys; from andrea_bench.cli.main import main; main(['gate', *sys.argv[1:]]); "
        "heavy = {'torch', 'triton', 'scipy', 'numpy', 'polars'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, base, head], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("slowdown", "exit_code"), [(1.0, 0), (1.2, 1)])
@pytest.mark.parametrize("options", ["", "--json"])
def test_a_reader_that_leaves_does_not_turn_a_regression_into_a_pass(
    write_run: WriteRun, slowdown: float, exit_code: int, options: str
) -> None:
    base, head = runs(write_run, slowdown)
    gate = f"{{ sleep 0.2; {sys.executable} -u -m andrea_bench gate '{base}' '{head}' {options}; }} | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", gate], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (exit_code, "")


def test_a_metric_is_not_for_results_of_asv(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of them has its own unit and its own direction: an option that nothing reads would mislead."""
    monkeypatch.setattr("andrea_bench.tracking.folder.is_tracked", lambda side: True)
    assert main(["gate", "a", "b", "--metric", "tflops"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "--metric tflops: is for Runs" in captured.err
