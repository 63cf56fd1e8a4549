"""The matrix products that the compiler's IR holds: their shapes, and which are Q K^T and which are P V.

Read from TTIR, the first stage: one form for all targets, before pipelining. A product is Q K^T if its
result goes into an exponential, and P V if its left side is made from one and from no other product.
"""

import re
from dataclasses import dataclass, field

_STATEMENT = re.compile(r'^\s*((?:%[\w.#]+(?::\d+)?(?:,\s*)?)+)\s*=\s*"?([\w.]+)"?(.*)$')
_NAME = re.compile(r"%[\w.]+")
_DOT_TYPES = re.compile(
    r":\s*tensor<([\dx]+)x(\w+?)(?:, [^>]*>?)?>\s*\*\s*tensor<([\dx]+)x\w+?(?:, [^>]*>?)?>\s*->\s*tensor<([\dx]+)x"
)
_EXPONENTIALS = ("math.exp2", "math.exp")
# How many matrix instructions each product becomes, by its input precision (triton.language.dot).
_PRODUCTS = {"tf32": 1, "tf32x3": 3, "bf16x3": 3, "bf16x6": 6}


@dataclass(frozen=True)
class Dot:
    """One product (m, k) times (k, n) of the IR, `batch` times; products: how many matrix products it is
    split into for precision, 0 where FMA units do it (float32, precision ieee). role: `qk`, `pv` or None."""

    m: int
    n: int
    k: int
    batch: int = 1
    products: int = 1
    role: str | None = None

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k * self.products


@dataclass
class _Statement:
    operation: str
    operands: list[str]
    text: str


@dataclass
class _Loop:
    """A loop of the IR: the statements in it (nested ones too), by the names of their results."""

    statements: dict[str, _Statement] = field(default_factory=dict)
    inner: list["_Loop"] = field(default_factory=list)

    def dots(self) -> dict[str, _Statement]:
        return {n: s for n, s in self.statements.items() if s.operation == "tt.dot"}

    def sources(self, name: str) -> set[str]:
        """All results in the loop that `name` is made from in the same pass, itself included."""
        found: set[str] = set()
        todo = [name]
        while todo:
            one = todo.pop()
            if one in self.statements and one not in found:
                found.add(one)
                todo.extend(self.statements[one].operands)
        return found


def loop_dots(ttir: str) -> list[Dot]:
    """The products of the loop that does most of them (of the whole kernel where no loop has any)."""
    root = _parse(ttir)
    loops = [loop for loop in _all_loops(root)[1:] if loop.dots()]
    innermost = [loop for loop in loops if not any(inner.dots() for inner in _all_loops(loop)[1:])]
    candidates = [_classified(loop) for loop in innermost] or [_classified(root)]
    return max(candidates, key=lambda dots: sum(dot.flops for dot in dots))


_LAYOUT = re.compile(r"^(#\w+) = #ttg\.nvidia_mma<\{(.*)\}>", re.MULTILINE)
_LAID_OUT = re.compile(r"(?:tt\.dot|ttng\.warp_group_dot) .*-> tensor<(\d+)x(\d+)xf\d+, (#\w+)>", re.MULTILINE)


def repetitions(ttgir: str) -> dict[tuple[int, int], float]:
    """(m, n) of a product -> how often the block's warps compute it, from the layouts of TTGIR: 1 where its tile
    is a multiple of what all warps' instructions cover together, more where it is smaller, so that some repeat
    what others do. Products of tcgen05 have no warps and are left out."""
    layouts = {}
    for name, text in _LAYOUT.findall(ttgir):
        warps, shape = (re.search(rf"{key} = \[(\d+), (\d+)", text) for key in ("warpsPerCTA", "instrShape"))
        if warps and shape:
            layouts[name] = (int(warps[1]) * int(shape[1]), int(warps[2]) * int(shape[2]))
    found = {}
    for m_text, n_text, name in _LAID_OUT.findall(ttgir):
        if name in layouts:
            m, n = int(m_text), int(n_text)
            cover_m, cover_n = layouts[name]
            found[m, n] = -(-m // cover_m) * cover_m * -(-n // cover_n) * cover_n / (m * n)
    return found


def width_qk(dots: list[Dot]) -> int | None:
    """How wide Q K^T was computed: the columns of Q that its products take; None where there is none."""
    taken = [dot for dot in dots if dot.role == "qk"]
    if not taken:
        return None
    return sum(dot.m * dot.n * dot.k for dot in taken) // (taken[0].m * taken[0].n)


def width_pv(dots: list[Dot]) -> int | None:
    """How wide P V was computed: the columns of V that its products give; None where there is none."""
    taken = [dot for dot in dots if dot.role == "pv"]
    if not taken:
        return None
    return sum(dot.m * dot.n * dot.k for dot in taken) // (taken[0].m * taken[0].k)


def _all_loops(loop: _Loop) -> list[_Loop]:
    return [loop, *(nested for inner in loop.inner for nested in _all_loops(inner))]


def _parse(ttir: str) -> _Loop:
    """The whole kernel as the outermost loop, its loops inside."""
    root = _Loop()
    regions: list[_Loop] = [root]  # one entry a brace that is open: the loop that it stands in
    for line in ttir.splitlines():
        if line.startswith("#"):
            continue
        # The position in the source comes last and holds braces of its own.
        code = line[: line.rfind(" loc(")] if line.endswith(")") and " loc(" in line else line.rstrip()
        if code.lstrip().startswith("}"):
            regions.pop()
        statement = _STATEMENT.match(code)
        if statement:
            made = _Statement(statement[2], _NAME.findall(statement[3]), statement[3])
            names = _NAME.findall(statement[1])
            for loop in {id(region): region for region in regions}.values():
                loop.statements.update((name, made) for name in names)
        if code.endswith("{"):
            inside = regions[-1]
            if re.search(r"(^|=)\s*scf\.(for|while)\b", code):
                inside = _Loop()
                regions[-1].inner.append(inside)
            regions.append(inside)
    return root


def _classified(loop: _Loop) -> list[Dot]:
    sources = {name: loop.sources(name) for name in loop.statements}
    exponentials = [n for n, s in loop.statements.items() if s.operation in _EXPONENTIALS]
    dots = loop.dots()
    into_exponential = {name for name in dots if any(name in sources[e] for e in exponentials)}

    def role(name: str, statement: _Statement) -> str | None:
        made_from: set[str] = set()
        for operand in statement.operands[:2]:
            made_from |= sources.get(operand, set())
        if name in into_exponential and not made_from & set(exponentials):
            return "qk"
        left = sources.get(statement.operands[0], set())
        if left & set(exponentials) and not (left & set(dots)) - into_exponential:
            return "pv"
        return None

    return [made for n, s in dots.items() if (made := _dot(s, role(n, s))) is not None]


def _dot(statement: _Statement, role: str | None) -> Dot | None:
    types = _DOT_TYPES.search(statement.text)
    if types is None:
        return None
    left = [int(size) for size in types[1].split("x")]
    result = [int(size) for size in types[4].split("x")]
    precision = re.search(r"inputPrecision = (\w+)", statement.text)
    products = _PRODUCTS.get(precision[1], 1) if precision else 1
    if types[2] == "f32" and precision is None:
        products = 0  # printed only where it is not ieee
    elif types[2] != "f32":
        products = 1
    return Dot(
        m=result[-2], n=result[-1], k=left[-1], batch=left[0] if len(left) == 3 else 1,
        products=products, role=role,
    )  # fmt: skip
