"""All statements put to the test, in the order of DESIGN.md section 1."""

from collections.abc import Callable, Sequence
from pathlib import Path

from andrea_bench.claims import algebra, tiles
from andrea_bench.claims.counts import parameter_count
from andrea_bench.claims.finding import STATEMENTS, Claim
from andrea_bench.claims.grids import one_kernel_many_heads
from andrea_bench.claims.machine import NOT_NAMED, Machine, measured_groups
from andrea_bench.claims.measured import contiguous_heads, many_heads
from andrea_bench.claims.projection import fused_projection
from andrea_bench.claims.specialisation import head_specialisation
from andrea_bench.hardware import Gpu
from andrea_bench.inspect import Facts, survey
from andrea_bench.inspect.cache import AnalysisCache
from andrea_bench.inspect.pipeline import Options
from andrea_bench.kernel import find_kernel
from andrea_bench.record import Record


def audit(
    records: Sequence[Record],
    gpus: Sequence[Gpu],
    facts: Sequence[Facts],
    training: Path | None,
    machine: Machine = NOT_NAMED,
) -> list[Claim]:
    """Every statement with its finding. records: of a Run on `machine` (none: nothing measured). gpus: for
    predictions. facts: of `tile_facts`. training: the stored result of a training, where there is one."""
    groups = measured_groups(records, machine)
    found = [
        fused_projection(groups, gpus),
        algebra.per_head_equivalence(),
        parameter_count(),
        algebra.concat_inverts_split(),
        algebra.output_projection_mixes(),
        head_specialisation(training),
        many_heads(groups, gpus),
        contiguous_heads(groups),
        one_kernel_many_heads(groups),
        *tiles.tile_claims(facts, groups),
        algebra.five_steps(),
    ]
    order = list(STATEMENTS)
    return sorted(found, key=lambda one: order.index(one.id))


def tile_facts(
    gpus: Sequence[Gpu], dtypes: Sequence[str], done: Callable[[int, int], None] | None = None
) -> list[Facts]:
    """Facts of the project's attention kernels at the head_dims of the tile statements. Raises
    EnvironmentUnfit without triton or its tools."""
    problems = [tiles.problem(head_dim, dtype) for head_dim in tiles.HEAD_DIMS for dtype in dtypes]
    kernels = [find_kernel("attention", name) for name in tiles.KERNELS]
    return survey(kernels, problems, [gpu.name for gpu in gpus], Options(cache=AnalysisCache()), done)
