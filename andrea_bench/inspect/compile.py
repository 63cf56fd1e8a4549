"""Compiles Triton kernels for GPUs that are not there. Neither torch nor a driver is touched."""

import contextlib
import io
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from andrea_bench.inspect import toolchain

WARP_SIZE = 32


@dataclass(frozen=True)
class Request:
    """One kernel to be compiled for one target.

    function: the `triton.jit` function. signature: argument -> Triton type ("*bf16", "i32"), without the
    constexprs. divisible_by_16: arguments whose value is a multiple of 16. target: 89 for sm_89.
    """

    function: Any
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    num_warps: int
    num_stages: int
    target: int
    divisible_by_16: tuple[str, ...] = ()


class Binary(msgspec.Struct, frozen=True, kw_only=True):
    """What the compiler made for `target`: the texts of its stages, the binary, and what is known beside them.

    shared_memory_bytes: dynamic, per block. tensor_memory_columns: 0 but on compute capability 10.0.
    log: what ptxas printed with -v. seconds: from source to binary, without the disassembly.
    """

    name: str
    target: int
    ttir: str
    ttgir: str
    ptx: str
    log: str
    cubin: bytes
    threads_per_block: int
    shared_memory_bytes: int
    tensor_memory_columns: int
    seconds: float


def compile_here(request: Request) -> Binary:
    """Compiles in this process. Raises what Triton raises.

    Triton's own cache is bypassed: what ptxas says must be read, and it is printed on compiling only.
    """
    toolchain.triton_module()
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = request.function.arg_names
    signature = {n: "constexpr" if n in request.constexprs else request.signature[n] for n in names}
    attributes = {(names.index(n),): [["tt.divisibility", 16]] for n in request.divisible_by_16}
    source = ASTSource(request.function, signature, dict(request.constexprs), attributes)
    printed = io.StringIO()
    started = time.perf_counter()
    with _fresh_triton_cache(), contextlib.redirect_stdout(printed):
        made = triton.compile(
            source,
            target=GPUTarget("cuda", request.target, WARP_SIZE),
            options={"num_warps": request.num_warps, "num_stages": request.num_stages},
        )
        stages = {stage: made.asm[stage] for stage in ("ttir", "ttgir", "ptx", "cubin")}
    seconds = time.perf_counter() - started
    return Binary(
        name=made.metadata.name,
        target=request.target,
        ttir=stages["ttir"],
        ttgir=stages["ttgir"],
        ptx=stages["ptx"],
        cubin=stages["cubin"],
        log=printed.getvalue(),
        threads_per_block=made.metadata.num_warps * WARP_SIZE,
        shared_memory_bytes=made.metadata.shared,
        tensor_memory_columns=getattr(made.metadata, "tmem_size", None) or 0,
        seconds=seconds,
    )


@contextlib.contextmanager
def _fresh_triton_cache() -> Iterator[None]:
    """Triton writes what it compiles into a folder of ours that goes away, and prints ptxas' log."""
    from triton import knobs

    with tempfile.TemporaryDirectory(prefix="andrea_bench_") as folder, knobs.cache.scope(), knobs.nvidia.scope():
        knobs.cache.dir = folder
        knobs.nvidia.dump_ptxas_log = True
        yield
