"""The time of the projections around attention: which matrix products each kernel launches."""

from andrea_bench.hardware import Gpu
from andrea_bench.predict.attention import copy
from andrea_bench.predict.efficiency import Known
from andrea_bench.predict.matrix_product import matmul
from andrea_bench.predict.prediction import Prediction, in_sequence, repeat
from andrea_bench.problem import Problem

# What a kernel of qkv_projection launches: (products in one launch, launches, columns of each product).
Launches = list[tuple[int, int, int]]


def fused_qkv(problem: Problem) -> Launches:
    return [(1, 1, (problem.n_head + 2 * problem.n_kv_head) * problem.head_dim)]


def fused_each(problem: Problem) -> Launches:
    return [(1, 1, problem.n_head * problem.head_dim), (1, 2, problem.n_kv_head * problem.head_dim)]


def per_head_loop(problem: Problem) -> Launches:
    return [(1, problem.n_head + 2 * problem.n_kv_head, problem.head_dim)]


def per_head_batched(problem: Problem) -> Launches:
    return [(problem.n_head, 1, problem.head_dim), (problem.n_kv_head, 2, problem.head_dim)]


def per_head_grid(problem: Problem) -> Launches:
    """All heads in one launch, each its own product."""
    return [(problem.n_head + 2 * problem.n_kv_head, 1, problem.head_dim)]


def project(launches: Launches, gpu: Gpu, problem: Problem, known: Known) -> Prediction:
    """X W_Q, X W_K, X W_V. Backward: the gradients of X and of the weights, a product each."""
    parts = []
    for products, times, columns in launches:
        for m, n, k in _passes(problem, problem.d_model, columns):
            one = matmul(gpu, m=m, n=n, k=k, batch=products, dtype=problem.dtype, shared_a=True, known=known)
            parts.append(repeat(one, times, 2 * m * n * k * products * times))
    return in_sequence(parts, problem.flops("qkv_projection"))


def output(gpu: Gpu, problem: Problem, known: Known, *, concatenate: bool) -> Prediction:
    """heads W_O in one product, after the copy that puts the heads side by side, where there is one."""
    inner = problem.n_head * problem.head_dim
    parts = [
        matmul(gpu, m=m, n=n, k=k, dtype=problem.dtype, known=known)
        for m, n, k in _passes(problem, inner, problem.d_model)
    ]
    if concatenate:
        forward = problem.replace(direction="forward")
        parts.append(copy(gpu, forward.min_bytes("output_projection", "copy"), known))
    return in_sequence(parts, problem.flops("output_projection"))


def per_head_sum(gpu: Gpu, problem: Problem, known: Known) -> Prediction:
    """One product per head with its rows of W_O, each added to the sum of those before."""
    flops = problem.flops("output_projection")
    parts = [
        repeat(
            matmul(gpu, m=m, n=n, k=k, dtype=problem.dtype, known=known),
            problem.n_head,
            2 * m * n * k * problem.n_head,
        )
        for m, n, k in _passes(problem, problem.head_dim, problem.d_model)
    ]
    return in_sequence(parts, flops)


def _passes(problem: Problem, inputs: int, outputs: int) -> list[tuple[int, int, int]]:
    """(m, n, k) of the products of a projection (tokens, inputs) -> (tokens, outputs) in this direction."""
    tokens = problem.batch * problem.seq_len
    if problem.direction == "backward":
        return [(tokens, inputs, outputs), (inputs, outputs, tokens)]
    return [(tokens, outputs, inputs)]
