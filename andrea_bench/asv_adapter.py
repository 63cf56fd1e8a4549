"""The suites as asv benchmarks: base classes that the thin classes in benchmarks/ inherit.

They stand here because asv runs every class with benchmark methods that it finds in benchmarks/.

asv names a combination of parameters by its place in the list, while the list itself is made anew by the code of
each commit. So the lists come from the working tree, as benchmarks/ does, never from the commit that is
installed: a kernel that a commit lacks is skipped there, and no figure goes to another kernel's name.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from andrea_bench.errors import BadInput, Unsupported
from andrea_bench.kernel import Kernel, find_kernel, kernels
from andrea_bench.problem import Problem
from andrea_bench.suite import Member, find_suite, suites

if TYPE_CHECKING:
    from andrea_bench.inspect.facts import Facts
    from andrea_bench.measure.call import Prepared
    from andrea_bench.record import Record

SEED = 20240
# A kernel that takes longer to compile would do so in every process that asv starts.
MOST_COMPILE_SECONDS = 3.0
# Short, because there are hundreds of combinations; at least 7 samples a side, below which asv's test of
# significance can't decide: 2 rounds (fresh processes) of 5 to 15.
ROUNDS = 2
REPEAT = (5, 15, 0.4)
WARMUP_S = 0.05
RATIO_LIMIT_S = 0.5
ENERGY_WINDOW_S = 0.5

Values = dict[str, float | str]  # of one combination: name of a fact -> value, or `reason`


class SuiteBenchmark:
    """One suite over n_head x head_dim x dtype, each of its kernels with its time and what goes with it.

    A subclass names its `suite`; the other attributes are the axes. On a CPU float32 alone is measured.
    """

    suite: ClassVar[str]
    n_heads: ClassVar[tuple[int, ...]] = (4, 12)
    head_dims: ClassVar[tuple[int, ...]] = (64, 72)
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "bfloat16")
    seq_len: ClassVar[int] = 128

    param_names = ("kernel", "n_head", "head_dim", "dtype")
    params: ClassVar[tuple[tuple[Any, ...], ...]] = ()
    rounds, repeat, warmup_time = ROUNDS, REPEAT, WARMUP_S

    _ready: tuple[Any, ...] | None = None

    def __init_subclass__(cls) -> None:
        root = Path(sys.modules[cls.__module__].__file__ or "").resolve().parents[1]
        names = working_tree(root)["suites"].get(cls.suite)
        if names is None:
            raise BadInput(f"{cls.__name__}: there is no suite {cls.suite!r} in {root}")
        cls.params = (tuple(names), cls.n_heads, cls.head_dims, cls.dtypes)

    def setup(self, kernel: str, n_head: int, head_dim: int, dtype: str) -> None:
        """Make the kernel ready and check it. asv calls this before every sample: only the first does anything.

        Raises NotImplementedError, by which asv skips, where the kernel can't run here; ArithmeticError where
        it gives wrong results."""
        wanted = (kernel, n_head, head_dim, dtype)
        if self._ready == wanted:
            return
        device = _device()
        if device == "cpu" and dtype != "float32":
            raise NotImplementedError(f"{dtype} is tracked on GPUs; `sweep -a dtype={dtype}` measures it on a CPU")
        self._device = device
        self._problem, self._members, self._kernel = self._cell(kernel, n_head, head_dim, dtype)
        if reason := self._kernel.unsupported(self._problem, device):
            raise NotImplementedError(reason)
        try:
            self._prepared = _prepare(self._kernel, self._problem, device)
        except Unsupported as error:
            raise NotImplementedError(str(error)) from None
        if device.startswith("cuda"):
            self.timer = _synchronised_time
        self._ready = wanted

    def _cell(self, name: str, n_head: int, head_dim: int, dtype: str) -> tuple[Problem, tuple[Member, ...], Kernel]:
        """The Problem, the Group's members and the Kernel, as this commit's suite has them."""
        suite = find_suite(self.suite)
        fields: dict[str, Any] = {"seq_len": self.seq_len, "n_head": n_head, "head_dim": head_dim, "dtype": dtype}
        fields |= {axis: values[0] for axis, values in suite.defaults.items()}
        problem = Problem(**fields)
        for one, members in suite.groups(suite, problem):
            # A suite's groups may have other sizes too (neighbours); asv's own axes cover these.
            same_width = one.n_head * one.head_dim == problem.n_head * problem.head_dim
            for op, member in members:
                if member == name and same_width:
                    return one, members, find_kernel(op, name)
        raise NotImplementedError(f"this commit's suite {self.suite} has no kernel {name}")

    def time_call(self, kernel: str, n_head: int, head_dim: int, dtype: str) -> None:
        self._prepared.call()

    time_call.version = "1"  # type: ignore[attr-defined]

    def track_ratio(self, kernel: str, n_head: int, head_dim: int, dtype: str) -> float:
        """Time of the kernel over that of the baseline, sample by sample in turn: steady where times are not."""
        from andrea_bench.statistics import median

        against = self._baseline()
        mine = (self._kernel.op, self._kernel.name)
        if against == mine:
            raise _skip("is the baseline")
        base, head = self._measure(against, mine)
        return median([ours / theirs for ours, theirs in zip(head.samples_us, base.samples_us, strict=True)])

    track_ratio.version, track_ratio.unit = "1", "times the baseline"  # type: ignore[attr-defined]

    def track_peak_memory(self, kernel: str, n_head: int, head_dim: int, dtype: str) -> int:
        """Memory that one call allocates at its peak."""
        from andrea_bench.measure.profile import peak_memory_bytes

        peak = peak_memory_bytes(self._prepared.call, self._device)
        if peak is None:
            raise _skip("this torch does not tell of its allocations")
        return peak

    track_peak_memory.version, track_peak_memory.unit = "1", "bytes"  # type: ignore[attr-defined]

    def track_energy(self, kernel: str, n_head: int, head_dim: int, dtype: str) -> float:
        """Energy of one call, where the GPU counts it."""
        if not self._device.startswith("cuda"):
            raise _skip("energy per call is counted on GPUs only")
        (record,) = self._measure((self._kernel.op, self._kernel.name), energy=True)
        counted = record.counters.get("gpu_energy_per_call", {"reason": "no GPU counters"})
        if counted.get("joules_per_call") is None:
            raise _skip(str(counted.get("reason")))
        return float(counted["joules_per_call"])

    track_energy.version, track_energy.unit = "1", "joules"  # type: ignore[attr-defined]

    def _baseline(self) -> Member:
        """The suite's baseline; the first of the Group where it stands in another."""
        named = [member for member in self._members if member[1] == find_suite(self.suite).baseline]
        return (named or list(self._members))[0]

    def _measure(self, *members: Member, energy: bool = False) -> list["Record"]:
        """Records of some members, measured together in this process, with the GPU's energy for each call if
        that is asked for. Raises ArithmeticError or RuntimeError where one has no samples."""
        from andrea_bench.measure.clock import make_clock
        from andrea_bench.measure.counters import Watch
        from andrea_bench.measure.group import measure_group
        from andrea_bench.measure.task import Task
        from andrea_bench.measure.worker import gpu_identity
        from andrea_bench.protocol import Protocol

        cuda = self._device.startswith("cuda")
        protocol = Protocol(
            time_limit_s=RATIO_LIMIT_S, max_samples=100, seed=SEED, timing_mode="cuda_event" if cuda else "host_wall",
            energy_window_s=ENERGY_WINDOW_S if energy else 0.0,
        )  # fmt: skip
        task = Task(suite=self.suite, problem=self._problem, members=list(members), device=self._device,
                    device_name=self._device, protocol=protocol)  # fmt: skip
        watch = Watch(self._device, *gpu_identity(self._device)) if energy else None
        clock = make_clock(protocol.timing_mode, protocol.cache, self._device)
        records = measure_group(task, clock, watch=watch)
        for record in records:
            if record.status == "wrong":
                raise ArithmeticError(f"{record.kernel} gives wrong results: {record.reason}")
            if record.status == "throttled":
                raise _skip(f"the GPU was throttled: {record.reason}")
            if record.status != "ok":
                raise RuntimeError(f"{record.kernel} is {record.status}: {record.reason}")
        return records


class StructureBenchmark:
    """What the compiler makes of each Triton kernel for GPUs that need not be present: the same on any machine
    with the same Triton, so that any change is a change of the code. Smaller is better throughout."""

    gpus: ClassVar[tuple[str, ...]]
    head_dims: ClassVar[tuple[int, ...]] = (64, 72)
    dtype: ClassVar[str] = "bfloat16"

    param_names = ("kernel", "head_dim", "gpu")
    params: ClassVar[tuple[tuple[Any, ...], ...]] = ()

    def __init_subclass__(cls) -> None:
        root = Path(sys.modules[cls.__module__].__file__ or "").resolve().parents[1]
        cls.params = (tuple(working_tree(root)["compiled"]), cls.head_dims, cls.gpus)

    def setup_cache(self) -> dict[tuple[str, int, str], Values]:
        """The facts of all combinations, compiled once a commit; unchanged code comes from the cache on disk."""
        from andrea_bench.inspect.cache import AnalysisCache
        from andrea_bench.inspect.pipeline import Options
        from andrea_bench.inspect.survey import survey

        found: dict[tuple[str, int, str], Values] = {}
        options = Options(cache=AnalysisCache())
        for kernel in (k for k in kernels() if k.launches is not None):
            decode = kernel.directions == ("decode",)
            sizes = {"seq_len": 1, "kv_len": 1024, "direction": "decode"} if decode else {"seq_len": 1024}
            problems = [Problem(n_head=12, head_dim=d, dtype=self.dtype, **sizes) for d in self.head_dims]  # type: ignore[arg-type]
            parts: dict[tuple[str, int, str], list[Facts]] = {}
            for facts in survey([kernel], problems, self.gpus, options):
                assert facts.problem is not None
                parts.setdefault((kernel.name, facts.problem.head_dim, facts.gpu), []).append(facts)
            found |= {key: structure_values(launches) for key, launches in parts.items()}
        return found

    setup_cache.timeout = 1800  # type: ignore[attr-defined]

    def setup(self, found: Mapping[tuple[str, int, str], Values], kernel: str, head_dim: int, gpu: str) -> None:
        if (kernel, head_dim, gpu) not in found:
            raise NotImplementedError(f"this commit has no kernel {kernel} that is compiled")
        if "unsupported" in found[kernel, head_dim, gpu]:
            raise NotImplementedError(found[kernel, head_dim, gpu]["unsupported"])


def _tracker(name: str, unit: str, text: str) -> Callable[..., float]:
    """A track_* method of StructureBenchmark: one value of its facts."""

    def track(
        self: StructureBenchmark, found: Mapping[tuple[str, int, str], Values], kernel: str, head_dim: int, gpu: str
    ) -> float:
        values = found[kernel, head_dim, gpu]
        if "error" in values:
            raise RuntimeError(f"{kernel} does not compile for {gpu}: {values['error']}")
        if name not in values:
            raise _skip(f"{name} is not known of {kernel}")
        return float(values[name])

    track.__name__ = f"track_{name}"
    track.__qualname__ = f"StructureBenchmark.track_{name}"
    track.__doc__ = text
    track.version, track.unit = "1", unit  # type: ignore[attr-defined]
    return track


for _name, _unit, _text in (
    ("spilled_bytes", "bytes", "Stores and loads of spilled registers, of a thread."),
    ("registers", "registers", "Registers of a thread."),
    ("issued_to_useful", "FLOPs a useful FLOP", "Matrix FLOPs issued for each useful one."),
    ("occupancy_loss", "of an SM's warps", "The share of an SM's warps that can't be resident."),
    ("scalar_load_share", "of the loads", "The share of loads from global memory of 4 bytes or fewer."),
):
    setattr(StructureBenchmark, f"track_{_name}", _tracker(_name, _unit, _text))


def structure_values(launches: list["Facts"]) -> Values:
    """The tracked values of a kernel from the facts of its launches: sums of bytes and loads, else the worst.
    `unsupported` or `error` alone, with the reason, where a launch is not ok."""
    for facts in launches:
        if facts.status != "ok":
            return {"unsupported" if facts.status == "unsupported" else "error": facts.reason or facts.status}
    values: Values = {}
    spilled = [(f.spill_store_bytes, f.spill_load_bytes) for f in launches]
    stores, loads = [s for s, _ in spilled if s is not None], [n for _, n in spilled if n is not None]
    if len(stores) == len(loads) == len(launches):
        values["spilled_bytes"] = sum(stores) + sum(loads)
    if registers := [f.registers_per_thread for f in launches if f.registers_per_thread is not None]:
        values["registers"] = max(registers)
    if wasted := [1 / f.mma_efficiency for f in launches if f.mma_efficiency]:
        values["issued_to_useful"] = round(max(wasted), 6)
    if held := [f.occupancy for f in launches if f.occupancy is not None]:
        values["occupancy_loss"] = round(1 - min(held), 6)
    counts = [
        (int(width), count)
        for f in launches
        for widths in (f.global_load_bytes, f.async_copy_bytes)
        for width, count in (widths or {}).items()
    ]
    if total := sum(count for _, count in counts):
        values["scalar_load_share"] = round(sum(count for width, count in counts if width <= 4) / total, 6)
    return values


@cache
def working_tree(root: Path) -> dict[str, Any]:
    """The kernels of each suite, and the kernels that are compiled, by the code that stands in `root`.

    Asked of a fresh interpreter, since this one has the code of the commit that is measured."""
    code = "from andrea_bench.asv_adapter import lists; import json; print(json.dumps(lists()))"
    path = os.pathsep.join([str(root), str(root / "kernels")])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    if done.returncode:
        raise BadInput(f"{root}: its suites can't be listed: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def lists() -> dict[str, Any]:
    """What `working_tree` asks for: `suites` {name: kernel names}, `compiled` [kernel names]. The same on every
    machine, whatever it can run."""
    tracked = {k: k.compile_seconds <= MOST_COMPILE_SECONDS for k in kernels()}
    return {
        "suites": {
            name: [kernel for op, kernel in suite.members if tracked[find_kernel(op, kernel)]]
            for name, suite in suites().items()
        },
        "compiled": [kernel.name for kernel in kernels() if kernel.launches is not None],
    }


def _prepare(kernel: Kernel, problem: Problem, device: str) -> "Prepared":
    """The kernel ready to be timed. Raises ArithmeticError where its results are wrong."""
    from andrea_bench.measure.call import Prepared
    from andrea_bench.measure.check import expect
    from andrea_bench.measure.inputs import make_inputs

    inputs = make_inputs(kernel.op, problem, device=device, seed=SEED)
    expected = expect(kernel.op, kernel.part, problem, inputs, seed=SEED)
    prepared = Prepared(kernel, problem, inputs, seed=SEED)
    error = expected.error(*prepared.outputs_and_gradients())
    if not error <= expected.tolerance:
        raise ArithmeticError(f"{kernel.name} is wrong: relative error {error:.2e}, tolerance {expected.tolerance:.2e}")
    return prepared


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _synchronised_time() -> float:
    import time

    import torch

    torch.cuda.synchronize()
    return time.perf_counter()


def _skip(reason: str) -> Exception:
    """What asv takes as a skip when a benchmark's body raises it."""
    from asv_runner.benchmarks.mark import SkipNotImplemented

    skipped: Exception = SkipNotImplemented(reason)
    return skipped
