"""Measuring one Group in this process: check every kernel, then time them all, interleaved."""

import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
import torch

from andrea_bench.errors import Unsupported
from andrea_bench.hardware.nvml import Device
from andrea_bench.kernel import Kernel, find_kernel
from andrea_bench.measure.call import Prepared
from andrea_bench.measure.check import Expected, expect
from andrea_bench.measure.clock import Clock
from andrea_bench.measure.counters import Observation, Watch, throttled
from andrea_bench.measure.energy import measure_energy
from andrea_bench.measure.inputs import make_inputs
from andrea_bench.measure.plausibility import implausible, peak_tflops
from andrea_bench.measure.profile import peak_memory_bytes, selected_backend
from andrea_bench.measure.task import Task, empty_record
from andrea_bench.protocol import Protocol
from andrea_bench.record import Record, Status, Validity
from andrea_bench.statistics import drift, median, relative_half_width

CHECK_EVERY = 5  # rounds between two looks at the stop rule
THROTTLE_RETRIES = 3
THROTTLE_PAUSE_S = 2.0
IN_A_ROW = 3  # samples of a kernel on end in a turn; turns.py says what that is good for

Heartbeat = Callable[[int, str], None]  # (index in the Task's members, stage)


class _Cell:
    """A kernel on its way from `prepare` to its samples."""

    def __init__(self, index: int, kernel: Kernel, record: Record) -> None:
        self.index = index
        self.kernel = kernel
        self.record = record
        self.prepared: Prepared | None = None
        self.call: Callable[[], Any] | None = None
        self.expected: Expected | None = None  # None where nothing was compared

    def fail(self, status: Status, reason: str) -> None:
        """Give the cell its status and let go of its tensors, so that later cells have the memory."""
        self.record.status = status
        self.record.reason = " ".join(reason.split())[:500] or status
        self.prepared = self.call = self.expected = None
        self.record.samples_us, self.record.host_us = [], []
        self.record.order, self.record.block, self.record.round = [], [], []
        self.record.timing_mode = self.record.cache = None


def measure_group(
    task: Task, clock: Clock, *, watch: Watch | None = None, heartbeat: Heartbeat = lambda member, stage: None
) -> list[Record]:
    """Check and time all kernels of a Group; one Record for each, in the order of task.members.

    What a kernel raises becomes its status; SystemExit and KeyboardInterrupt pass through.
    """
    cells = [_Cell(i, find_kernel(*m), empty_record(task, *m)) for i, m in enumerate(task.members)]
    _check(cells, task, clock, heartbeat)
    ready = [cell for cell in cells if cell.call is not None]
    if ready:
        _time(ready, task, clock, watch, heartbeat)
    return [cell.record for cell in cells]


def _check(cells: list[_Cell], task: Task, clock: Clock, heartbeat: Heartbeat) -> None:
    """Make every cell ready that can be."""
    inputs: dict[str, Mapping[str, Any]] = {}
    references: dict[tuple[str, str | None], Expected] = {}
    for cell in cells:
        heartbeat(cell.index, "check")
        _attempt(cell, lambda c: _make_ready(c, task, clock, inputs, references))


def _attempt(cell: _Cell, step: Callable[[_Cell], object]) -> bool:
    """Run a step of one cell; whatever it raises becomes the cell's status."""
    try:
        step(cell)
        return True
    except Unsupported as error:
        cell.fail("unsupported", str(error))
    except (MemoryError, torch.OutOfMemoryError) as error:
        cell.fail("out_of_memory", f"{type(error).__name__}: {error}")
    except TimeoutError as error:
        cell.fail("timeout", f"{type(error).__name__}: {error}")
    except Exception as error:
        # torch's CPU allocator says so in the text of a plain RuntimeError.
        out = "DefaultCPUAllocator" in str(error) or "not enough memory" in str(error)
        cell.fail("out_of_memory" if out else "error", f"{type(error).__name__}: {error}")
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return False


def _make_ready(
    cell: _Cell,
    task: Task,
    clock: Clock,
    inputs: dict[str, Mapping[str, Any]],
    references: dict[tuple[str, str | None], Expected],
) -> None:
    """Prepare a kernel, compare it with the reference, profile one call: all that comes before timing."""
    kernel, problem, seed = cell.kernel, task.problem, task.protocol.seed
    reason = kernel.unsupported(problem, task.device)
    if reason:
        raise Unsupported(reason)
    if kernel.op not in inputs:
        inputs[kernel.op] = make_inputs(kernel.op, problem, device=task.device, seed=seed)
    if task.checked:
        cell.prepared = Prepared(kernel, problem, inputs[kernel.op], seed=seed)
        cell.call = clock.prepare(cell.prepared.call)
        return
    reference = (kernel.op, kernel.part)
    if reference not in references:
        references[reference] = expect(*reference, problem, inputs[kernel.op], seed=seed)
    versions = {name: tensor._version for name, tensor in inputs[kernel.op].items()}
    started = time.perf_counter()
    prepared = Prepared(kernel, problem, inputs[kernel.op], seed=seed)
    results = prepared.outputs_and_gradients()
    cell.record.compile_seconds = time.perf_counter() - started
    if changed := [name for name, tensor in inputs[kernel.op].items() if tensor._version != versions[name]]:
        wrong: str | None = f"changes its input {changed[0]} in place: its next call would see another"
    else:
        wrong = _wrong(cell.record, references[reference], *results)
    del results
    if wrong is None and (again := _wrong(cell.record, references[reference], *prepared.outputs_and_gradients())):
        wrong = f"at its second call alone, as if it added to what the first one left: {again}"
    if wrong:
        # It may have written into them, unseen by torch's counts; the other kernels hold them.
        for name, tensor in make_inputs(kernel.op, problem, device=task.device, seed=seed).items():
            inputs[kernel.op][name].data.copy_(tensor)
        cell.fail("wrong", wrong)
        return
    cell.record.selected_backend = prepared.work.backend or selected_backend(prepared.call, task.device)
    cell.record.peak_memory_bytes = peak_memory_bytes(prepared.call, task.device)
    cell.prepared, cell.expected = prepared, references[reference]
    cell.call = clock.prepare(prepared.call)


def _check_again(cell: _Cell) -> None:
    """Compare what the timed call gives after all samples: a replayed graph is another call than the one that was
    checked, and a kernel may go wrong with what it counts or keeps."""
    if cell.prepared is None or cell.expected is None:
        return
    if wrong := _wrong(cell.record, cell.expected, *cell.prepared.outputs_and_gradients(cell.call)):
        cell.fail("wrong", f"right before it was timed, not after {len(cell.record.samples_us)} samples: {wrong}")


def _wrong(
    record: Record, expected: Expected, outputs: tuple[torch.Tensor, ...], gradients: tuple[torch.Tensor, ...] | None
) -> str | None:
    """What is wrong with a kernel's results, None where nothing is; the record keeps the error."""
    if wrong := expected.wrong_shape(outputs):
        return wrong
    error = expected.error(outputs, gradients)
    finite = error < float("inf")
    record.relative_error = max(error, record.relative_error or 0.0) if finite else None
    record.tolerance, record.reference = expected.tolerance, expected.covers
    if error <= expected.tolerance:
        return None
    return f"relative error {f'{error:.2e}' if finite else 'not finite'}, tolerance {expected.tolerance:.2e}"


def _time(cells: list[_Cell], task: Task, clock: Clock, watch: Watch | None, heartbeat: Heartbeat) -> None:
    """Take the samples; again, after a pause, where the machine was throttled meanwhile. Not so in one of many
    turns, which can be left out, nor where kernels are only checked."""
    retries = 0 if task.checked or task.protocol.max_samples == 1 else THROTTLE_RETRIES
    for attempt in range(retries + 1):
        if watch:
            watch.before()
        _sample(cells, task, clock, heartbeat)
        observation = watch.after() if watch else None
        why = throttled(observation) if observation else None
        if why is None or attempt == retries:
            break
        time.sleep(THROTTLE_PAUSE_S * (attempt + 1))
    for cell in cells:
        if cell.call is not None:
            heartbeat(cell.index, "check")
            _attempt(cell, _check_again)
        if cell.call is not None:
            _finish(cell, task, clock, observation, why)
            if watch and watch.gpu and task.protocol.energy_window_s > 0:
                _count_energy(cell, task, watch.gpu)


def _count_energy(cell: _Cell, task: Task, gpu: Device) -> None:
    """Energy per call, in a window of its own: timed samples are too short and too far apart for the counter."""
    assert cell.call is not None
    median_us = median(cell.record.samples_us)
    energy = measure_energy(
        gpu,
        cell.call,
        lambda: torch.cuda.synchronize(task.device),
        window_s=task.protocol.energy_window_s,
        # Some milliseconds between two waits for the GPU, so that it is never idle for long.
        calls_per_batch=max(1, int(5000 / median_us)),
        flops=cell.record.flops,
    )
    cell.record.counters = {**cell.record.counters, "gpu_energy_per_call": msgspec.to_builtins(energy)}


def _sample(cells: list[_Cell], task: Task, clock: Clock, heartbeat: Heartbeat) -> None:
    """Take samples of all kernels, in an order shuffled anew each time, until the stop rule is met for all.

    In a sweep the kernels of a Group are compared with one another: one sample of each in a round, so that what comes
    over the machine hits all alike. In a turn each is compared with its like in another revision, and has IN_A_ROW
    samples on end, after an untimed call: a sample right after another kernel finds the caches as that one left them,
    and a change of one kernel would show in its neighbours."""
    protocol, in_a_row = task.protocol, IN_A_ROW if task.checked else 1
    order = random.Random(f"{protocol.seed} {task.block} {task.problem.label()}")
    for cell in cells:
        cell.record.samples_us, cell.record.host_us = [], []
        cell.record.order, cell.record.round = [], []

    def call(cell: _Cell) -> tuple[float, float | None]:
        heartbeat(cell.index, "time")
        assert cell.call is not None
        return clock.sample(cell.call)

    def take_row(cell: _Cell, position: int, number: int) -> None:
        if task.checked:
            call(cell)
        for i in range(in_a_row):
            device_us, host_us = call(cell)
            if not device_us > 0:
                raise ValueError(f"below the timer's resolution: it read {device_us} microseconds")
            cell.record.samples_us.append(device_us)
            cell.record.order.append(position + i)
            cell.record.round.append(number + i)
            if host_us is not None:
                cell.record.host_us.append(host_us)

    def shuffled() -> list[_Cell]:
        running = [cell for cell in cells if cell.call is not None]
        order.shuffle(running)
        return running

    for _ in range(protocol.warmup_rounds):
        for cell in shuffled():
            _attempt(cell, call)
    # The limit is on sampling; warm-up may hold a first slow call.
    started, position = clock.now(), task.order_start
    for number in range(0, protocol.max_samples, in_a_row):
        for cell in shuffled():
            if _attempt(cell, partial(take_row, position=position, number=number)):
                position += in_a_row
        if _settled(cells, number + in_a_row, clock.now() - started, protocol):
            return


def _settled(cells: list[_Cell], rounds: int, seconds: float, protocol: Protocol) -> bool:
    """The stop rule. Fewer than min_samples are taken only when ten times the time limit has passed."""
    if seconds > protocol.time_limit_s and rounds >= protocol.min_samples:
        return True
    if seconds > 10 * protocol.time_limit_s and rounds >= 3:
        return True
    if rounds < protocol.min_samples or rounds % CHECK_EVERY:
        return False
    return all(_converged(c.record, protocol) for c in cells if c.call is not None)


def _converged(record: Record, protocol: Protocol) -> bool:
    return relative_half_width(record.samples_us) <= protocol.target


def _finish(cell: _Cell, task: Task, clock: Clock, observation: Observation | None, throttle: str | None) -> None:
    record = cell.record
    record.status = "throttled" if throttle else "ok"
    record.reason = throttle
    record.timing_mode, record.cache = clock.timing_mode, task.protocol.cache
    record.block = [task.block] * len(record.samples_us)
    converged = _converged(record, task.protocol)
    if observation is not None:
        record.counters = {**record.counters, **observation.counters}
        record.validity = observation.validity(converged, drift(record.samples_us, record.order))
    _doubt_impossible_rate(record, task)


def _doubt_impossible_rate(record: Record, task: Task) -> None:
    cuda = task.device.startswith("cuda")
    name = torch.cuda.get_device_name(task.device) if cuda else None
    limit = peak_tflops(name, task.problem.dtype, task.protocol.threads)
    reason = implausible(record.flops, median(record.samples_us), limit)
    if reason:
        record.validity = Validity(verdict="invalid", reasons=[*record.validity.reasons, reason])
