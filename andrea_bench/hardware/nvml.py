"""NVML: the connection to NVIDIA's driver, and the GPUs that it knows (nvml_device.py).

The only module that imports pynvml (package nvidia-ml-py), and only when NVML is opened: a machine without
it, without a driver or without a GPU gets `Absent` with one line, and goes on. Only `Get` calls are made;
no setting of a card is ever changed.

Calls and units: NVIDIA's nvml.h 13.5 and nvidia-ml-py 13.615.
"""

from typing import Any

from andrea_bench.hardware.nvml_codes import (
    FUNCTION_NOT_FOUND,
    REMEDIES,
    same_pci,
    same_uuid,
    words,
)
from andrea_bench.hardware.nvml_device import Device
from andrea_bench.hardware.readings import Absent, Readings, put

__all__ = ["Absent", "Device", "Nvml"]


class Nvml:
    """An open connection to the driver. `refused`: one line for each GPU that could not be opened."""

    def __init__(self) -> None:
        """Raises Absent with cause and remedy where NVML can't start."""
        self._pynvml = _bindings()
        self.refused: list[str] = []
        try:
            self._pynvml.nvmlInit()
        except self._pynvml.NVMLError as error:
            remedy = REMEDIES.get(error.value)
            raise Absent(words(error.value) + (f": {remedy}" if remedy else ""), error.value) from None

    def close(self) -> None:
        """Shut NVML down. A driver that has gone away has nothing left to shut down."""
        try:
            self._pynvml.nvmlShutdown()
        except self._pynvml.NVMLError as error:
            self.refused.append(f"shutdown: {words(error.value)}")

    def ask(self, name: str, *arguments: Any) -> Any:
        """One call of pynvml. Raises Absent."""
        function = getattr(self._pynvml, name, None)
        if function is None:
            raise Absent("not in this version of nvidia-ml-py", FUNCTION_NOT_FOUND)
        try:
            return function(*arguments)
        except self._pynvml.NVMLError as error:
            raise Absent(words(error.value), error.value) from None
        except getattr(self._pynvml, "NVMLLibraryMismatchError", ()):  # no NVMLError, despite its name
            raise Absent(words(FUNCTION_NOT_FOUND), FUNCTION_NOT_FOUND) from None
        except UnicodeDecodeError:
            raise Absent("the driver's text is no UTF-8") from None

    def versions(self) -> Readings:
        """driver_version, and cuda_driver_version: the newest CUDA that the driver can run."""
        readings: Readings = {}
        put(readings, "driver_version", lambda: self.ask("nvmlSystemGetDriverVersion"))
        put(readings, "cuda_driver_version",
             lambda: _cuda_version(self.ask("nvmlSystemGetCudaDriverVersion_v2")))  # fmt: skip
        return readings

    def cards(self) -> list[Device]:
        """The GPUs of the machine, in NVML's order, whatever CUDA_VISIBLE_DEVICES says. Raises Absent."""
        self.refused, found = [], []
        for index in range(self.ask("nvmlDeviceGetCount")):
            try:
                found.append(Device(self.ask, self.ask("nvmlDeviceGetHandleByIndex", index)))
            except Absent as error:
                self.refused.append(f"GPU {index}: {error}")
        return found

    def find(self, uuid: str | None = None, pci_bus_id: str | None = None) -> Device:
        """The GPU or MIG slice of that UUID (with or without `GPU-`/`MIG-`), or the GPU at that PCI id
        (`0000:01:00.0`, any width). Raises Absent: never another card than the one asked for."""
        if not uuid and not pci_bus_id:
            raise Absent("neither UUID nor PCI id of the GPU is known")
        cards = self.cards()
        if uuid:
            for card in cards:
                for device in (card, *card.slices()):
                    if same_uuid(device.uuid, uuid):
                        return device
        if pci_bus_id:
            for card in cards:
                if card.pci_bus_id and same_pci(card.pci_bus_id, pci_bus_id):
                    if card.mig_enabled:
                        raise Absent(f"the GPU at {pci_bus_id} is split by MIG; a slice goes by UUID")
                    if uuid and card.uuid:
                        raise Absent(f"the GPU at {pci_bus_id} has UUID {card.uuid}, not {uuid}")
                    return card
        refused = f" ({'; '.join(self.refused)})" if self.refused else ""
        raise Absent(f"NVML has no GPU with {f'UUID {uuid}' if uuid else f'PCI id {pci_bus_id}'}{refused}")


def _bindings() -> Any:
    try:
        import pynvml
    except ImportError:
        raise Absent("the package nvidia-ml-py is not installed: pip install nvidia-ml-py") from None
    # Another package installs a module of this name, with other functions.
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        raise Absent("the module pynvml is not NVIDIA's: pip uninstall pynvml; pip install nvidia-ml-py")
    return pynvml


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
