"""docs/explore.md, and README where it has the same blocks, show what the commands print."""

import re
import shlex
from pathlib import Path

import pytest

from andrea_bench.cli.main import main

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- (explore-\w+):begin -->\n```\n\$ andrea-bench (.*?)\n(.*?)```\n<!-- \1:end -->", re.DOTALL)
SHOWN = [
    pytest.param(command, text, id=f"{page.name}: {name}")
    for page in (ROOT / "docs" / "explore.md", ROOT / "README.md")
    for name, command, text in BLOCK.findall(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(("command", "text"), SHOWN)
def test_the_page_shows_what_the_command_prints(
    command: str, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(shlex.split(command)) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.strip("\n").splitlines()]
    assert text.rstrip("\n").splitlines() == printed, f"print it anew: COLUMNS=100 andrea-bench {command}"


def test_both_rankings_are_on_the_page() -> None:
    commands = [param.values[0] for param in SHOWN]
    assert any("--gpu rtx_4090 --iso d_model=768" in str(one) for one in commands)
    assert any("--gpu h200_sxm --iso d_model=1536" in str(one) for one in commands)
