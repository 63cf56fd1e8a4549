"""Matrix (tensor-core) instructions: their shapes, what they multiply, and who issues them.

Machine code names the shape of HMMA and HGMMA; of tcgen05 (UTCHMMA and its kin, compute capability 10.0) the
shape stands in a descriptor, a constant that is found in the machine code or, failing that, in the PTX.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from andrea_bench.inspect.sass import Code, Instruction

_WARP_ROOTS = ("HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "BMMA")
_WARPGROUP_ROOTS = ("HGMMA", "IGMMA", "QGMMA", "BGMMA")
_BLOCK_ROOTS = ("UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA", "UTCMXQMMA")
MATRIX_ROOTS = frozenset(_WARP_ROOTS + _WARPGROUP_ROOTS + _BLOCK_ROOTS)

# Digits run together in the opcode: m, n, k (NVIDIA/cutlass, include/cute/arch/mma_sm*.hpp).
_WARP_SHAPES = {
    "884": (8, 8, 4),
    "8816": (8, 8, 16),
    "8832": (8, 8, 32),
    "88128": (8, 8, 128),
    "1684": (16, 8, 4),
    "1688": (16, 8, 8),
    "16816": (16, 8, 16),
    "16832": (16, 8, 32),
    "16864": (16, 8, 64),
    "168128": (16, 8, 128),
    "168256": (16, 8, 256),
}
# K is 256 bits of an operand (NVIDIA/cutlass, include/cute/atom/mma_traits_sm100.hpp).
_BLOCK_K = {"UTCQMMA": 32, "UTCIMMA": 32, "UTCMXQMMA": 32, "UTCOMMA": 64}
_TF32_FORMAT = 2


@dataclass(frozen=True, slots=True)
class MatrixInstruction:
    """What one matrix instruction multiplies: (m, k) times (k, n), None where that is not known.

    issuer: `warp`, `warpgroup` (4 warps share it) or `block` (one thread issues it for all).
    operands_bytes: what it reads from shared memory. kind: `float16`, `bfloat16`, `tf32`, `8bit`, `4bit`,
    `float64`, `1bit`; float16_accumulator: it adds up in float16.
    """

    name: str
    issuer: str
    kind: str
    m: int | None
    n: int | None
    k: int | None
    shared_a: bool = False
    shared_b: bool = False
    float16_accumulator: bool = False
    blocks: int = 1

    @property
    def shape(self) -> tuple[int, int, int] | None:
        if self.m is None or self.n is None or self.k is None:
            return None
        return self.m, self.n, self.k

    def flops_per_block(self, warps: int) -> float | None:
        """FLOPs of one such instruction in the code, over the whole block of `warps` warps."""
        if self.shape is None:
            return None
        m, n, k = self.shape
        times = {"warp": warps, "warpgroup": warps / 4, "block": 1 / self.blocks}[self.issuer]
        return 2 * m * n * k * times

    def shared_bytes_per_block(self, warps: int) -> float:
        """Bytes that it reads from shared memory, over the whole block; 0 where its shape is not known."""
        if self.shape is None:
            return 0.0
        m, n, k = self.shape
        element = {"tf32": 4.0, "8bit": 1.0, "4bit": 0.5}.get(self.kind, 2.0)
        times = {"warp": 0.0, "warpgroup": warps / 4, "block": 1 / self.blocks}[self.issuer]
        return times * element * (m * k * self.shared_a + n * k * self.shared_b)


def is_matrix(instruction: Instruction) -> bool:
    return instruction.root in MATRIX_ROOTS


def decode(code: Code, ptx: str) -> dict[int, MatrixInstruction]:
    """The matrix instructions of the code, by address."""
    made = {i.address: _decode_one(i, code) for i in code.instructions if is_matrix(i)}
    unknown = [address for address, one in made.items() if one.issuer == "block" and one.shape is None]
    shapes = set(_ptx_descriptors(ptx))
    if unknown and len(shapes) == 1 and None not in shapes:
        # All of the PTX say the same shape, so the ones that could not be traced have it too.
        (descriptor,) = shapes
        for address in unknown:
            one = next(i for i in code.instructions if i.address == address)
            made[address] = _block_instruction(one, descriptor)
    return made


def _decode_one(instruction: Instruction, code: Code) -> MatrixInstruction:
    parts = instruction.opcode.split(".")
    if instruction.root in _BLOCK_ROOTS:
        return _block_instruction(instruction, _descriptor(instruction, code.instructions))
    if instruction.root in _WARPGROUP_ROOTS:
        shape = re.search(r"\.(\d+)x(\d+)x(\d+)", instruction.opcode)
        m, n, k = (int(s) for s in shape.groups()) if shape else (None, None, None)
        sources = instruction.operands.split(",")
        return MatrixInstruction(
            name=instruction.opcode, issuer="warpgroup", kind=_kind(parts), m=m, n=n, k=k,
            # One printed descriptor in second place stands for A's and B's, else A is in registers.
            shared_a=len(sources) > 1 and "gdesc" in sources[1],
            shared_b="gdesc" in instruction.operands,
            float16_accumulator=parts[2:3] == ["F16"],
        )  # fmt: skip
    m, n, k = _WARP_SHAPES.get(next((p for p in parts if p.isdigit()), ""), (None, None, None))
    if (crossed := re.search(r"\.(\d+)x(\d+)x(\d+)", instruction.opcode)) is not None:
        m, n, k = (int(s) for s in crossed.groups())
    accumulator = next((p for p in parts[1:] if p in ("F16", "F32", "F64")), "")
    return MatrixInstruction(
        name=instruction.opcode, issuer="warp", kind=_kind(parts), m=m, n=n, k=k,
        float16_accumulator=instruction.root in ("HMMA", "QMMA") and accumulator == "F16",
    )  # fmt: skip


def _kind(parts: list[str]) -> str:
    root = parts[0]
    if root.startswith("D"):
        return "float64"
    if root.startswith("B"):
        return "1bit"
    if root.startswith("O"):
        return "4bit"
    if root.startswith(("I", "Q")):
        return "4bit" if "U4" in parts or "S4" in parts else "8bit"
    return "bfloat16" if "BF16" in parts else "tf32" if "TF32" in parts else "float16"


def _block_instruction(instruction: Instruction, descriptor: int | None) -> MatrixInstruction:
    """A tcgen05 instruction. Its descriptor holds the accumulator's format in bit 4, A's in bits 7 to 9, N/8
    in bits 17 to 22 and M/16 in bits 24 to 28 (PTX ISA, tcgen05 instruction descriptor)."""
    blocks = 2 if "2CTA" in instruction.opcode else 1
    sources = [part.strip() for part in instruction.operands.split(",")]
    root = instruction.root
    m = n = k = None
    kind = {"UTCOMMA": "4bit", "UTCHMMA": "float16"}.get(root, "8bit")
    if descriptor is not None:
        m, n = (descriptor >> 24 & 0x1F) * 16, (descriptor >> 17 & 0x3F) * 8
        operand = descriptor >> 7 & 7
        if root == "UTCHMMA":
            kind = {0: "float16", 1: "bfloat16", _TF32_FORMAT: "tf32"}.get(operand, "float16")
        k = (8 if kind == "tf32" else 16) if root == "UTCHMMA" else _BLOCK_K.get(root)
    return MatrixInstruction(
        name=instruction.opcode, issuer="block", kind=kind, m=m, n=n, k=k, blocks=blocks,
        shared_a=sources[0].startswith("gdesc"), shared_b=len(sources) > 1 and sources[1].startswith("gdesc"),
        float16_accumulator=descriptor is not None and root == "UTCHMMA" and not descriptor >> 4 & 3,
    )  # fmt: skip


def _descriptor(instruction: Instruction, instructions: Sequence[Instruction]) -> int | None:
    """The constant last written, in the order of the code, to the register that holds the descriptor."""
    register = re.search(r"idesc\[(UR\d+)\]", instruction.operands)
    if register is None:
        return None
    for earlier in reversed([i for i in instructions if i.address < instruction.address]):
        destination, _, source = earlier.operands.partition(",")
        if destination.strip() == register[1]:
            constant = re.fullmatch(r"\s*(0x[0-9a-f]+)", source)
            return int(constant[1], 16) if earlier.opcode == "UMOV" and constant else None
    return None


def _ptx_descriptors(ptx: str) -> list[int | None]:
    """The descriptors of the tcgen05.mma instructions of the PTX, in their order."""
    constants = {name: int(value) for name, value in re.findall(r"mov\.b32\s+(%r\d+), (-?\d+);", ptx)}
    found: list[int | None] = []
    for operands in re.findall(r"tcgen05\.mma\.(?!ws)\S+\s+([^;]+);", ptx):
        registers = [o.strip() for o in operands.split(",") if o.strip().startswith("%r")]
        values = [constants.get(register) for register in registers if re.fullmatch(r"%r\d+", register)]
        found.append(values[-1] if values else None)
    return found
