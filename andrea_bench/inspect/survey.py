"""Facts of many kernels, Problems and GPUs at once: each distinct compilation is done once, in parallel."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from andrea_bench.errors import BadInput, Unsupported
from andrea_bench.hardware import Gpu
from andrea_bench.inspect import targets, toolchain
from andrea_bench.inspect.analysis import Analysis
from andrea_bench.inspect.cache import AnalysisCache, request_key
from andrea_bench.inspect.children import Failure
from andrea_bench.inspect.compile import Request
from andrea_bench.inspect.facts import Facts, make_facts
from andrea_bench.inspect.pipeline import DEFAULTS, Options, analyses
from andrea_bench.kernel import Kernel, TritonLaunch
from andrea_bench.problem import Problem


@dataclass
class _Row:
    """A row of the answer: what is known of it before compiling, and the launch (None: facts are there)."""

    head: dict[str, Any]
    gpu: Gpu | None = None
    launch: TritonLaunch | None = None
    facts: Facts | None = None


def survey(
    kernels: Sequence[Kernel],
    problems: Iterable[Problem],
    gpus: Iterable[str],
    options: Options = DEFAULTS,
    done: Callable[[int, int], None] | None = None,
) -> list[Facts]:
    """Facts of every kernel launch, for every Problem and GPU, in that order. `done` is called with (compiled,
    to be compiled) as work goes on. Raises BadInput for names that are not known."""
    toolchain.triton_module()
    found = [(name, targets.find_target(name)) for name in gpus]
    rows: list[_Row] = []
    for problem in problems:
        for name, gpu in found:
            for kernel in kernels:
                rows.extend(_rows(kernel, problem, name, gpu))
    return _complete(rows, options, done)


def launch_facts(
    kernel: str, problem: Problem, gpu: str, launches: Iterable[TritonLaunch], options: Options = DEFAULTS
) -> list[Facts]:
    """Facts of launches that are given, as those of `kernel` with other tiles. Raises BadInput for an unknown
    GPU."""
    toolchain.triton_module()
    found = targets.find_target(gpu)
    rows = [
        _row(_head(f"{kernel}/{launch.part}" if launch.part else kernel, gpu, found, problem), found, launch)
        for launch in launches
    ]
    return _complete(rows, options, None)


def compile_facts(
    kernel: Any,
    *,
    gpu: str,
    signature: Mapping[str, str] | str,
    constexprs: Mapping[str, Any] | None = None,
    num_warps: int = 4,
    num_stages: int = 3,
    divisible_by_16: Sequence[str] | None = None,
    grid: tuple[int, ...] | None = None,
    useful_mma_flops: int = 0,
    options: Options | None = None,
) -> Facts:
    """Facts of any Triton kernel for a GPU that need not be present.

    kernel: a `triton.jit` function. gpu: a catalogue name, or a target as `sm_90`. signature: argument ->
    Triton type, for all arguments that are no constexprs (or, as text, their types in order): `*bf16` a
    pointer, `i32`, `fp32`; `:16` after it says that the value is a multiple of 16, `:1` that it need not be; without
    either, pointers count as multiples of 16, as torch allocates them, and numbers do not. divisible_by_16: by name
    all that are, in place of that rule. grid: blocks in x, y,
    z, for waves. useful_mma_flops: of one iteration of its loop in one block, for mma_efficiency.

    Returns Facts whose status says whether it compiled. Raises BadInput for names and types that don't fit
    the kernel and for unknown GPUs, EnvironmentUnfit without triton or its tools.
    """
    toolchain.triton_module()
    launch = user_launch(
        kernel, signature, constexprs or {}, num_warps, num_stages, divisible_by_16, grid, useful_mma_flops
    )
    found = targets.find_target(gpu)
    head = _head(kernel.__name__, gpu, found, None)
    row = _row(head, found, launch)
    return _complete([row], options or Options(cache=AnalysisCache()), None)[0]


def user_launch(
    kernel: Any,
    signature: Mapping[str, str] | str,
    constexprs: Mapping[str, Any],
    num_warps: int,
    num_stages: int,
    divisible_by_16: Sequence[str] | None = None,
    grid: tuple[int, ...] | None = None,
    useful_mma_flops: int = 0,
) -> TritonLaunch:
    """The launch that the arguments of compile_facts describe. Raises BadInput where they don't fit."""
    names = getattr(kernel, "arg_names", None)
    if names is None or not hasattr(kernel, "cache_key"):
        raise BadInput(f"{getattr(kernel, '__name__', kernel)!s} is no triton.jit function")
    if unknown := sorted(set(constexprs) - set(names)):
        raise BadInput(f"{kernel.__name__} has no argument {unknown[0]}; it has {', '.join(names)}")
    named = {param.name: param for param in kernel.params if param.is_constexpr and param.name not in constexprs}
    if missing := [name for name, param in named.items() if not param.has_default]:
        raise BadInput(f"{kernel.__name__}: its constexprs {', '.join(missing)} have no value (--constexpr NAME=VALUE)")
    constexprs = {**{name: param.default for name, param in named.items()}, **constexprs}
    plain = [name for name in names if name not in constexprs]
    types = _types(kernel.__name__, signature, plain)
    _check_types(types)
    hinted = {name for name, kind in types.items() if kind.endswith(":16")}
    if divisible_by_16 is not None:
        hinted |= set(divisible_by_16)
    else:
        hinted |= {name for name, kind in types.items() if kind.startswith("*") and not kind.endswith(":1")}
    if strange := sorted(hinted - set(plain)):
        raise BadInput(f"divisible_by_16 names {strange[0]}, which is no run-time argument of {kernel.__name__}")
    if num_warps < 1 or num_warps & (num_warps - 1) or num_warps > 32:
        raise BadInput(f"num_warps {num_warps} is not a power of two up to 32")
    if num_stages < 1:
        raise BadInput(f"num_stages {num_stages} is not positive")
    return TritonLaunch(
        function=kernel,
        signature={name: _plain(kind) for name, kind in types.items()},
        constexprs=constexprs,
        num_warps=num_warps,
        num_stages=num_stages,
        grid=tuple([*grid, 1, 1][:3]) if grid else (),  # type: ignore[arg-type]  # () is: not known
        divisible_by_16=tuple(name for name in plain if name in hinted),
        useful_mma_flops=useful_mma_flops,
    )


def _plain(kind: str) -> str:
    """A type without what is said of its value."""
    return kind.removesuffix(":16").removesuffix(":1")


def _check_types(types: Mapping[str, str]) -> None:
    from triton.runtime.jit import type_canonicalisation_dict

    known = {"i1", *type_canonicalisation_dict.values()} - {"void"}
    for name, kind in types.items():
        value = _plain(kind).removeprefix("*").removeprefix("k")
        if value not in known and not value.startswith("tensordesc<"):
            raise BadInput(
                f"{name}: {kind} is no type of Triton's; has {', '.join(sorted(known))}, * before a pointer's"
            )


def _types(kernel: str, signature: Mapping[str, str] | str, plain: list[str]) -> dict[str, str]:
    """Types by argument, from a mapping or from text in the order of the arguments."""
    if isinstance(signature, str):
        listed = [part.strip() for part in signature.split(",") if part.strip()]
        if len(listed) != len(plain):
            raise BadInput(
                f"{kernel} has {len(plain)} arguments that are no constexprs ({', '.join(plain)}); "
                f"the signature gives {len(listed)} types"
            )
        return dict(zip(plain, listed, strict=True))
    if missing := [name for name in plain if name not in signature]:
        raise BadInput(f"{kernel}: the signature has no type for {', '.join(missing)} (nor are they constexprs)")
    if unknown := sorted(set(signature) - set(plain)):
        raise BadInput(f"{kernel} has no run-time argument {unknown[0]}; it has {', '.join(plain)}")
    return {name: signature[name] for name in plain}


def _head(kernel: str, name: str, gpu: Gpu | str, problem: Problem | None) -> dict[str, Any]:
    capability = targets.capability_of_target(name) if isinstance(gpu, str) else gpu.compute_capability
    direction = problem.direction if problem else "forward"
    return {"kernel": kernel, "gpu": name, "compute_capability": capability, "problem": problem,
            "direction": direction}  # fmt: skip


def _rows(kernel: Kernel, problem: Problem, name: str, gpu: Gpu | str) -> list[_Row]:
    """One row a launch of the kernel; one row without a launch where it can't do the Problem on the GPU."""
    head = _head(kernel.name, name, gpu, problem)
    if isinstance(gpu, str):
        return [_row(head, gpu, None)]
    reason = targets.uninspectable(gpu, problem.dtype) or kernel.unsupported_problem(problem, "cuda")
    if reason:
        return [_row(head, reason, None)]
    assert kernel.launches is not None
    try:
        launches = kernel.launches(problem, gpu.compute_capability)
    except Unsupported as error:
        return [_row(head, str(error), None)]
    return [
        _row(head | {"kernel": f"{kernel.name}/{launch.part}" if launch.part else kernel.name}, gpu, launch)
        for launch in launches
    ]


def _row(head: dict[str, Any], gpu: Gpu | str, launch: TritonLaunch | None) -> _Row:
    if not isinstance(gpu, Gpu):
        return _Row(head, facts=Facts(**head, status="unsupported", reason=gpu))
    assert launch is not None
    dtype = "bfloat16" if any("bf16" in kind for kind in launch.signature.values()) else None
    if reason := targets.uninspectable(gpu, dtype):
        return _Row(head, facts=Facts(**head, status="unsupported", reason=reason))
    return _Row(head, gpu, launch)


def _complete(rows: list[_Row], options: Options, done: Callable[[int, int], None] | None) -> list[Facts]:
    """Compiles what the cache lacks, each distinct request once, and makes the Facts of all rows."""
    requests: dict[str, Request] = {}
    keys: list[str | None] = []
    for row in rows:
        if row.launch is None or row.gpu is None:
            keys.append(None)
            continue
        request = _request(row.launch, row.gpu)
        made = request_key(request)
        keys.append(made)
        requests.setdefault(made, request)
    results: dict[str, Analysis | Failure] = {}
    if options.cache is not None and not options.dump:
        results = {key: held for key in requests if (held := options.cache.get(key)) is not None}
    cached = set(results)
    results.update(analyses({k: r for k, r in requests.items() if k not in results}, options, done))
    facts = []
    for row, key in zip(rows, keys, strict=True):
        if key is None or row.gpu is None or row.launch is None:
            assert row.facts is not None
            facts.append(row.facts)
        elif isinstance(result := results[key], Failure):
            facts.append(Facts(**row.head, status=result.status, reason=result.reason))  # type: ignore[arg-type]
        else:
            facts.append(make_facts(row.head, result, row.launch, row.gpu, key in cached))
    return facts


def _request(launch: TritonLaunch, gpu: Gpu) -> Request:
    return Request(
        function=launch.function,
        signature=dict(launch.signature),
        constexprs=dict(launch.constexprs),
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
        target=targets.target_of(gpu),
        divisible_by_16=tuple(launch.divisible_by_16),
    )
