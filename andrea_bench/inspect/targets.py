"""Which GPUs and dtypes can be inspected, by our own table, and what the compiler calls them."""

import re

from andrea_bench.errors import BadInput
from andrea_bench.hardware import Architecture, Gpu, architectures, find_gpu

_CANNOT = {
    "7.0": "nvdisasm no longer reads the machine code of compute capability 7.0",
    "7.5": "Triton compiles no matrix instructions for compute capability 7.5",
}
_TARGET_NAME = re.compile(r"sm_(\d{2,3})[af]?")


def target_of(gpu: Gpu) -> int:
    """The compiler's number of the GPU's architecture: 89 for compute capability 8.9."""
    return int(gpu.compute_capability.replace(".", ""))


def uninspectable(gpu: Gpu, dtype: str | None) -> str | None:
    """Why kernels on `gpu` can't be inspected (in `dtype`), or None."""
    capability = gpu.compute_capability
    if dtype == "bfloat16" and float(capability) < 8:
        return f"bfloat16 needs compute capability 8.0 (sm_80) or newer; {gpu.name} has {capability}"
    return _CANNOT.get(capability)


def capability_of_target(name: str) -> str | None:
    """ "12.1" for `sm_121a`: the compute capability in a target's name; None where it is no such name."""
    found = _TARGET_NAME.fullmatch(name)
    return f"{found[1][:-1]}.{found[1][-1]}" if found else None


def find_target(name: str) -> Gpu | str:
    """The Gpu of that name; or, for a well-formed target that the catalogue lacks (`sm_121a`), why it can't be
    inspected. Raises BadInput for all other names: an unknown GPU, an AMD target, `90`, `sm90`."""
    capability = capability_of_target(name)
    if capability is not None and capability not in architectures():
        known = ", ".join(a.target for a in _inspectable_architectures())
        return f"unknown target {name}; known: {known}"
    if re.fullmatch(r"(sm|SM)?_?\d{1,3}(\.\d)?[af]?", name) and capability is None:
        digits = re.sub(r"\D", "", name)
        raise BadInput(f"unknown GPU {name!r}; a target is written sm_{digits if len(digits) > 1 else '90'}")
    return find_gpu(name)


def _inspectable_architectures() -> list[Architecture]:
    return [a for a in architectures().values() if a.compute_capability not in _CANNOT]
