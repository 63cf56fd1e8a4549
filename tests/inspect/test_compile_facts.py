"""Facts against what NVIDIA's own tools print of the same binary, and against calculation by hand."""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="the package triton is not installed")

from sample_kernels import sample_attention, sample_broken, sample_copy, sample_matmul
from sample_launch import EXACT, PADDED, POINTERS, TYPES, USEFUL_72

from andrea_bench.errors import BadInput
from andrea_bench.hardware import find_gpu
from andrea_bench.inspect import compile_facts, disassembly, toolchain
from andrea_bench.inspect.analysis import analyse
from andrea_bench.inspect.children import Task, in_children
from andrea_bench.inspect.compile import Binary, Request, compile_here
from andrea_bench.inspect.disassembly import code_sections, disassemble, listing
from andrea_bench.inspect.facts import HEAD, make_facts
from andrea_bench.inspect.survey import user_launch

# One GPU for each kind of machine code: mma.sync, wgmma, tcgen05.
GPUS = ("rtx_4090", "h200_sxm", "b200", "rtx_5090")


@pytest.fixture(scope="module")
def binaries() -> dict[str, Binary]:
    """The sample for each GPU; it spills on some."""
    names = sample_attention.arg_names
    types = dict(zip([n for n in names if n not in PADDED], TYPES.split(","), strict=True))

    def task(gpu: str) -> Any:
        target = int(find_gpu(gpu).compute_capability.replace(".", ""))
        # Large enough to spill where registers hold the sums; small where compiling takes long.
        constants = {**PADDED, "block_m": 128, "block_n": 64} if gpu.startswith("rtx") else EXACT
        return lambda: compile_here(Request(sample_attention, types, constants, 4, 2, target, tuple(POINTERS)))

    toolchain.warm_up([89, 90, 100, 120])
    made: dict[str, Any] = {}
    in_children([Task(task(gpu), lambda binary, gpu=gpu: made.update({gpu: binary}) or []) for gpu in GPUS])
    assert any("0 bytes spill stores" not in binary.log for binary in made.values())
    return made


def tool(name: str, *arguments: object) -> str:
    path = toolchain.disassembler().with_name(name)
    done = subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("gpu", GPUS)
def test_facts_equal_what_nvidias_tools_print(gpu: str, binaries: dict[str, Binary], tmp_path: Path):
    binary, entry = binaries[gpu], find_gpu(gpu)
    launch = user_launch(sample_attention, TYPES, PADDED, 4, 2, POINTERS, (16, 12), USEFUL_72)
    head = dict.fromkeys(HEAD) | {"kernel": "k", "gpu": gpu, "compute_capability": entry.compute_capability}
    head = {**head, "direction": "forward"}
    del head["status"], head["reason"]
    (code,) = disassemble(binary.target, [(binary.name, binary.cubin)])
    facts = make_facts(head, analyse(binary, code), launch, entry, cached=False)
    assert facts.status == "ok"
    cubin, ptx = tmp_path / "k.cubin", tmp_path / "k.ptx"
    cubin.write_bytes(binary.cubin)
    ptx.write_text(binary.ptx)
    # ptxas -v, run anew on the same PTX as Triton runs it.
    target = entry.architecture.target + ("a" if float(entry.compute_capability) >= 9 else "")
    assembler = "ptxas-blackwell" if float(entry.compute_capability) >= 10 else "ptxas"
    said = tool(assembler, "-v", "-lineinfo", "--regAllocOptLevel=2", f"--gpu-name={target}", ptx, "-o", tmp_path / "o")
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
    assert spills is not None
    assert (facts.spill_store_bytes, facts.spill_load_bytes) == (int(spills[1]), int(spills[2]))
    # cuobjdump -res-usage; from 9.0 on it counts the 1024 bytes that the system keeps for itself.
    used = dict(re.findall(r"(\w+):(\d+)", tool("cuobjdump", "-res-usage", cubin).partition("Function")[2]))
    assert facts.registers_per_thread == int(used["REG"])
    assert facts.stack_bytes == int(used["STACK"])
    reserved = 1024 if float(entry.compute_capability) >= 9 else 0
    assert facts.shared_memory_bytes == binary.shared_memory_bytes + int(used["SHARED"]) - reserved
    # cuobjdump -sass, another reader of the binary; nvdisasm's JSON leaves out what follows the kernel.
    printed = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@\S+ )?(\S+)", tool("cuobjdump", "-sass", cubin), re.MULTILINE)
    assert facts.kernel_instructions == len(printed)
    path = toolchain.disassembler()
    document = json.loads(subprocess.run([path, "-json", cubin], capture_output=True, check=True).stdout)
    code = next(f for f in document[1] if f["function-name"] == binary.name)["sass-instructions"]
    assert [name.rstrip(";") for name in printed[: len(code)]] == [one["opcode"] for one in code]
    opcodes = Counter(one["opcode"] for one in code)
    matrix = {name: count for name, count in opcodes.items() if "MMA" in name}
    counted: Counter[str] = Counter()
    for one in facts.mma:
        counted[one.instruction] += one.total
    assert dict(counted) == matrix
    assert matrix


def printed_alone(cubin: bytes) -> tuple[list[tuple[int, str]], dict[int, int]]:
    """Address and opcode of each instruction, and where jumps lead, by the listing for readers: it has labels where the
    raw mode has addresses of all kernels one after the other."""
    printed, jumps, labels, waiting = [], {}, {}, []
    for line in listing(cubin).splitlines():
        if label := re.match(r"([.$]\S+):\s*$", line):
            waiting.append(label[1])
        elif made := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@\S+ )?([A-Z][\w.]*)(.*);", line):
            labels |= dict.fromkeys(waiting, int(made[1], 16))
            waiting = []
            printed.append((int(made[1], 16), made[2]))
            if made[2].startswith(("BRA", "CALL", "JMP")) and (to := re.search(r"`\((\S+)\)", made[3])):
                jumps[int(made[1], 16)] = to[1]
    return printed, {at: labels[to] for at, to in jumps.items()}


def test_of_several_binaries_each_is_read_as_nvdisasm_prints_it_alone(binaries: dict[str, Binary]):
    groups = {binary.target: [binary] for binary in binaries.values()} | {80: [], 86: []}
    for target, group in groups.items():
        for block in (256, 1024):
            types = {"source": "*fp32", "target": "*fp32", "size": "i32"}
            group.append(compile_here(Request(sample_copy, types, {"block": block}, 4, 1, target)))
        codes = disassemble(target, [(binary.name, binary.cubin) for binary in group])
        for binary, code in zip(group, codes, strict=True):
            printed, jumps = printed_alone(binary.cubin)
            assert [(i.address, i.opcode) for i in code.instructions] == printed
            assert {i.address: i.target for i in code.instructions if i.target is not None} == jumps
            assert jumps and code.unread == 0
        assert len({code.digest for code in codes}) == len(codes)


def test_what_could_not_be_read_says_so(binaries: dict[str, Binary], monkeypatch: pytest.MonkeyPatch):
    binary = binaries["rtx_4090"]
    kernel = [(binary.name, binary.cubin)]
    (code,) = disassemble(89, kernel)
    assert "kernel_instructions" not in analyse(binary, code).unknown
    read = disassembly._nvdisasm
    monkeypatch.setattr(disassembly, "_nvdisasm", lambda *asked: read(*asked).replace(" EXIT ", " ??? "))
    (code,) = disassemble(89, kernel)
    said = analyse(binary, code).unknown["kernel_instructions"]
    assert said == f"{code.unread} instructions could not be read, and are not counted" and code.unread > 0


CALLS = """
.version 8.0
.target sm_89
.address_size 64
.extern .func (.param .b32 made) helper (.param .b32 given);
.visible .entry calls (.param .u64 place) {
  .reg .b32 %r<3>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [place];
  ld.global.b32 %r1, [%d1];
  { .param .b32 given; .param .b32 made; st.param.b32 [given], %r1; call (made), helper, (given);
    ld.param.b32 %r2, [made]; }
  st.global.b32 [%d1], %r2;
  ret;
}
.visible .func other () { ret; }
"""


def test_a_call_that_a_linker_completes_leads_nowhere_yet(tmp_path: Path):
    (tmp_path / "calls.ptx").write_text(CALLS)
    cubin = tmp_path / "calls.cubin"
    subprocess.run([toolchain.ptxas(89), "-c", "--gpu-name=sm_89", tmp_path / "calls.ptx", "-o", cubin], check=True)
    assert "`(helper)" in listing(cubin.read_bytes())
    (code,) = disassemble(89, [("calls", cubin.read_bytes())])
    assert code.other_functions == ("other",)
    calls = [i for i in code.instructions if i.root == "CALL"]
    assert calls and all(i.target is None for i in calls)
    assert code_sections(cubin.read_bytes())["calls"].relocated >= {i.address for i in calls}
    with pytest.raises(ValueError, match="no code of missing"):
        disassemble(89, [("missing", cubin.read_bytes())])
    with pytest.raises(ValueError, match="no ELF64"):
        code_sections(b"text")


def test_widths_waste_and_shapes_by_hand(sample_facts: Any):
    for gpu in GPUS:
        facts = sample_facts(gpu)
        assert facts.status == "ok", facts.reason
        assert (facts.computed_width_qk, facts.computed_width_pv) == (80, 80)
        assert facts.useful_mma_flops == USEFUL_72
        assert facts.issued_mma_flops == USEFUL_72 * 80 / 72
        assert facts.mma_efficiency == pytest.approx(0.9)
        assert (facts.blocks, facts.grid) == (192, [16, 12, 1])
        assert facts.loop_instructions < facts.kernel_instructions
        assert facts.unit_cycles[facts.bound_by] == max(facts.unit_cycles.values())
        expected = facts.blocks / (facts.blocks_per_sm * find_gpu(gpu).sm_count)
        assert facts.waves == pytest.approx(expected)
    padded = sample_facts("rtx_4090", **PADDED)
    assert (padded.computed_width_qk, padded.computed_width_pv) == (128, 128)
    assert padded.mma_efficiency == pytest.approx(72 / 128)
    # Each thread has 64 x 32 / 128 scores; and the factors of its rows, 2 to 8 by how warps share the tile.
    assert 64 * 32 // 128 + 2 <= padded.exp_instructions <= 64 * 32 // 128 + 8


def test_matrix_instruction_of_each_architecture(sample_facts: Any):
    shapes = {gpu: {(m.instruction.partition(".")[0], m.m, m.k) for m in sample_facts(gpu).mma} for gpu in GPUS}
    assert shapes == {
        "rtx_4090": {("HMMA", 16, 16)}, "h200_sxm": {("HGMMA", 64, 16)}, "b200": {("UTCHMMA", 64, 16)},
        "rtx_5090": {("HMMA", 16, 16)},
    }  # fmt: skip
    # Of 10.0, where the opcode names no shape, the sum of what the descriptors say is the IR's products.
    b200 = sample_facts("b200")
    issued = sum(2 * m.m * m.n * m.k * m.in_loop for m in b200.mma)
    assert issued == b200.issued_mma_flops == USEFUL_72 * 80 / 72


@pytest.mark.parametrize(
    ("signature", "aligned"),
    [
        ("*fp32,*fp32,i32", "source target"), ("*fp32,*fp32,i32:16", "source target size"),
        ("*fp32:1,*fp32,i32:16", "target size"), ("*fp32:16,*fp32:1,i32:1", "source"),
    ],
)  # fmt: skip
def test_pointers_are_aligned_unless_it_is_said_otherwise(signature: str, aligned: str):
    launch = user_launch(sample_copy, signature, {"block": 256}, 4, 1)
    assert launch.divisible_by_16 == tuple(aligned.split())
    assert list(launch.signature.values()) == ["*fp32", "*fp32", "i32"]
    exactly = user_launch(sample_copy, signature.replace(":16", ""), {"block": 256}, 4, 1, divisible_by_16=["target"])
    assert exactly.divisible_by_16 == ("target",)


def test_alignment_hint_decides_the_load_width(sample_facts: Any):
    hinted, plain = sample_facts("rtx_4090"), sample_facts("rtx_4090", hint=False)
    assert "16" in hinted.async_copy_bytes
    assert set(hinted.async_copy_bytes) <= {"8", "16"}
    assert not hinted.global_load_bytes
    assert set(plain.global_load_bytes) == {"2"}
    assert not plain.async_copy_bytes


@pytest.mark.parametrize(
    ("kind", "precision", "gpu", "instruction"),
    [("fp32", "tf32", "a100_sxm4_80gb", "HMMA.1688.F32.TF32"), ("fp32", "ieee", "a100_sxm4_80gb", None),
     ("fp32", "tf32x3", "h200_sxm", "HGMMA.64x64x8.F32.TF32"), ("fp16", "tf32", "h200_sxm", "HGMMA.64x64x16.F32"),
     ("fp32", "tf32", "b200", "UTCHMMA")],
)  # fmt: skip
def test_product_of_each_precision(kind: str, precision: str, gpu: str, instruction: str | None):
    facts = compile_facts(
        sample_matmul, gpu=gpu, signature=f"*{kind}:16,*{kind}:16,*fp32:16,i32:16",
        constexprs={"m": 64, "n": 64, "k": 32, "precision": precision}, useful_mma_flops=2 * 64 * 64 * 32,
    )  # fmt: skip
    assert facts.status == "ok", facts.reason
    assert [one.instruction for one in facts.mma] == ([instruction] if instruction else [])
    times = {"ieee": 0, "tf32x3": 3}.get(precision, 1)
    assert facts.issued_mma_flops == times * 2 * 64 * 64 * 32
    if precision == "ieee":
        # 64 x 64 x 32 multiply-adds by the FMA units of 128 threads.
        assert facts.fma_instructions == 64 * 64 * 32 // 128
        assert facts.mma_efficiency is None
        assert "no matrix instruction" in facts.reason
    else:
        assert facts.mma_efficiency == pytest.approx(1 / times)
        assert facts.unit_cycles["tensor"] > 0


def test_work_that_warps_repeat_is_waste():
    """A 16 x 16 tile keeps 2 of 8 warps busy: the product is issued four times."""
    facts = compile_facts(
        sample_matmul, gpu="rtx_4090", signature="*fp16:16,*fp16:16,*fp32:16,i32:16", num_warps=8,
        constexprs={"m": 16, "n": 16, "k": 32, "precision": "tf32"}, useful_mma_flops=2 * 16 * 16 * 32,
    )  # fmt: skip
    assert facts.issued_mma_flops == 4 * 2 * 16 * 16 * 32
    assert facts.mma_efficiency == pytest.approx(0.25)


def test_kernel_without_loop_or_product():
    facts = compile_facts(sample_copy, gpu="rtx_4090", signature="*fp32:16,*fp32:16,i32:16", constexprs={"block": 1024})
    assert (facts.mma, facts.loop_instructions, facts.computed_width_qk) == ([], None, None)
    # 1024 floats over 128 threads: two 16-byte loads each.
    assert facts.global_load_bytes == {"16": 2}
    assert "no loop" in facts.reason
    assert (facts.grid, facts.waves) == (None, None)


def test_architecture_instead_of_product(sample_facts: Any):
    product, target = sample_facts("h200_sxm"), sample_facts("sm_90")
    assert target.code_hash == product.code_hash
    assert target.cached
    assert target.occupancy == product.occupancy
    assert target.waves is None
    assert target.unit_cycles["tensor"] is None
    assert target.bound_by is None
    assert "sm_90" in target.reason


def test_too_much_shared_memory_is_a_row_with_the_figures():
    constants = {"m": 128, "n": 128, "k": 128, "precision": "tf32"}
    signature = "*fp32:16,*fp32:16,*fp32:16,i32:16"
    facts = {
        gpu: compile_facts(sample_matmul, gpu=gpu, signature=signature, constexprs=constants, num_warps=8, num_stages=2)
        for gpu in ("rtx_3090", "a100_sxm4_80gb")
    }
    # 2 operands x 128 x 128 x 4 bytes x (num_stages 2 - ...) exceed the 99 KiB of 8.6, not the 163 KiB of 8.0.
    assert facts["rtx_3090"].status == "unsupported"
    assert re.search(r"needs 1\d{5} bytes of on-chip shared memory per block.* allows 101376", facts["rtx_3090"].reason)
    assert set(facts["rtx_3090"].document()) == set(HEAD)
    assert facts["a100_sxm4_80gb"].status == "ok"
    assert 101376 < facts["a100_sxm4_80gb"].shared_memory_bytes <= 166912


def test_kernel_that_does_not_compile():
    facts = compile_facts(sample_broken, gpu="rtx_4090", signature="*fp32,*fp32", constexprs={"block": 64})
    assert facts.status == "error"
    assert "undefined_name" in facts.reason and "undefined_name" in facts.reason.split(" of it: ")[1]
    assert "\n" not in facts.reason


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"signature": "*bf16,*bf16"}, "6 arguments"),
        ({"signature": TYPES.replace("*bf16", "*fp99", 1)}, "q: *fp99 is no type of Triton's; has bf16, fp16,"),
        ({"signature": {"q": "*bf16"}}, "no type for k, v, out, seq_len, row_stride"),
        ({"constexprs": {**EXACT, "nothing": 1}}, "no argument nothing"),
        ({"divisible_by_16": ["nothing"]}, "nothing"),
        ({"num_warps": 3}, "num_warps 3"),
        ({"num_stages": 0}, "num_stages 0"),
        ({"gpu": "rtx_4900"}, "rtx_4090"),
        ({"gpu": "gfx942"}, "AMD"),
        ({"gpu": "sm90"}, "sm_90"),
        ({"gpu": "90"}, "sm_90"),
        ({"gpu": "9.0"}, "sm_90"),
    ],
)
def test_bad_arguments(change: dict[str, Any], message: str):
    given = {"gpu": "rtx_4090", "signature": TYPES, "constexprs": EXACT, **change}
    with pytest.raises(BadInput, match=re.escape(message)):
        compile_facts(sample_attention, **given)


def test_not_a_triton_kernel():
    with pytest.raises(BadInput, match=r"no triton\.jit function"):
        compile_facts(len, gpu="rtx_4090", signature="", constexprs={})


@pytest.mark.parametrize(
    ("gpu", "kind", "reason"),
    [("t4", "bf16", "bfloat16 needs compute capability 8.0"), ("t4", "fp16", "no matrix instructions"),
     ("v100_pcie", "fp16", "no longer reads"), ("sm_121a", "bf16", "unknown target sm_121a; known: sm_80"),
     ("sm_999", "bf16", "unknown target sm_999")],
)  # fmt: skip
def test_targets_that_cannot_be_inspected(gpu: str, kind: str, reason: str):
    facts = compile_facts(sample_copy, gpu=gpu, signature=f"*{kind},*{kind},i32", constexprs={"block": 64})
    assert facts.status == "unsupported"
    assert reason in facts.reason


def test_unset_interpreter_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(BadInput, match="TRITON_INTERPRET"):
        compile_facts(sample_copy, gpu="rtx_4090", signature="*fp32,*fp32,i32", constexprs={"block": 64})
