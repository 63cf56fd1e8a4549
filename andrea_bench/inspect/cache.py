"""Results of compiling, kept by what they depend on: source, compiler versions, target, constants, options."""

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

from andrea_bench.inspect import toolchain
from andrea_bench.inspect.analysis import Analysis
from andrea_bench.inspect.compile import Request


def cache_folder() -> Path:
    """$ANDREA_BENCH_CACHE, else andrea_bench in $XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("ANDREA_BENCH_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "andrea_bench"


class AnalysisCache:
    """Analyses on disk, one file each. Where the folder can't be written it is told once on stderr and work
    goes on without; a file that can't be read counts as absent."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = (folder or cache_folder()) / "inspect"
        self._writable = True

    def get(self, key: str) -> Analysis | None:
        try:
            return msgspec.json.decode((self._folder / f"{key}.json").read_bytes(), type=Analysis)
        except (OSError, msgspec.DecodeError):
            return None

    def put(self, key: str, analysis: Analysis) -> None:
        if not self._writable:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # A reader sees a whole file or none.
            handle, name = tempfile.mkstemp(dir=self._folder, suffix=".tmp")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(msgspec.json.encode(analysis))
                os.replace(name, self._folder / f"{key}.json")
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as error:
            self._writable = False
            print(f"andrea-bench: the cache {self._folder} can't be written ({error.strerror}); "
                  "going on without", file=sys.stderr)  # fmt: skip


def request_key(request: Request) -> str:
    """Hash of all that the result depends on, the code that reads binaries included."""
    triton = toolchain.triton_module()
    from triton._C.libtriton import get_cache_invalidating_env_vars

    parts: Iterable[object] = (
        request.function.cache_key,  # its source, and that of what it calls
        request.function.__name__,
        triton.__version__,
        toolchain.version_of(toolchain.ptxas(request.target)),
        toolchain.version_of(toolchain.disassembler()),
        request.target,
        sorted(request.signature.items()),
        sorted((name, _constant(value)) for name, value in request.constexprs.items()),
        sorted(request.divisible_by_16),
        request.num_warps,
        request.num_stages,
        sorted(get_cache_invalidating_env_vars().items()),
        _own_code(),
    )
    return hashlib.blake2b(repr(tuple(parts)).encode(), digest_size=16).hexdigest()


def _constant(value: object) -> str:
    """A constexpr may be a function that the kernel calls: then its source counts, not its address."""
    return str(getattr(value, "cache_key", None) or repr(value))


# The modules that turn a source into an Analysis.
_READERS = ("analysis", "compile", "disassembly", "dots", "matrix", "resources", "sass", "toolchain")


@cache
def _own_code() -> str:
    code = hashlib.blake2b(digest_size=8)
    for name in _READERS:
        code.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    return code.hexdigest()
