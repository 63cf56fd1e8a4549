"""Cases RP04 and C36: what other writers and editors leave (line ends, byte order marks) reads as if it were plain, and
scalars of numpy and torch are shown as plain numbers."""

import codecs
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from made_up import FIXTURES, RUN

from andrea_bench.cli.main import main
from andrea_bench.report.answers import answers
from andrea_bench.report.content import MeasuredRun, Subject
from andrea_bench.report.html import html
from andrea_bench.report.markdown import markdown
from andrea_bench.report.pages import pages
from andrea_bench.report.rows import group_rows
from andrea_bench.report.subject import read_claims, read_runs
from andrea_bench.store import read_run

CRLF, LF = b"\r\n", b"\n"


def report(run: Path) -> str:
    return markdown(pages(Subject(read_runs([run], lambda head: None), None, "andrea-bench report")), "x", {})


def test_a_run_with_line_ends_of_windows_says_the_same(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("run.json", "records.jsonl"):
        content = (RUN / name).read_bytes()
        assert CRLF not in content and content.count(LF) > 40
        (run / name).write_bytes(content.replace(LF, CRLF))
    assert report(run) == report(RUN)
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for folder, file in zip((RUN, run), files, strict=True):
        assert main(["report", str(folder), "--csv", str(file)]) == 0
    plain, windows = (file.read_bytes() for file in files)
    assert plain.replace(str(RUN).encode(), b"RUN") == windows.replace(str(run).encode(), b"RUN")
    assert b"\r" not in windows


@pytest.mark.parametrize("ends", [LF, CRLF])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_claims_with_a_byte_order_mark_are_read(mark: bytes, ends: bytes, tmp_path: Path) -> None:
    stored, file = tmp_path / "claims.json", tmp_path / "claims.md"
    content = (FIXTURES / "claims.json").read_bytes()
    stored.write_bytes(mark + content.replace(LF, ends))
    assert read_claims(stored) == json.loads(content)["claims"]
    assert main(["report", "--claims", str(stored), "--markdown", str(file)]) == 0


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_facts_with_line_ends_of_windows_are_read(mark: bytes, tmp_path: Path) -> None:
    stored, files = tmp_path / "facts.json", [tmp_path / "a.md", tmp_path / "b.md"]
    content = (FIXTURES / "facts_small.json").read_bytes()
    stored.write_bytes(mark + content.replace(LF, CRLF))
    for facts, file in zip((FIXTURES / "facts_small.json", stored), files, strict=True):
        assert main(["report", "--facts", str(facts), "--markdown", str(file)]) == 0
    plain, marked = (file.read_text(encoding="utf-8").partition("## Commands")[0] for file in files)
    assert plain.replace("facts\\_small.json", "facts.json") == marked and len(plain) > 1000


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_samples_of_other_kinds_make_the_same_pages(kind: str) -> None:
    """Of Records that a caller made: a page with numpy.float64(1.5) in its JSON or its charts would be broken."""
    module = pytest.importorskip(kind)
    number: Callable[[float], Any] = {
        "numpy": lambda us: module.float64(us),
        "torch": lambda us: module.tensor(us, dtype=module.float64),
    }[kind]
    stored = read_run(RUN)

    def page(scalar: Callable[[float], Any]) -> str:
        made = [msgspec.structs.replace(r, samples_us=list(map(scalar, r.samples_us))) for r in stored.records]
        groups = group_rows(made)
        subject = Subject([MeasuredRun("x", stored.head, groups, answers(groups))], None, "andrea-bench report")
        return re.sub(r"gradient_\d+", "gradient", html(pages(subject), "x"))  # counted on from picture to picture

    plain = page(float)
    assert page(number) == plain and "numpy" not in plain and "tensor(" not in plain
