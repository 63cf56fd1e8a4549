"""What a Run measured, with the name of what it was measured on: findings are read elsewhere than they are made."""

from collections.abc import Iterable
from dataclasses import dataclass

from andrea_bench.errors import BadInput
from andrea_bench.hardware import Gpu, match_device_name
from andrea_bench.record import Record, RunHead
from andrea_bench.report.rows import GroupRows, group_rows


@dataclass(frozen=True)
class Machine:
    """name: of the CPU or GPU that was measured. gpu: its catalogue entry, None for a CPU and an unknown GPU."""

    name: str
    gpu: Gpu | None = None


NOT_NAMED = Machine("this machine")


@dataclass
class Measured(GroupRows):
    """A Group of a Run and the Machine that measured it."""

    machine: Machine = NOT_NAMED

    @property
    def on(self) -> str:
        """What was measured on, and the Problem."""
        threads = self.device.partition(":threads=")[2]
        return f"{self.machine.name}{f', {threads} threads' if threads else ''}, {self.problem.label()}"

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")


def machine_of(head: RunHead) -> Machine:
    """The CPU or GPU of a Run; by its device alone where the Run does not name it."""
    found = head.environment
    device = str(found.get("device") or "cpu")
    if device.startswith("cuda"):
        name = (found.get("gpu") or {}).get("name")
        return Machine(name or device, match_device_name(name) if name else None)
    return Machine((found.get("cpu") or {}).get("model") or device)


def measured_groups(records: Iterable[Record], machine: Machine) -> list[Measured]:
    """The Groups whose times may count: what was judged invalid (as a rate above the peak) is left out.

    Raises BadInput for Records of several GPUs or of a GPU and a CPU, which are no one machine's."""
    counted = [record for record in records if record.validity.verdict != "invalid"]
    devices = sorted({record.device.partition(":threads")[0] for record in counted})
    if len(devices) > 1:
        raise BadInput(f"the Run holds Records of {' and '.join(devices)}; findings are of one machine")
    return [Measured(**vars(group), machine=machine) for group in group_rows(counted)]
