"""The main loop, from machine code written by hand in nvdisasm's form."""

import re

from andrea_bench.inspect import matrix, sass


def listing(*lines: str, start: int = 0) -> str:
    """Instructions at start, start + 0x10, ...; a line that ends with a colon names the address of what follows it,
    which is written where the name stands in backquotes."""
    made, labels, address = [], {}, start
    for line in lines:
        if line.endswith(":"):
            labels[line[:-1]] = address
        else:
            made.append(f"        /*{address:04x}*/                   {line} ;\n")
            address += 16
    return re.sub(r"`\((\S+?)\)", lambda name: f"0x{labels[name[1]]:x}", "".join(made))


def code_of(*lines: str) -> sass.Code:
    (instructions,) = sass.parse(listing(*lines))
    return sass.make_code(instructions)


def loop_of(*lines: str) -> list[str] | None:
    found = sass.main_loop(code_of(*lines), matrix.is_matrix)
    return None if found is None else [i.opcode for i in found]


HMMA = "HMMA.16816.F32.BF16 R4, R8, R10, R4"


def test_innermost_loop_that_holds_the_matrix_instructions():
    lines = [".L_x_0:", "MOV R1, R2", ".L_x_1:", HMMA, "@P0 BRA `(.L_x_1)", "@P1 BRA `(.L_x_0)", "EXIT"]
    assert loop_of(*lines) == ["HMMA.16816.F32.BF16", "BRA"]


def test_inner_loop_without_matrix_instructions_belongs_to_the_loop_around_it():
    lines = [".L_x_0:", HMMA, ".L_x_1:", "FADD R1, R1, R2", "@P0 BRA `(.L_x_1)", "@P1 BRA `(.L_x_0)", "EXIT"]
    assert loop_of(*lines) == ["HMMA.16816.F32.BF16", "FADD", "BRA", "BRA"]


def test_out_of_line_wait_that_jumps_back_is_no_loop_around_the_code_between():
    """As on 10.0: the wait at .L_x_9 lies after the loop and jumps back into it."""
    lines = [
        ".L_x_0:", "SYNCS R1", "@!P0 BRA `(.L_x_9)", ".L_x_1:", "UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8]",
        "BRA.U !UP1, `(.L_x_0)", "EXIT", ".L_x_9:", "SYNCS R2", "@!P0 BRA `(.L_x_9)", "BRA `(.L_x_1)",
    ]  # fmt: skip
    assert loop_of(*lines) == ["SYNCS", "BRA", "UTCHMMA", "BRA.U", "SYNCS", "BRA", "BRA"]
    # Without the jump of the loop itself, the wait alone makes no loop that holds the instruction.
    assert loop_of(*[line for line in lines if not line.startswith("BRA.U")]) is None


def test_far_call_that_leaves_the_loop():
    """As on 8.0: the loop is left by a CALL, and closed by a plain BRA."""
    lines = [".L_x_0:", HMMA, "@!P2 CALL.REL.NOINC `(.L_x_1)", "BRA `(.L_x_0)", ".L_x_1:", "EXIT"]
    assert loop_of(*lines) == ["HMMA.16816.F32.BF16", "CALL.REL.NOINC", "BRA"]


def test_of_two_loops_the_one_with_more_matrix_instructions_then_the_shorter():
    two = [".L_x_0:", HMMA, "FADD R1, R1, R2", "@P0 BRA `(.L_x_0)", ".L_x_1:", HMMA, "@P1 BRA `(.L_x_1)", "EXIT"]
    assert loop_of(*two) == ["HMMA.16816.F32.BF16", "BRA"]
    more = [".L_x_0:", HMMA, HMMA, "FADD R1, R1, R2", "@P0 BRA `(.L_x_0)", *two[4:]]
    assert loop_of(*more) == ["HMMA.16816.F32.BF16", "HMMA.16816.F32.BF16", "FADD", "BRA"]


def test_straight_code_and_the_idle_loop_after_the_end():
    assert loop_of(HMMA, "EXIT", ".L_x_0:", "BRA `(.L_x_0)", "NOP") is None


def test_predicates_and_targets():
    code = code_of("@!P3 BRA `(.L_x_0)", ".L_x_0:", "EXIT")
    assert [(i.address, i.predicate, i.opcode, i.target) for i in code.instructions] == [
        (0, "!P3", "BRA", 16),
        (16, "", "EXIT", None),
    ]
    assert not code.indirect
    assert code_of("BRX R2 -0x10", "EXIT").indirect


def test_kernels_printed_one_after_the_other_count_from_their_own_start():
    loop = [".L_x_0:", HMMA, "@P0 BRA `(.L_x_0)", "EXIT"]
    text = listing(*loop) + listing(*loop, start=0x30) + listing("EXIT", start=0x60)
    first, second, third = sass.parse(text, [0, 0x30, 0x60])
    assert first == second and [i.target for i in second] == [None, 0, None]
    assert [i.address for i in third] == [0]


def test_what_a_loader_completes_jumps_nowhere_that_is_known():
    (instructions,) = sass.parse(listing(".L_x_0:", HMMA, "CALL.REL.NOINC `(.L_x_0)", "EXIT"))
    code = sass.make_code(instructions, frozenset([16]), other_functions=("helper",))
    assert [i.target for i in code.instructions] == [None, None, None]
    assert sass.main_loop(code, matrix.is_matrix) is None
    assert sass.main_loop(sass.make_code(instructions), matrix.is_matrix) is not None
    assert code.other_functions == ("helper",)


def decode(*lines: str, ptx: str = "") -> list[matrix.MatrixInstruction]:
    return list(matrix.decode(code_of(*lines), ptx).values())


def test_shapes_that_opcodes_name():
    found = decode(
        "HMMA.16816.F32.BF16 R4, R8, R10, R4", "HMMA.1688.F32.TF32 R4, R8, R10, R4", "HMMA.16816.F16 R4, R8, R10, R4",
        "IMMA.16832.S8.S8 R4, R8, R10, R4", "DMMA.8x8x4 R4, R8, R10, R4", "QMMA.16832.F32.E4M3.E4M3 R4, R8, R10, R4",
        "HGMMA.64x256x16.F32 R24, gdesc[UR4], R24", "HGMMA.64x80x8.F32.TF32 R24, R8, gdesc[UR4], R24",
    )  # fmt: skip
    assert [one.shape for one in found] == [
        (16, 8, 16), (16, 8, 8), (16, 8, 16), (16, 8, 32), (8, 8, 4), (16, 8, 32), (64, 256, 16), (64, 80, 8)
    ]  # fmt: skip
    assert [one.kind for one in found] == [
        "bfloat16", "tf32", "float16", "8bit", "float64", "8bit", "float16", "tf32"
    ]  # fmt: skip
    assert [one.float16_accumulator for one in found] == [False, False, True, False, False, False, False, False]
    # A from shared memory, then A from registers; B from shared memory in both.
    assert [(one.shared_a, one.shared_b) for one in found[-2:]] == [(True, True), (False, True)]
    # 4 warps: each issues an mma.sync of its own, but they share a wgmma.
    assert found[0].flops_per_block(4) == 4 * 2 * 16 * 8 * 16
    assert found[6].flops_per_block(4) == 2 * 64 * 256 * 16


# Bits of a tcgen05 instruction descriptor: float32 sums, bfloat16 operands, N = 64, M = 128 (as Triton makes it).
BFLOAT16_128_64 = 0x8100490


def test_tcgen05_shape_from_the_constant_in_the_code():
    use = "UTCHMMA gdesc[UR18], gdesc[UR20], tmem[UR36], tmem[UR40], idesc[UR41], !UPT"
    (found,) = decode("UMOV UR41, 0x1", f"UMOV UR41, {BFLOAT16_128_64:#x}", "UMOV UR21, 0x40", use)
    assert (found.shape, found.kind, found.issuer) == ((128, 64, 16), "bfloat16", "block")
    assert found.flops_per_block(4) == 2 * 128 * 64 * 16
    assert found.shared_bytes_per_block(4) == 2 * (128 * 16 + 64 * 16)
    tf32 = BFLOAT16_128_64 & ~(7 << 7) | 2 << 7
    (found,) = decode(f"UMOV UR41, {tf32:#x}", use)
    assert (found.shape, found.kind) == ((128, 64, 8), "tf32")


def test_tcgen05_shape_from_the_ptx_where_the_code_computes_it():
    use = "UTCHMMA gdesc[UR18], gdesc[UR20], tmem[UR36], tmem[UR40], idesc[UR41], !UPT"
    ptx = "mov.b32 \t%r125, {};\n\t@%p32 tcgen05.mma.cta_group::1.kind::f16 [ %r9 + 0 ], %rd55, %rd56, %r125, %p31;\n"
    (found,) = decode("UIADD3 UR41, UR2, UR3, URZ", use, ptx=ptx.format(BFLOAT16_128_64))
    assert found.shape == (128, 64, 16)
    # Two shapes in the PTX: which of them this is can't be said.
    both = ptx.format(BFLOAT16_128_64) + ptx.format(0x8080490).replace("%r125", "%r126")
    (found,) = decode("UIADD3 UR41, UR2, UR3, URZ", use, ptx=both)
    assert found.shape is None
    assert found.flops_per_block(4) is None
