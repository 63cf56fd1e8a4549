"""`inspect`: what the compiler makes of the kernels for any GPU; --save and --check, the structural gate."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from andrea_bench.axes import AxisRequest
from andrea_bench.cli.options import axis_options, json_option
from andrea_bench.errors import BadInput

if TYPE_CHECKING:
    from andrea_bench.inspect.document import FactsDocument
    from andrea_bench.inspect.facts import Facts
    from andrea_bench.inspect.pipeline import Options
    from andrea_bench.inspect.summary import Table
    from andrea_bench.kernel import Kernel

# Consumer, data-centre and newest boards, one for each kind of matrix instruction.
DEFAULT_GPUS = ("rtx_4090", "a100_sxm4_80gb", "h200_sxm", "b200", "rtx_5090")
MOST_SENTENCES = 12
OF_MODULE = {"signature": "--signature", "constexprs": "--constexpr", "grid": "--grid",
             "useful_mma_flops": "--useful-mma-flops"}  # fmt: skip


@click.command("inspect")
@axis_options
@click.option("--gpu", "gpus", multiple=True, metavar="NAMES",
              help=f"GPUs (`list gpus`) or targets as sm_90; default {', '.join(DEFAULT_GPUS)}.")  # fmt: skip
@click.option("--kernel", "kernels", multiple=True, metavar="NAMES",
              help="Only these kernels (or all of an op, as `attention`); also path.py:function.")  # fmt: skip
@click.option("--module", metavar="PATH.py:KERNEL", help="A triton.jit kernel of your own instead.")
@click.option("--signature", metavar="TYPES",
              help="Its run-time arguments' types in order: '*bf16,*bf16:1,i32:16'. :16: a multiple of 16, as pointers "
                   "are unless :1 says that they need not be.")  # fmt: skip
@click.option("--constexpr", "constexprs", multiple=True, metavar="NAME=VALUE", help="Its constants; repeatable.")
@click.option("--num-warps", type=int, default=4, show_default=True, help="With --module.")
@click.option("--num-stages", type=int, default=3, show_default=True, help="With --module.")
@click.option("--useful-mma-flops", type=click.IntRange(min=0), default=0, metavar="N",
              help="With --module: matrix FLOPs of a block that are useful, in one iteration of its loop.")  # fmt: skip
@click.option("--grid", metavar="X,Y,Z", help="With --module: its blocks, for waves and tail.")
@click.option("--dump", nargs=2, metavar="WHAT DIR", help="Write ttir, ttgir, ptx, sass, cubin or log into DIR.")
@click.option("--save", type=click.Path(path_type=Path), metavar="FILE",
              help="Write the Facts as a baseline; --check's own file only where nothing got worse.")  # fmt: skip
@click.option("--check", type=click.Path(path_type=Path), metavar="FILE",
              help="Compare with a baseline; exit 1 where something got worse.")  # fmt: skip
@click.option("--markdown", "markdown_file", type=click.Path(path_type=Path), metavar="FILE", help="Also as Markdown.")
@click.option("--time-limit", "time_limit_s", type=float, default=120.0, show_default=True, help="Seconds a kernel.")
@click.option("--jobs", type=int, default=None, help="Compilers at once; default: one a core.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write results that were kept.")
@click.option("--strict", is_flag=True, help="Exit 4 where a compiler failed or took too long.")
@json_option
def inspect_command(
    request: AxisRequest, config: dict[str, Any], gpus: tuple[str, ...], kernels: tuple[str, ...], module: str | None,
    save: Path | None, check: Path | None, markdown_file: Path | None, strict: bool, as_json: bool, **given: Any,
) -> int:  # fmt: skip
    """Compile kernels for GPUs that need not be present, and read the machine code."""
    from andrea_bench.cli.console import note, print_json
    from andrea_bench.cli.own_kernel import facts_of_module
    from andrea_bench.inspect import toolchain
    from andrea_bench.inspect.document import FactsDocument, read_facts, write_facts
    from andrea_bench.report.words import counted

    toolchain.triton_module()
    for path in (save, markdown_file):  # before the work, not after it
        if path and not path.parent.is_dir():
            raise BadInput(f"{path}: there is no folder {path.parent}")
    baseline = read_facts(check) if check else None
    names = _names(gpus) or _names(config.get("gpus", ()))
    only = _names(kernels) or _names(config.get("kernels", ()))
    if module and only:
        raise BadInput("--module and --kernel are two ways to name a kernel; give one")
    if not module and (unfit := [option for name, option in OF_MODULE.items() if given[name]]):
        raise BadInput(f"{unfit[0]} belongs to --module")
    options = _options(**{name: given[name] for name in ("dump", "time_limit_s", "jobs", "no_cache")})
    if module:
        if baseline and not given["useful_mma_flops"] and any(f.useful_mma_flops for f in baseline.facts):
            raise BadInput("the baseline was saved with --useful-mma-flops, and wasted width counts by it; repeat it")
        facts = facts_of_module(module, names or _gpus_of(baseline) or list(DEFAULT_GPUS), options, given)
    elif baseline and not names and request == AxisRequest():
        facts = _as_in(baseline, only, options)
    else:
        facts = _of_kernels(request, names or list(DEFAULT_GPUS), only, options)
    document = FactsDocument(compilers=toolchain.compiler_versions(), facts=facts)
    code = _gate(baseline, document, markdown_file, as_json) if baseline else _exit_code(facts, strict)
    if save and check and code and save.resolve() == check.resolve():
        note(f"{save} stays as it was: renewed, it would let through what is worse; --save alone accepts that")
    elif save:
        write_facts(save, document)
        note(f"wrote {save}: {counted(len(facts), 'entry')}")
    if not baseline:
        if as_json:
            print_json(document.document())
        else:
            _show(facts)
        if markdown_file:
            _write_markdown(markdown_file, facts)
        failed = {s: n for s in ("unsupported", "error", "timeout") if (n := sum(f.status == s for f in facts))}
        counts = "".join(f", {n} {status}" for status, n in failed.items())
        note(f"{sum(f.status == 'ok' for f in facts)} compiled ({sum(bool(f.cached) for f in facts)} kept){counts}")
    return code


def _names(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))


def _gpus_of(baseline: "FactsDocument | None") -> list[str]:
    return list(dict.fromkeys(f.gpu for f in baseline.facts)) if baseline else []


def _options(dump: tuple[str, str] | None, time_limit_s: float, jobs: int | None, no_cache: bool) -> "Options":
    from andrea_bench.errors import unknown_name
    from andrea_bench.files import make_folder
    from andrea_bench.inspect.cache import AnalysisCache
    from andrea_bench.inspect.pipeline import DUMPS, Options

    if not 0 < time_limit_s < 1e9:
        raise BadInput(f"--time-limit {time_limit_s:g} is not a positive number of seconds")
    if jobs is not None and jobs < 1:
        raise BadInput(f"--jobs {jobs} is not positive")
    what = tuple(_names([dump[0]])) if dump else ()
    for name in what:
        if name not in DUMPS:
            raise unknown_name("text to --dump", name, DUMPS)
    folder = Path(dump[1]) if dump else None
    if folder:
        make_folder(folder)
    cache = None if no_cache else AnalysisCache()
    return Options(jobs=jobs, time_limit_s=time_limit_s, cache=cache, dump=what, dump_folder=folder)


def _kernels(names: Sequence[str]) -> list["Kernel"]:
    """The Triton kernels of those names; a name may be an op. Raises BadInput."""
    from andrea_bench.errors import unknown_name
    from andrea_bench.kernel import find_kernel, kernels
    from andrea_bench.problem import OPS

    compiled = [kernel for kernel in kernels() if kernel.launches]
    if not names:
        return compiled
    found: list[Kernel] = []
    for name in names:
        if ".py:" in name:
            found.append(find_kernel("attention", name))
        elif named := [kernel for kernel in compiled if name in (kernel.name, kernel.op)]:
            found += named
        elif name in OPS or name in {kernel.name for kernel in kernels()}:
            raise BadInput(f"{name} is no Triton kernel; of these Facts can be had: {_list(compiled)}")
        else:
            raise unknown_name("Triton kernel", name, [kernel.name for kernel in compiled])
    if without := [kernel for kernel in found if kernel.launches is None]:
        raise BadInput(
            f"{without[0].name} says nothing of its launches (@kernel(launches=...)); name the triton.jit "
            "function itself with --module, --signature and --constexpr"
        )
    return list(dict.fromkeys(found))


def _list(kernels: Sequence["Kernel"]) -> str:
    return ", ".join(dict.fromkeys(kernel.name for kernel in kernels))


def _of_kernels(request: AxisRequest, gpus: list[str], only: list[str], options: "Options") -> list["Facts"]:
    from andrea_bench.axes import expand
    from andrea_bench.cli.console import note
    from andrea_bench.inspect import survey

    expansion = expand(request, device="cuda")
    for axes, reason in expansion.invalid:
        note(f"skipped {', '.join(f'{n}={v}' for n, v in axes.items())}: {reason}")
    kernels = _kernels(only)
    if not only:  # a kernel of another direction has nothing to say here
        asked = {problem.direction for problem in expansion.problems}
        kernels = [kernel for kernel in kernels if asked & set(kernel.directions)]
    with _progress() as done:
        return survey(kernels, expansion.problems, gpus, options, done)


def _as_in(baseline: "FactsDocument", only: list[str], options: "Options") -> list["Facts"]:
    """The baseline's Problems and GPUs, with its kernels or those of --kernel."""
    from andrea_bench.inspect import survey

    pairs = {(f.gpu, f.problem) for f in baseline.facts}
    problems = list(dict.fromkeys(f.problem for f in baseline.facts if f.problem))
    kernels = [kernel for kernel in _kernels(only) if only or kernel.name in _kernels_of(baseline)]
    if not kernels:
        named = ", ".join(sorted(_kernels_of(baseline)))
        raise BadInput(f"the baseline holds no kernel that is here, but {named}; name your own with --module")
    with _progress() as done:
        facts = survey(kernels, problems, _gpus_of(baseline), options, done)
    known = {(f.kernel, f.gpu, f.problem) for f in baseline.facts}
    # A kernel that can't do some of the Problems need not stand in the baseline for these.
    return [
        f for f in facts if (f.gpu, f.problem) in pairs and (f.status == "ok" or (f.kernel, f.gpu, f.problem) in known)
    ]


def _kernels_of(document: "FactsDocument") -> set[str]:
    return {f.kernel.partition("/")[0] for f in document.facts}


def _exit_code(facts: Sequence["Facts"], strict: bool) -> int:
    statuses = {f.status for f in facts}
    if "ok" not in statuses or (strict and statuses & {"error", "timeout"}):
        return 4
    return 0


def _gate(base: "FactsDocument", head: "FactsDocument", markdown_file: Path | None, as_json: bool) -> int:
    import msgspec

    from andrea_bench.cli.console import console, decided, print_json
    from andrea_bench.files import write_whole
    from andrea_bench.inspect import gate, summary
    from andrea_bench.kernel import kernels
    from andrea_bench.report.words import counted

    directions = {f.problem.direction for f in base.facts if f.problem}
    present = {kernel.name for kernel in kernels() if kernel.launches and directions & set(kernel.directions)}
    uncovered = sorted(present - _kernels_of(base) - _kernels_of(head))
    result = gate.compare(base, head, uncovered)
    decided(result.exit_code)
    if markdown_file:
        changes = [f"compiler changed: {change}" for change in result.compiler_changes()]
        text = summary.markdown([summary.findings_table(result)], before=changes)
        write_whole(markdown_file, text.encode())
    if as_json:
        print_json(msgspec.to_builtins(result))
    else:
        for change in result.compiler_changes():
            console().print(f"compiler changed: {change}", markup=False)
        for line in summary.annotations(result, for_github=os.environ.get("GITHUB_ACTIONS") == "true"):
            console().print(line, markup=False, soft_wrap=True)
        counts = f"{counted(len(base.facts), 'entry')} in the baseline, {len(head.facts)} now"
        console().print(f"verdict: {result.verdict} ({counts})", markup=False)
    return result.exit_code


def _show(facts: Sequence["Facts"]) -> None:
    from rich.text import Text

    from andrea_bench.cli.console import console
    from andrea_bench.inspect import summary

    made = summary.tables(facts)
    for table in made:
        console().print(Text(table.title, style="bold"))
        console().print(_rich(table))
        console().print()
    for line in summary.refusals(facts):
        console().print(line, markup=False)
    if made:
        console().print(Text(summary.CAPTION, style="dim"))
    lines = summary.sentences(facts)
    for line in lines[:MOST_SENTENCES]:
        console().print(line, markup=False)
    if len(lines) > MOST_SENTENCES:
        console().print(f"(and {len(lines) - MOST_SENTENCES} more; --markdown has all)")


def _rich(table: "Table") -> Any:
    from rich.table import Table as RichTable
    from rich.text import Text

    # Without lines the widest row still fits into the 80 columns of a pipe.
    shown = RichTable(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="underline")
    for column in table.columns:
        shown.add_column(column, justify="left" if column in ("matrix", "bound") else "right", overflow="fold")
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in row))
    return shown


def _write_markdown(path: Path, facts: Sequence["Facts"]) -> None:
    from andrea_bench.files import write_whole
    from andrea_bench.inspect import summary

    after = [*summary.refusals(facts), summary.CAPTION, *summary.sentences(facts)]
    text = summary.markdown(summary.tables(facts), after=after)
    write_whole(path, text.encode())


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A progress line on stderr while kernels are compiled, on a terminal only."""
    from rich.progress import Progress

    from andrea_bench.cli.console import notes

    # No thread that refreshes it: children are forked, and a fork must not meet a thread that holds a lock.
    shown = Progress(console=notes(), transient=True, auto_refresh=False, disable=not notes().is_terminal)
    task = shown.add_task("compiling", total=None)

    def done(ended: int, total: int) -> None:
        shown.update(task, completed=ended, total=total)
        shown.refresh()

    with shown:
        yield done
