"""Environment: what run.json says of the machine, its software and the code, and what two of them differ in.

Nothing heavy is imported: library versions come from the packages' metadata, GPUs from NVML where it is.
"""

import importlib.util
import os
import platform
import socket
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import andrea_bench
from andrea_bench.hardware import cpu
from andrea_bench.hardware.nvml_codes import same_pci, same_uuid

# What can change a timing or a compiled kernel.
LIBRARIES = ("andrea-bench", "torch", "triton", "numpy", "msgspec", "nvidia-ml-py", "polars", "altair", "scipy",
             "flash-attn", "asv")  # fmt: skip
VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "TRITON_INTERPRET",
             "TRITON_DEFAULT_FP_FUSION", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_AFFINITY", "LD_PRELOAD",
             "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "PYTORCH_CUDA_ALLOC_CONF",
             "PYTORCH_ALLOC_CONF")  # fmt: skip
# What makes two CPUs, or two GPUs without a common UUID, the same for a timing; never an index or a name of
# the host, which containers change daily. Settings that timings depend on count also for one and the same GPU.
CPU_FIELDS = ("model", "logical_cpus", "cores", "smt_active", "virtual_machine", "max_clock_mhz", "memory_bytes",
              "governor", "boost")  # fmt: skip
GPU_FIELDS = ("name", "compute_capability", "cuda_cores", "memory_total_bytes", "memory_bus_width_bits",
              "max_sm_clock_mhz", "max_memory_clock_mhz")  # fmt: skip
GPU_SETTINGS = ("application_sm_clock_mhz", "application_memory_clock_mhz", "power_limit_watts", "ecc_enabled",
                "mig_enabled", "mig_slice")  # fmt: skip
# Sizes that firmware or a hypervisor rounds anew at each boot.
RELATIVE_TOLERANCE = {"memory_bytes": 0.02, "memory_total_bytes": 0.02, "power_limit_watts": 0.01}
GIT_TIMEOUT_S = 20


def environment(device: str, gpu_uuid: str | None = None, pci_bus_id: str | None = None) -> dict[str, Any]:
    """What run.json holds as `environment`, JSON-ready: host, os, cpu, gpus (all of the machine, by UUID),
    device and gpu (the one measured on), libraries, variables, git (commit, dirty).

    device: "cpu", "cuda" or "cuda:N". gpu_uuid or pci_bus_id say which card CUDA calls so; without them it
    is known only where the machine has one GPU, or CUDA_VISIBLE_DEVICES names it by UUID.
    """
    found: dict[str, Any] = {"device": device} | _host()
    found["os"] = {"system": platform.system(), "release": platform.release(), "machine": platform.machine()}
    found["python"] = platform.python_version()
    found["cpu"] = cpu.machine()
    found |= _gpus()
    if device.startswith("cuda"):
        found |= _measured_gpu(device, gpu_uuid, pci_bus_id, found["gpus"])
    found["libraries"] = {name: version for name in LIBRARIES if (version := _version(name))}
    found["variables"] = {name: _clean(os.environ[name]) for name in VARIABLES if name in os.environ}
    found["git"] = git_state()
    return found


def git_state() -> dict[str, Any]:
    """commit and dirty of the tree that this package's code stands in, None beside a `reason` where it
    stands in none. dirty: files of the packages changed, added or missing; results don't count."""
    package = Path(andrea_bench.__file__).resolve().parent
    kernels = importlib.util.find_spec("andrea_kernels")
    places = (kernels.submodule_search_locations if kernels else None) or []
    folders = [package, *(Path(place).resolve() for place in places)]
    try:
        # Installed into an environment inside someone else's repository, it is not that repository's code.
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        commit = _git(package, "rev-parse", "HEAD").strip()
        status = _git(package, "status", "--porcelain", "--", *map(str, folders))
    except FileNotFoundError:
        return {"commit": None, "dirty": None, "reason": "git is not installed"}
    except subprocess.TimeoutExpired:
        return {"commit": None, "dirty": None, "reason": f"git took over {GIT_TIMEOUT_S} s"}
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()
        reason = said[0] if said else f"git ended with {error.returncode}"
        return {"commit": None, "dirty": None, "reason": reason}
    return {"commit": commit, "dirty": bool(status.strip())}


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """What differs between the machines of two environments, a line each, as in `GPU name: A -> B`; empty
    where timings of the two may be compared or put into one Run.

    A CPU and a GPU differ; two GPUs are the same by UUID, or where both carry the same properties; the index
    of a GPU, the host's name, the driver and libraries (whose effect a comparison may be after) never count.
    What one side doesn't know is not compared.
    """
    kinds = [str(side.get("device", "cpu")).partition(":")[0] for side in (a, b)]
    if kinds[0] != kinds[1]:
        return [f"device: {kinds[0]} -> {kinds[1]}"]
    if kinds[0] == "cpu":
        return _differing("CPU", CPU_FIELDS, a.get("cpu") or {}, b.get("cpu") or {})
    gpu_a, gpu_b = a.get("gpu") or {}, b.get("gpu") or {}
    if same_uuid(gpu_a.get("uuid"), gpu_b.get("uuid")):
        return _differing("GPU", GPU_SETTINGS, gpu_a, gpu_b)
    return _differing("GPU", (*GPU_FIELDS, *GPU_SETTINGS), gpu_a, gpu_b)


def _differing(kind: str, fields: tuple[str, ...], a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    lines = []
    for field in fields:
        one, other = a.get(field), b.get(field)
        if one is None or other is None:
            continue
        tolerance = RELATIVE_TOLERANCE.get(field)
        same = abs(one - other) <= tolerance * max(one, other) if tolerance else one == other
        if not same:
            lines.append(f"{kind} {field.replace('_', ' ')}: {one} -> {other}")
    return lines


def _host() -> dict[str, Any]:
    """The host's name, kept whatever its bytes: those that are no UTF-8 as `\\xNN`, and all in hex beside."""
    name = socket.gethostname()
    host = {"host": _clean(name)}
    if host["host"] != name:
        host["host_bytes_hex"] = os.fsencode(name).hex()
    return host


def _clean(text: str) -> str:
    """Text of the system's as valid UTF-8."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def _gpus() -> dict[str, Any]:
    """gpus: the identity of every GPU that NVML knows, with its MIG slices; driver and CUDA versions."""
    from andrea_bench.hardware.nvml import Absent, Nvml

    try:
        nvml = Nvml()
        cards = nvml.cards()
        found: dict[str, Any] = {"gpus": [d.identity() for card in cards for d in (card, *card.slices())]}
        found |= nvml.versions()
        if nvml.refused:
            found["gpus_reason"] = "; ".join(nvml.refused)
        nvml.close()
        return found
    except Absent as error:
        return {"gpus": [], "gpus_reason": str(error)}


def _measured_gpu(device: str, uuid: str | None, pci_bus_id: str | None, gpus: list[dict[str, Any]]) -> dict[str, Any]:
    index = int(device.partition(":")[2] or 0)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if uuid is None and pci_bus_id is None and index < len(visible) and visible[index].count("-") >= 4:
        uuid = visible[index]
    for gpu in gpus:
        if uuid and same_uuid(gpu["uuid"], uuid):
            return {"gpu": gpu}
        # A slice shares the PCI id of its card, which is split then: only a UUID tells slices apart.
        if not uuid and pci_bus_id and same_pci(gpu["pci_bus_id"] or "", pci_bus_id) and not gpu["mig_enabled"]:
            return {"gpu": gpu}
    if uuid or pci_bus_id:
        return {"gpu": {"uuid": uuid, "pci_bus_id": pci_bus_id}, "gpu_reason": "NVML does not know this GPU"}
    if len(gpus) == 1:
        return {"gpu": gpus[0]}
    # Of equal cards it need not be known which one it is, to tell it from another machine's.
    kinds = [{field: gpu.get(field) for field in (*GPU_FIELDS, *GPU_SETTINGS)} for gpu in gpus]
    if gpus and all(kind == kinds[0] for kind in kinds):
        return {"gpu": {"uuid": None, **kinds[0]}, "gpu_reason": f"one of {len(gpus)} equal GPUs"}
    reason = f"which of {len(gpus)} GPUs CUDA calls {device} is not known here"
    return {"gpu": None, "gpu_reason": reason if gpus else "NVML lists no GPU"}


def _version(distribution: str) -> str | None:
    """The version of an installed package, without importing it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str:
    # Within a git hook, variables of git's own would point at the hook's repository.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    result = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env={**clean, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        capture_output=True,
        check=True,
        timeout=GIT_TIMEOUT_S,
        encoding="utf-8",
        errors="backslashreplace",
    )
    return result.stdout
