"""Reads a binary into numbers: what one block does in one pass of the kernel's main loop.

Nothing here depends on a product, only on the architecture that was compiled for, so it can be cached.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from andrea_bench.inspect import dots, matrix, sass
from andrea_bench.inspect.compile import WARP_SIZE, Binary
from andrea_bench.inspect.resources import Resources, read_resources
from andrea_bench.inspect.sass import Instruction

GLOBAL_LOADS = frozenset(("LDG", "LD"))
ASYNC_COPIES = frozenset(("LDGSTS",))
SHARED_ACCESSES = frozenset(("LDS", "STS", "LDSM", "STSM", "ATOMS"))
TMA_COPIES = frozenset(("UTMALDG", "UBLKCP", "UTMASTG", "UTMAREDG"))
BRANCHES = frozenset(("BRA", "BRX", "JMP", "JMX", "CALL", "RET", "EXIT"))
FMAS = frozenset(("FFMA", "FFMA2", "HFMA2", "DFMA"))
# Which unit takes an instruction. Uniform instructions (U*) run beside the four units and are left out.
FMA_UNIT = frozenset(("FFMA", "FMUL", "FADD", "HFMA2", "HMUL2", "HADD2", "FFMA2", "FMUL2", "FADD2"))
PACKED_PAIRS = frozenset(("FFMA2", "FMUL2", "FADD2"))  # two float32 results a lane
INTEGER_FMA_UNIT = frozenset(("IMAD",))
ALU_UNIT = frozenset(
    (
        *("IADD3", "IADD", "VIADD", "LOP3", "LEA", "SHF", "ISETP", "FSETP", "FSEL", "SEL", "PRMT", "SGXT"),
        *("FMNMX", "FMNMX3", "VIMNMX", "VIMNMX3", "IMNMX", "PLOP3", "P2R", "R2P", "MOV", "BMSK", "VOTE"),
        *("F2FP", "I2FP", "I2F", "F2I"),
    )
)
EXP_UNIT = frozenset(("MUFU",))
LOAD_STORE_UNIT = frozenset(
    (
        *("LDG", "STG", "LD", "ST", "LDL", "STL", "LDS", "STS", "LDSM", "STSM", "LDGSTS", "SHFL"),
        *("ATOM", "ATOMG", "ATOMS", "RED", "REDG"),
    )
)
_MODIFIER_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_TILE_BYTES = 128  # one 8 x 8 matrix of 16-bit elements, of an LDSM or STSM


class MatrixCount(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of matrix instruction: how often it stands in the main loop and in the kernel.

    m, n, k None: the shape could not be read. flops: of the main loop's, over the block, in one pass.
    """

    instruction: str
    m: int | None
    n: int | None
    k: int | None
    in_loop: int
    total: int
    kind: str
    float16_accumulator: bool
    flops: float | None


class UnitWork(msgspec.Struct, frozen=True, kw_only=True):
    """What one block asks of each unit of the SM in one pass of the main loop, as the code stands: every
    instruction counted once, shared memory without bank conflicts."""

    exp_results: int
    fma_results: int
    integer_fma_results: int
    alu_results: int
    shared_memory_bytes: float
    load_store_lanes: int


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """What a binary holds. Counts are of the main loop (without one, of the kernel), per warp and static.

    loop_instructions None: there is no loop. matrix_flops: of the matrix instructions over the block in one
    pass of the loop, None where a shape is not known. passes: how many iterations of the source's loop one
    pass makes (unrolling), None where the machine code does not agree with the compiler's IR.
    unknown: what could not be read, and why.
    """

    name: str
    resources: Resources
    threads_per_block: int
    shared_memory_bytes: int
    tensor_memory_columns: int
    mma: list[MatrixCount]
    matrix_flops: float | None
    passes: int | None
    width_qk: int | None
    width_pv: int | None
    global_load_bytes: dict[str, int]
    async_copy_bytes: dict[str, int]
    exp_instructions: int
    fma_instructions: int
    shared_memory_instructions: int
    branch_instructions: int
    tma_copies: int
    loop_instructions: int | None
    kernel_instructions: int
    work: UnitWork
    code_hash: str
    compile_seconds: float
    unknown: dict[str, str]


def analyse(binary: Binary, code: sass.Code) -> Analysis:
    """Of a binary and its code. Raises ValueError where the compiler's report lacks the kernel."""
    resources = read_resources(binary.log, binary.name)
    loop = sass.main_loop(code, matrix.is_matrix)
    body = code.instructions if loop is None else loop
    warps = binary.threads_per_block // WARP_SIZE
    matrices = matrix.decode(code, binary.ptx)
    mma = _matrix_counts(matrices, {i.address for i in body}, warps)
    flops = _total_flops(mma)
    products = dots.loop_dots(binary.ttir)
    passes, disagreement = _passes(flops, products, dots.repetitions(binary.ttgir))
    unknown = _unknowns(code, loop, products, disagreement, "ttg.warp_specialize" in binary.ttgir)
    if flops is None:
        unknown["issued_mma_flops"] = "a matrix instruction's shape stands neither in the code nor in the PTX"
    roots = Counter(i.root for i in body)
    return Analysis(
        name=binary.name,
        resources=resources,
        threads_per_block=binary.threads_per_block,
        shared_memory_bytes=binary.shared_memory_bytes + resources.static_shared_memory_bytes,
        tensor_memory_columns=binary.tensor_memory_columns,
        mma=mma,
        matrix_flops=flops,
        passes=passes,
        width_qk=dots.width_qk(products) if passes else None,
        width_pv=dots.width_pv(products) if passes else None,
        global_load_bytes=_widths(body, GLOBAL_LOADS),
        async_copy_bytes=_widths(body, ASYNC_COPIES),
        exp_instructions=sum(i.opcode.startswith("MUFU.EX2") for i in body),
        fma_instructions=_count(roots, FMAS),
        shared_memory_instructions=_count(roots, SHARED_ACCESSES),
        branch_instructions=_count(roots, BRANCHES),
        tma_copies=_count(roots, TMA_COPIES),
        loop_instructions=None if loop is None else len(loop),
        kernel_instructions=len(code.instructions),
        work=_work(body, roots, [matrices[i.address] for i in body if i.address in matrices], warps),
        code_hash=code.digest,
        compile_seconds=binary.seconds,
        unknown=unknown,
    )


def access_bytes(instruction: Instruction) -> int:
    """Bytes that one lane of a load, store or copy moves: 4 unless a modifier says otherwise."""
    return next((_MODIFIER_BYTES[p] for p in instruction.opcode.split(".") if p in _MODIFIER_BYTES), 4)


def _count(roots: Counter[str], wanted: Iterable[str]) -> int:
    return sum(roots[root] for root in wanted)


def _widths(body: Iterable[Instruction], wanted: frozenset[str]) -> dict[str, int]:
    """Access width in bytes -> instructions; keys are texts, as in JSON, in ascending order."""
    counts = Counter(access_bytes(i) for i in body if i.root in wanted)
    return {str(width): counts[width] for width in sorted(counts)}


def _matrix_counts(matrices: dict[int, matrix.MatrixInstruction], in_body: set[int], warps: int) -> list[MatrixCount]:
    """One entry for each instruction and shape."""
    addresses: dict[matrix.MatrixInstruction, list[int]] = {}
    for address, one in matrices.items():
        # Where the operands come from makes no difference here.
        key = replace(one, shared_a=False, shared_b=False)
        addresses.setdefault(key, []).append(address)
    made = []
    for one, places in addresses.items():
        in_loop = sum(address in in_body for address in places)
        each = one.flops_per_block(warps)
        made.append(
            MatrixCount(
                instruction=one.name,
                m=one.m,
                n=one.n,
                k=one.k,
                in_loop=in_loop,
                total=len(places),
                kind=one.kind,
                float16_accumulator=one.float16_accumulator,
                flops=None if each is None else each * in_loop,
            )
        )
    return sorted(made, key=lambda c: (c.instruction, c.m or 0, c.n or 0, c.k or 0))


def _total_flops(mma: list[MatrixCount]) -> float | None:
    flops = [one.flops for one in mma if one.in_loop]
    return None if None in flops else sum(one for one in flops if one is not None)


def _passes(
    flops: float | None, products: list[dots.Dot], repetitions: dict[tuple[int, int], float]
) -> tuple[int | None, str | None]:
    """How many iterations of the IR's loop the machine code's loop makes in one pass, by their matrix FLOPs;
    or why that can't be said."""
    expected = sum(dot.flops * repetitions.get((dot.m, dot.n), 1) for dot in products)
    if flops is None:
        return None, "the matrix instructions of the machine code could not be read"
    if not expected:
        return (1, None) if not flops else (None, "the machine code multiplies matrices, the IR does not")
    if not flops or flops % expected:
        return None, (
            f"the machine code's loop does {flops:g} matrix FLOPs a block, the compiler's IR {expected:g}: "
            "no multiple of one another"
        )
    return int(flops // expected), None


def _unknowns(
    code: sass.Code,
    loop: tuple[Instruction, ...] | None,
    products: list[dots.Dot],
    disagreement: str | None,
    specialised: bool,
) -> dict[str, str]:
    unknown: dict[str, str] = {}
    for name, width in (("qk", dots.width_qk(products)), ("pv", dots.width_pv(products))):
        if disagreement or width is None:
            said = disagreement or f"the main loop holds no product that is {'Q K^T' if name == 'qk' else 'P V'}"
            unknown[f"computed_width_{name}"] = said
    if loop is None:
        unknown["loop_instructions"] = (
            "indirect jumps hide the loops" if code.indirect else "no loop holds the work; counts are the kernel's"
        )
    if code.unread:
        unknown["kernel_instructions"] = f"{code.unread} instructions could not be read, and are not counted"
    elif code.other_functions:
        unknown["kernel_instructions"] = f"functions that are called are left out: {', '.join(code.other_functions)}"
    if specialised:
        unknown["unit_cycles"] = "warps are specialised: only the loop with the matrix instructions was counted"
    return unknown


def _work(
    body: Iterable[Instruction],
    roots: Counter[str],
    matrices: list[matrix.MatrixInstruction],
    warps: int,
) -> UnitWork:
    threads = warps * WARP_SIZE
    shared = sum(one.shared_bytes_per_block(warps) for one in matrices)
    for instruction in body:
        if instruction.root in ("LDS", "STS", "ATOMS", "LDGSTS"):
            shared += access_bytes(instruction) * threads
        elif instruction.root in ("LDSM", "STSM"):
            tiles = next((int(p) for p in instruction.opcode.split(".")[::-1] if p in ("2", "4")), 1)
            shared += tiles * _TILE_BYTES * warps
    return UnitWork(
        exp_results=_count(roots, EXP_UNIT) * threads,
        fma_results=(_count(roots, FMA_UNIT) + _count(roots, PACKED_PAIRS)) * threads,
        integer_fma_results=_count(roots, INTEGER_FMA_UNIT) * threads,
        alu_results=_count(roots, ALU_UNIT) * threads,
        shared_memory_bytes=shared,
        load_store_lanes=_count(roots, LOAD_STORE_UNIT) * threads,
    )
