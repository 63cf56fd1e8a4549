"""Suite alignment: each head_dim, and each projection width, with its neighbours."""

from andrea_bench.errors import BadInput
from andrea_bench.problem import Op, Problem
from andrea_bench.suite import Groups, Member, Suite

# To either side: the next size that is a multiple of 8 (if the first is), and the odd one beside it.
STEPS = (-8, -1, 0, 1, 8)
ATTENTION: Op = "attention"
PROJECTION: Op = "qkv_projection"
ATTENTION_MEMBERS: tuple[Member, ...] = tuple(
    (ATTENTION, name)
    for name in ("eager", "sdpa", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "triton_exact", "triton_padded")
)
PROJECTION_MEMBERS: tuple[Member, ...] = ((PROJECTION, "fused_each"), (PROJECTION, "fused_qkv"))


def neighbours(problem: Problem) -> list[Problem]:
    """The Problem with each legal head_dim around its own (itself among them), all else as it is."""
    return _legal(problem, head_dim=problem.head_dim)


def width_neighbours(problem: Problem) -> list[Problem]:
    """Projections of the width n_head * head_dim and of the widths around it: X is the Problem's, and the
    width is that of one head, since no kernel of these sees heads."""
    width = problem.n_head * problem.head_dim
    return _legal(problem.replace(n_head=1, n_kv_head=1, causal=True), head_dim=width)


def groups(suite: Suite, problem: Problem) -> Groups:
    """One Group for each neighbour: of head_dim for attention, of the width for projections."""
    attention = tuple(member for member in suite.members if member[0] == ATTENTION)
    projection = tuple(member for member in suite.members if member[0] == PROJECTION)
    made = [(near, attention) for near in neighbours(problem)]
    return made + [(near, projection) for near in width_neighbours(problem)]


def _legal(problem: Problem, *, head_dim: int) -> list[Problem]:
    found = []
    for step in STEPS:
        try:
            found.append(problem.replace(head_dim=head_dim + step))
        except BadInput:  # a head_dim below 1 has no neighbours on that side
            continue
    return found


SUITE = Suite(
    name="alignment",
    question="What does a head_dim, or a projection width, cost that is not aligned, per useful FLOP?",
    members=ATTENTION_MEMBERS + PROJECTION_MEMBERS,
    baseline="sdpa",
    groups=groups,
)
