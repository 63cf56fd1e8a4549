"""The command `andrea-bench`: finds its verbs by file name, turns errors into one line and an exit code."""

import importlib
import os
import pkgutil
import signal
import sys
from typing import Any

import click

import andrea_bench.cli
from andrea_bench.errors import AndreaError

NOT_VERBS = {"main", "options", "console", "own_kernel"}


class Verbs(click.Group):
    """Every other file of andrea_bench/cli is a verb; it is imported when it is asked for or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(m.name for m in pkgutil.iter_modules(andrea_bench.cli.__path__) if m.name not in NOT_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"andrea_bench.cli.{cmd_name}")
        command: click.Command = getattr(module, f"{cmd_name}_command", None) or getattr(module, cmd_name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from andrea_bench.errors import unknown_name

            raise unknown_name("verb", args[0], self.list_commands(ctx)) from None


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="andrea-bench")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def andrea_bench_command(debug: bool) -> None:
    """Measure, compile, predict and gate multi-head attention: which n_head x head_dim suits a GPU."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code of the contract (see DESIGN.md section 4.1)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # Started with standard output closed: what would be printed goes nowhere.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    # Texts from the machine (host names, paths) may hold bytes that are no UTF-8.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    stdout = sys.stdout
    debug = "--debug" in arguments or os.environ.get("ANDREA_BENCH_DEBUG") == "1"
    arguments = [a for a in arguments if a != "--debug"]
    told: dict[str, Any] = {"arguments": arguments, "exit_code": 0}
    try:
        result = andrea_bench_command.main(arguments, prog_name="andrea-bench", standalone_mode=False, obj=told)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except (BrokenPipeError, SystemExit):
        # The reader (head, less) went away: not an error. click wraps stdout then, and ends with 1, which is a
        # regression here.
        if not isinstance(sys.exception(), BrokenPipeError) and sys.stdout is stdout:
            raise
        sys.stdout = stdout
        # The interpreter must not flush again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(told["exit_code"])
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        return 130
    except click.ClickException as error:
        _say(error.format_message())
        return 2
    except AndreaError as error:
        if debug:
            raise
        _say(str(error))
        return error.exit_code
    except ModuleNotFoundError as error:
        if debug:
            raise
        _say(f"needs the package {error.name}, which is not installed; pip install 'andrea-bench[dev]' brings all")
        return 4
    except UnicodeEncodeError as error:
        if debug:
            raise
        _say(f"the encoding {error.encoding} of this locale can't hold a text that was given; set PYTHONUTF8=1")
        return 2
    except OSError as error:
        if debug:
            raise
        _say(f"{error.filename or 'input or output'}: {error.strerror or error}")
        return 2
    except Exception as error:
        if debug:
            raise
        if _made_of_interrupt(error):
            _say("interrupted")
            return 130
        _say(f"internal error: {type(error).__name__}: {error} (--debug shows where; please report it)")
        return 4


def _made_of_interrupt(error: BaseException) -> bool:
    """Whether an interrupt is behind an error: compiled code that is being imported raises one of its own for it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def _say(text: str) -> None:
    from andrea_bench.cli.console import printable

    line = printable(" ".join(text.split()))
    print(f"andrea-bench: {line}", file=sys.stderr)


def script() -> None:
    """Entry point of the console script."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has the second one ignored
            signal.signal(number, signal.default_int_handler)
    try:
        code = main()
    except KeyboardInterrupt:  # a second one, while the first was being told
        code = 130
    # What is left takes no time; an interrupt of it would only change the exit code.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # An interrupt that once went through exec() or eval() of a text (dataclasses make their methods so) has `python -m`
    # end by SIGINT instead of with its exit code, though it was caught. The next exec() resets that.
    exec("")
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            # The interpreter flushes again, and would make of a reader that left an exit code of its own, 120.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)
