"""README shows what `inspect` prints, by the compilers that constraints.txt names."""

import re
import shlex
from importlib.metadata import version
from pathlib import Path

import pytest

from andrea_bench.cli.main import main

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- inspect:begin -->\n```\n\$ andrea-bench (.*?)\n(.*?)```\n<!-- inspect:end -->", re.DOTALL)


def test_readme_shows_what_inspect_prints(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="the package triton is not installed")
    pinned = re.search(r"^triton==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if pinned is None or version("triton") != pinned[1]:
        pytest.skip("README's figures are of the Triton that constraints.txt names")
    monkeypatch.setenv("COLUMNS", "119")
    ((command, text),) = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert main(shlex.split(command)) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.strip("\n").splitlines()]
    assert text.rstrip("\n").splitlines() == printed, f"print it anew: COLUMNS=119 andrea-bench {command}"
