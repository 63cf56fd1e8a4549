"""The machine's counters now, one look after another: what `monitor` shows and `doctor` reports."""

from datetime import UTC, datetime

from andrea_bench.hardware import cpu
from andrea_bench.hardware.nvml import Absent, Device, Nvml
from andrea_bench.hardware.readings import Readings


class Live:
    """Reads the CPU and every GPU and MIG slice that NVML knows. `gpus_reason`: why there are none, or which
    could not be opened. CPU readings are those since the look before."""

    def __init__(self, gpus: bool = True) -> None:
        self.gpus_reason: str | None = None if gpus else "not asked for"
        self._gpus: list[Device] = []
        try:
            if gpus:
                self._open()
        except Absent as error:
            self.gpus_reason = str(error)
        self._identities = [gpu.identity() for gpu in self._gpus]
        self._look = cpu.snapshot()

    @property
    def has_gpus(self) -> bool:
        return bool(self._gpus)

    def _open(self) -> None:
        nvml = Nvml()
        self._gpus = [device for card in nvml.cards() for device in (card, *card.slices())]
        self.gpus_reason = "; ".join(nvml.refused) or (None if self._gpus else "NVML lists no GPU")

    def read(self) -> Readings:
        """One look, JSON-ready: `time` (UTC), `cpu`, `gpus` (each with uuid, name, its limits and state)."""
        look = cpu.snapshot()
        read: Readings = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        read["cpu"] = cpu.between(self._look, look)
        self._look = look
        read["gpus"] = [self._gpu(*pair) for pair in zip(self._gpus, self._identities, strict=True)]
        if self.gpus_reason:
            read["gpus_reason"] = self.gpus_reason
        return read

    def _gpu(self, gpu: Device, identity: Readings) -> Readings:
        read = identity | gpu.state() | gpu.pcie()
        try:
            read["processes"] = gpu.processes()
        except Absent as error:
            read |= {"processes": None, "processes_reason": str(error)}
        return read
