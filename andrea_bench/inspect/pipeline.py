"""From requests to Analyses: each is compiled by itself, then read with others of its target, and kept."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from andrea_bench.inspect import compile, disassembly, toolchain
from andrea_bench.inspect.analysis import Analysis, analyse
from andrea_bench.inspect.cache import AnalysisCache
from andrea_bench.inspect.children import Failure, Task, in_children
from andrea_bench.inspect.compile import Binary, Request

DUMPS = ("ttir", "ttgir", "ptx", "sass", "log", "cubin")
GROUP = 8  # binaries of one target that one call of the disassembler reads


@dataclass(frozen=True)
class Options:
    """How kernels are compiled: jobs at once (None: one a core), the time limit of each, the cache (None:
    none), and which texts of the compiler go into which folder."""

    jobs: int | None = None
    time_limit_s: float = 120.0
    cache: AnalysisCache | None = None
    dump: tuple[str, ...] = ()
    dump_folder: Path | None = None


DEFAULTS = Options()


def analyses(
    requests: dict[str, Request], options: Options, done: Callable[[int, int], None] | None
) -> dict[str, Analysis | Failure]:
    """What each request compiles to, or why not, by its key. What is ready goes into the cache at once. `done` is
    called with (compiled, to be compiled)."""
    if not requests:
        return {}
    toolchain.warm_up(request.target for request in requests.values())
    work = _Work(requests, options, done)
    in_children(work.tasks(), jobs=options.jobs, time_limit_s=options.time_limit_s)
    return work.results


class _Work:
    """Requests on their way. results: by key, of those that have arrived."""

    def __init__(self, requests: dict[str, Request], options: Options, done: Callable[[int, int], None] | None) -> None:
        self._requests, self._options, self._done = requests, options, done
        self._to_compile = Counter(request.target for request in requests.values())
        self._unread: defaultdict[int, dict[str, Binary]] = defaultdict(dict)
        self.results: dict[str, Analysis | Failure] = {}

    def tasks(self) -> list[Task]:
        """One for each request; they lead to those that read what was compiled."""
        return [
            Task(partial(_compile, request, key, self._options), partial(self._compiled, key))
            for key, request in self._requests.items()
        ]

    def _compiled(self, key: str, made: Binary | Failure) -> list[Task]:
        target = self._requests[key].target
        self._to_compile[target] -= 1
        if isinstance(made, Failure):
            self.results[key] = made
        else:
            self._unread[target][key] = made
        if self._done:
            self._done(len(self._requests) - self._to_compile.total(), len(self._requests))
        group = self._unread[target]
        if len(group) == GROUP or (group and not self._to_compile[target]):
            del self._unread[target]
            return [self._reading(group)]
        return []

    def _reading(self, group: dict[str, Binary]) -> Task:
        return Task(partial(_analyse, list(group.values())), partial(self._read, group), tool="nvdisasm")

    def _read(self, group: dict[str, Binary], found: list[Analysis] | Failure) -> list[Task]:
        """Of a group that fails each is read again by itself, so that only the one to blame fails."""
        if isinstance(found, Failure):
            if len(group) > 1:
                return [self._reading({key: binary}) for key, binary in group.items()]
            self.results.update(dict.fromkeys(group, found))
            return []
        for key, one in zip(group, found, strict=True):
            self.results[key] = one
            if self._options.cache is not None:
                self._options.cache.put(key, one)
        return []


def _compile(request: Request, key: str, options: Options) -> Binary:
    binary = compile.compile_here(request)
    if options.dump_folder is not None:
        stem = f"{binary.name}-sm_{request.target}-{key[:8]}"
        for what in options.dump:
            content = disassembly.listing(binary.cubin) if what == "sass" else getattr(binary, what)
            path = options.dump_folder / f"{stem}.{what}"
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return binary


def _analyse(binaries: Sequence[Binary]) -> list[Analysis]:
    codes = disassembly.disassemble(binaries[0].target, [(one.name, one.cubin) for one in binaries])
    return [analyse(binary, code) for binary, code in zip(binaries, codes, strict=True)]
