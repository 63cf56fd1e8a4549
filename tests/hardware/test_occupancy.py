"""Occupancy equals NVIDIA's own header, compiled, over random launches on every compute capability."""

import ctypes
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest

from andrea_bench.errors import BadInput
from andrea_bench.hardware import architectures, gpus, occupancy

LAUNCHES = 120_000
# The header's limits, in the order in which the shim writes them. Its own limitingFactors keep what was tight
# before barriers were looked at, so what limits is read from the limits themselves.
LIMITS = ("warps", "registers", "shared_memory", "blocks", "barriers")

# Calls the header for n launches of one architecture. columns: registers, shared memory, threads, barriers.
SHIM = r"""
#include <limits.h>
#include "cuda_occupancy.h"
void occupancies(int major, int minor, int max_threads, int registers, int smem_sm, int smem_block,
                 int reserved, int n, const int *columns, int *blocks, int *limits) {
    cudaOccDeviceProp device = {0};
    device.computeMajor = major;
    device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = max_threads;
    device.regsPerBlock = 65536;
    device.regsPerMultiprocessor = registers;
    device.warpSize = 32;
    device.sharedMemPerBlock = 49152;
    device.sharedMemPerMultiprocessor = smem_sm;
    device.numSms = 1;
    device.sharedMemPerBlockOptin = smem_block;
    device.reservedSharedMemPerBlock = reserved;
    cudaOccDeviceState state = {0};
    state.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT;
    for (int i = 0; i < n; i++) {
        const int *row = columns + 4 * i;
        cudaOccFuncAttributes function = {0};
        function.maxThreadsPerBlock = INT_MAX;
        function.numRegs = row[0];
        function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        function.maxDynamicSharedSizeBytes = smem_block;
        function.numBlockBarriers = row[3];
        cudaOccResult result = {0};
        int status = cudaOccMaxActiveBlocksPerMultiprocessor(
            &result, &device, &function, &state, row[2], row[1]);
        blocks[i] = status ? -status : result.activeBlocksPerMultiprocessor;
        limits[5 * i] = result.blockLimitWarps;
        limits[5 * i + 1] = result.blockLimitRegs;
        limits[5 * i + 2] = result.blockLimitSharedMem;
        limits[5 * i + 3] = result.blockLimitBlocks;
        limits[5 * i + 4] = result.blockLimitBarriers;
    }
}
"""


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here to compile NVIDIA's cuda_occupancy.h with")
    triton = find_spec("triton")
    if triton is None or triton.origin is None:
        pytest.skip("triton, whose wheel carries cuda_occupancy.h, is not installed")
    include = Path(triton.origin).parent / "backends" / "nvidia" / "include"
    if not (include / "cuda_occupancy.h").is_file():
        pytest.skip("this triton wheel does not carry cuda_occupancy.h")
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "shim.c").write_text(SHIM)
    library = folder / "shim.so"
    command = [
        compiler,
        "-O2",
        "-shared",
        "-fPIC",
        f"-I{include}",
        str(folder / "shim.c"),
        "-o",
        str(library),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return ctypes.CDLL(str(library))


def _random_launches(capability: str, n: int) -> list[list[int]]:
    """registers, shared memory, threads, barriers; edges of the limits as often as what lies between."""
    draw = Random(capability)
    most = architectures()[capability].shared_memory_per_block_bytes
    launches = []
    for _ in range(n):
        shared = draw.choice([0, draw.randint(0, most), draw.randint(0, 8192), most - draw.randint(-300, 300)])
        threads = draw.choice([draw.randint(1, 1024), 32 * draw.randint(1, 32), draw.randint(1020, 1040)])
        barriers = draw.choice([1, 1, draw.randint(0, 16)])
        launches.append([draw.randint(0, 258), shared, threads, barriers])
    return launches


@pytest.mark.parametrize("capability", architectures())
def test_equals_nvidias_header(header: ctypes.CDLL, capability: str) -> None:
    architecture = architectures()[capability]
    launches = _random_launches(capability, LAUNCHES // len(architectures()))
    n = len(launches)
    columns = (ctypes.c_int * (4 * n))(*(value for launch in launches for value in launch))
    blocks, limits = (ctypes.c_int * n)(), (ctypes.c_int * (5 * n))()
    major, minor = map(int, capability.split("."))
    header.occupancies(
        major, minor, architecture.max_threads_per_sm, architecture.registers_per_sm,
        architecture.shared_memory_per_sm_bytes, architecture.shared_memory_per_block_bytes,
        architecture.shared_memory_reserved_per_block_bytes, n, columns, blocks, limits,
    )  # fmt: skip
    differing = []
    for i, launch in enumerate(launches):
        registers, shared, threads, barriers = launch
        ours = occupancy(
            architecture.target,
            registers_per_thread=registers,
            shared_memory_bytes=shared,
            threads_per_block=threads,
            barriers_per_block=barriers,
        )
        tight = {name for name, limit in zip(LIMITS, limits[5 * i : 5 * i + 5], strict=True) if limit == blocks[i]}
        if ours.blocks_per_sm != blocks[i] or set(ours.limiter.split("+")) != tight:
            differing.append((launch, blocks[i], tight, ours))
    assert not differing, differing[:3]
    assert len(set(blocks)) > 10


@pytest.mark.parametrize(
    ("target", "registers", "shared", "threads", "blocks", "limiter"),
    [
        ("sm_80", 128, 32768, 256, 2, "registers"),
        ("sm_86", 128, 32768, 256, 2, "registers"),
        ("sm_89", 64, 16384, 128, 5, "shared_memory"),
        ("sm_90", 168, 200000, 384, 1, "registers+shared_memory"),
        ("sm_90", 32, 0, 32, 32, "blocks"),
        ("sm_120", 128, 49152, 128, 2, "shared_memory"),
        ("sm_75", 64, 16384, 128, 4, "shared_memory"),
        ("sm_80", 33, 0, 96, 16, "registers"),
        # 9 warps of 255 registers would fit, but the hardware checks as if there were 12.
        ("sm_80", 255, 0, 288, 0, "registers"),
    ],
)
def test_vectors(target: str, registers: int, shared: int, threads: int, blocks: int, limiter: str) -> None:
    found = occupancy(target, registers_per_thread=registers, shared_memory_bytes=shared, threads_per_block=threads)
    assert (found.blocks_per_sm, found.limiter) == (blocks, limiter)
    assert found.warps_per_sm == blocks * -(-threads // 32)


def test_occupancy_is_the_share_of_warps() -> None:
    found = occupancy(gpus()["rtx_4090"], registers_per_thread=64, shared_memory_bytes=16384, threads_per_block=128)
    assert found.warps_per_sm == 20
    assert found.occupancy == pytest.approx(20 / 48)


def test_tensor_memory_limits_blackwell() -> None:
    found = occupancy(
        "b200",
        registers_per_thread=32,
        shared_memory_bytes=0,
        threads_per_block=128,
        tensor_memory_columns=256,
    )
    assert (found.blocks_per_sm, found.limiter) == (2, "tensor_memory")


def test_what_is_no_launch_is_refused() -> None:
    with pytest.raises(BadInput, match="threads_per_block 0"):
        occupancy("b200", registers_per_thread=32, shared_memory_bytes=0, threads_per_block=0)
    with pytest.raises(BadInput, match="shared_memory_bytes -1"):
        occupancy("b200", registers_per_thread=32, shared_memory_bytes=-1, threads_per_block=32)
