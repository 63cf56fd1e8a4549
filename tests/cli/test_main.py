"""The command line as a whole: what an error becomes."""

import subprocess
import sys
from pathlib import Path

import pytest

from andrea_bench.cli.main import main


@pytest.mark.parametrize(("cause", "code", "says"), [(KeyboardInterrupt, 130, "interrupted"), (None, 4, "internal")])
def test_an_error_that_was_made_of_an_interrupt_is_one(
    cause: type[BaseException] | None, code: int, says: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def fails(name: str) -> None:
        try:
            if cause:
                raise cause
        except KeyboardInterrupt as error:
            raise SystemError("initialization of _C raised unreported exception") from error
        raise SystemError("another")

    monkeypatch.setattr("andrea_bench.cli.params.find_model", fails)
    assert main(["params"]) == code
    assert says in capsys.readouterr().err


def ended(folder: Path) -> tuple[int, str]:
    """How `python -m interrupted` ends there: its exit code, and what it says."""
    command = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_an_interrupt_that_went_through_exec_ends_with_130(tmp_path: Path) -> None:
    """CPython remembers one that left exec() of a text, as dataclasses use it, and ends `python -m` by SIGINT then."""
    (tmp_path / "interrupted.py").write_text(
        "from andrea_bench.cli import main\n"
        "main.andrea_bench_command.main = lambda *_, **__: exec('raise KeyboardInterrupt')\n"
        "main.script()"
    )
    assert ended(tmp_path) == (130, "andrea-bench: interrupted\n")


def test_a_second_interrupt_ends_with_130_too(tmp_path: Path) -> None:
    """Two within the time that the command needs to end: one while the first is told, one at the very end."""
    (tmp_path / "interrupted.py").write_text(
        "import os, signal, sys\n"
        "from andrea_bench.cli import main\n"
        "say, leave = main._say, sys.exit\n"
        "def interrupt(*_): os.kill(os.getpid(), signal.SIGINT)\n"
        "main.andrea_bench_command.main = lambda *_, **__: interrupt()\n"
        "main._say = lambda text: (say(text), interrupt())\n"
        "main.sys.exit = lambda code: (interrupt(), leave(code))\n"
        "main.script()"
    )
    assert ended(tmp_path) == (130, "andrea-bench: interrupted\n")
