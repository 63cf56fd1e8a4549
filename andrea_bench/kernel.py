"""Kernel: one implementation of an Op, and the registry that finds them.

A kernel is a function in a file of the package `andrea_kernels` (or of the user's own), marked with
`@kernel(op=...)`. The mark holds all that can be known without torch, triton or a GPU: what it needs and
what it can't do. The function gets a Problem and the Op's input tensors and returns a Work: the launch to
be timed, with everything else (casts, splits, allocations) already done.
"""

import ast
import hashlib
import importlib
import importlib.util
import inspect as python_inspect
import os
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from andrea_bench.errors import BadInput, unknown_name
from andrea_bench.problem import OPS, Op, Part, Problem

ALL_DTYPES = ("float32", "tf32", "bfloat16", "float16")
ALL_DIRECTIONS = ("forward", "backward", "forward_backward", "decode")
# The input tensors of each Op, in order, with their shapes; gradients come in the same order.
OP_INPUTS: dict[str, tuple[str, ...]] = {
    "qkv_projection": ("x", "w_qkv"),  # (batch, seq_len, d_model), (d_model, (n_head + 2 n_kv_head) head_dim)
    "attention": (
        "q",
        "k",
        "v",
    ),  # (batch, n_head, seq_len, head_dim), twice (batch, n_kv_head, kv_len, head_dim)
    "output_projection": ("heads", "w_o"),  # (batch, n_head, seq_len, head_dim), (n_head head_dim, d_model)
    "layout": ("qkv",),  # (batch, seq_len, (n_head + 2 n_kv_head) head_dim), as a fused projection leaves it
    "layer": ("x", "w_qkv", "w_o"),
}


@dataclass
class Work:
    """A kernel made ready for one Problem.

    run: the forward launch; takes nothing, returns what the kernel returns. Nothing else is timed.
    canonical: turns that into the Op's output tensors: q, k, v of (batch, heads, seq_len, head_dim) for
        qkv_projection; (batch, n_head, seq_len, head_dim) for attention; (batch, seq_len, d_model) for
        output_projection and layer; scores (batch, n_head, seq_len, kv_len), the heads, or q, k, v for the
        parts of layout. Never timed.
    leaves: the tensors whose gradients the backward pass computes; None: the Op's inputs.
    canonical_gradients: turns gradients of `leaves` into those of the Op's inputs, in their order.
    backend: which implementation runs, where the kernel knows it better than a profiler would.
    """

    run: Callable[[], Any]
    canonical: Callable[[Any], tuple[Any, ...]] = lambda out: tuple(out) if isinstance(out, (tuple, list)) else (out,)
    leaves: Sequence[Any] | None = None
    canonical_gradients: Callable[[Sequence[Any]], tuple[Any, ...]] = tuple
    backend: str | None = None


@dataclass(frozen=True)
class TritonLaunch:
    """One Triton kernel launch, described fully enough to compile it for a GPU that is not there.

    function: the `triton.jit` function. signature: argument name -> Triton type ("*fp16", "i32", "fp32").
    constexprs: the constexpr arguments. divisible_by_16: names of the arguments whose value (pointer or
    integer) is a multiple of 16. grid: blocks in x, y, z. part: tells apart the launches of one kernel
    ("dq", "dkv", "reduce"), None where there is one. useful_mma_flops: useful matrix FLOPs that one
    iteration of the main loop does in one block, 0 where no matrix instruction is expected.
    tile: the block's tile sizes, by name, for people to read.
    """

    function: Any
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    num_warps: int
    num_stages: int
    grid: tuple[int, int, int]
    part: str | None = None
    divisible_by_16: tuple[str, ...] = ()
    useful_mma_flops: int = 0
    tile: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """Tile sizes that a Triton kernel may be tried with: row is how they would stand in its table, part the
    launch they are for (as in TritonLaunch), key where in the table. Within `with use():` launches take them."""

    part: str | None
    key: tuple[Any, ...]
    row: str
    use: Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Block:
    """How one launch of attention cuts its work. A block holds `rows` (of queries; in the part `dkv` of keys) and
    walks the other side `columns` at a time, with matrix_products for each pair of tiles."""

    rows: int
    columns: int
    warps: int
    matrix_products: int = 2
    part: str = "forward"


@dataclass(frozen=True)
class Kernel:
    """What the registry knows of a kernel without importing torch or triton."""

    op: Op
    name: str
    prepare: Callable[[Problem, Mapping[str, Any]], Work]
    part: Part | None = None
    devices: tuple[str, ...] = ("cpu", "cuda")
    dtypes: tuple[str, ...] = ALL_DTYPES
    directions: tuple[str, ...] = ALL_DIRECTIONS
    modules: tuple[str, ...] = ("torch",)
    check: Callable[[Problem, str], str | None] | None = None
    workspace_bytes: Callable[[Problem], int] | None = None
    compile_seconds: float = 0.0
    launches: Callable[[Problem, str], list[TritonLaunch]] | None = None
    candidates: Callable[[Problem, str], list[Candidate]] | None = None
    computed_width: Callable[[Problem], int] | None = None
    blocks: Callable[[Problem, str], list[Block]] | None = None

    @property
    def summary(self) -> str:
        """The first sentence of the kernel's docstring."""
        return (python_inspect.getdoc(self.prepare) or "").split("\n\n")[0].replace("\n", " ")

    @property
    def file(self) -> Path:
        return Path(python_inspect.getsourcefile(python_inspect.unwrap(self.prepare)) or "")

    def source_hash(self) -> str:
        """Hash of the file that the kernel stands in and of the files of its package that this imports, and
        so on: changes whenever the kernel's code might have."""
        try:
            files = _with_imports(self.file)
            return hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=8).hexdigest()
        except (OSError, SyntaxError):
            return "unknown"

    def unsupported(self, problem: Problem, device: str) -> str | None:
        """Why this kernel can't do `problem` on `device` ("cpu", "cuda"), as far as that is known without
        torch; None where nothing speaks against it. A kernel may still raise Unsupported when prepared."""
        for module in self.modules:
            if not _installed(module):
                return f"needs the package {module}, which is not installed"
        return self.unsupported_problem(problem, device)

    def unsupported_problem(self, problem: Problem, device: str) -> str | None:
        """As `unsupported`, but for a kernel that is only compiled: its packages need not be installed."""
        device = device.partition(":")[0]
        interpreted = "triton" in self.modules and os.environ.get("TRITON_INTERPRET") == "1"
        if device not in self.devices and not (device == "cpu" and interpreted):
            hint = " (or TRITON_INTERPRET=1, for correctness only)" if "triton" in self.modules else ""
            return f"runs on {' and '.join(self.devices)} only{hint}, not on {device}"
        if problem.dtype == "tf32" and device == "cpu":
            return "tf32 is a tensor-core format; a CPU has none"
        if problem.dtype not in self.dtypes:
            return f"does not do {problem.dtype}; does {', '.join(self.dtypes)}"
        if problem.direction not in self.directions:
            return f"does not do direction {problem.direction}; does {', '.join(self.directions)}"
        return self.check(problem, device) if self.check else None


@cache
def _with_imports(file: Path) -> tuple[Path, ...]:
    """A kernel's file and the files of andrea_kernels that it imports, directly or not, in a fixed order."""
    root = Path(importlib.import_module("andrea_kernels").__file__ or "").parent
    found: dict[Path, None] = {}
    waiting = [file]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found[one] = None
        for node in ast.walk(ast.parse(one.read_bytes())):
            names = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("andrea_kernels"):
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if alias.name.startswith("andrea_kernels")]
            for name in names:
                place = root.joinpath(*name.split(".")[1:])
                waiting += [path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()]
    return tuple(sorted(found))


@cache
def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


_REGISTRY: dict[tuple[str, str], Kernel] = {}


def kernel(op: Op, name: str | None = None, **needs: Any) -> Callable[[Callable[..., Work]], Callable[..., Work]]:
    """Mark a function as a Kernel of `op`. `needs` are the fields of Kernel: devices, dtypes, directions,
    modules, part, check, workspace_bytes, compile_seconds, launches, candidates,
    computed_width (how wide a row of head_dim is computed, where the kernel knows), blocks (the launches of attention
    on a compute capability, without triton). Raises ValueError for a name taken twice."""
    if op not in OPS:
        raise unknown_name("op", op, OPS)

    def register(prepare: Callable[..., Work]) -> Callable[..., Work]:
        made = Kernel(op=op, name=name or prepare.__name__, prepare=prepare, **needs)
        present = _REGISTRY.get((made.op, made.name))
        if present is not None and present.file != made.file:
            raise ValueError(f"kernel {made.name} of {made.op} stands in {present.file} and in {made.file}")
        _REGISTRY[made.op, made.name] = made
        return prepare

    return register


@cache
def _discover() -> None:
    """Import every file of andrea_kernels once; each registers its kernels."""
    package = importlib.import_module("andrea_kernels")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"andrea_kernels.{module.name}")


def kernels() -> list[Kernel]:
    """All kernels, by Op in the order of OPS and then by name."""
    _discover()
    return sorted(_REGISTRY.values(), key=lambda k: (OPS.index(k.op), k.name))


def find_kernel(op: str, name: str) -> Kernel:
    """The kernel (op, name), or one of the user's own where name is `path.py:function`. Raises BadInput."""
    _discover()
    if (op, name) in _REGISTRY:
        return _REGISTRY[op, name]
    if ".py:" in name:
        return _user_kernel(op, name)
    raise unknown_name(f"kernel of {op}", name, (k for o, k in _REGISTRY if o == op))


def _user_kernel(op: str, name: str) -> Kernel:
    """A plain function of the user's, called with the Op's tensors and keyword arguments it asks for.

    Attention is called as f(q, k, v, causal=...), qkv_projection as f(x, w_qkv, n_head=..., n_kv_head=...,
    head_dim=...), output_projection as f(heads, w_o); each keyword only if the function has it.
    A function already marked with @kernel is taken as it is.
    """
    function = load_function(name)
    for made in _REGISTRY.values():
        if made.prepare is function:
            return made
    parameters = python_inspect.signature(function).parameters

    def prepare(problem: Problem, inputs: Mapping[str, Any]) -> Work:
        tensors = [inputs[key] for key in OP_INPUTS[op]]
        offered = {"causal": problem.causal, "scale": problem.head_dim**-0.5, "n_head": problem.n_head,
                   "n_kv_head": problem.n_kv_head, "head_dim": problem.head_dim, "problem": problem}  # fmt: skip
        wanted = {key: value for key, value in offered.items() if key in parameters}
        return Work(run=lambda: function(*tensors, **wanted))

    prepare.__doc__ = python_inspect.getdoc(function) or f"The user's own {name}."
    prepare.__wrapped__ = function  # type: ignore[attr-defined]
    return Kernel(op=op, name=name, prepare=prepare)  # type: ignore[arg-type]


def load_function(spec: str) -> Callable[..., Any]:
    """The function that `path.py:function` names. Raises BadInput with what could not be read or found."""
    path_text, _, function_name = spec.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        raise BadInput(f"{spec}: there is no file {path}")
    module_name = f"andrea_user_{hashlib.blake2b(os.fsencode(path.resolve()), digest_size=6).hexdigest()}"
    spec_of_module = importlib.util.spec_from_file_location(module_name, path)
    assert spec_of_module is not None
    assert spec_of_module.loader is not None
    module = importlib.util.module_from_spec(spec_of_module)
    try:
        spec_of_module.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BadInput(f"{path}: can't be imported: {type(error).__name__}: {error}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise unknown_name(f"function in {path}", function_name, names)
    return function
