"""Suite attention: the same attention by every kernel that can run here."""

from andrea_bench.problem import Op
from andrea_bench.suite import Answer, Member, Suite

OP: Op = "attention"
KERNELS = (
    "per_head_loop",
    "eager",
    "sdpa",
    "sdpa_math",
    "sdpa_flash",
    "sdpa_efficient",
    "sdpa_cudnn",
    "compiled",
    "flex",
    "triton_exact",
    "triton_padded",
    "triton_scalar_loads",
    "triton_per_head_block",
    "flash_attn",
    "xformers",
    "flashinfer",
)
MEMBERS: tuple[Member, ...] = tuple((OP, name) for name in KERNELS)

SUITE = Suite(
    name="attention",
    question="Which attention kernel is the fastest here, and what does handling one head at a time cost?",
    members=MEMBERS,
    baseline="eager",
    answers=(
        Answer(
            kernel="eager",
            against="per_head_loop",
            text="attention over {n_head} heads at once takes {ratio} of the time of one head after another",
        ),
        Answer(
            kernel="sdpa",
            against="eager",
            text="torch's fused attention takes {ratio} of the time of attention with its scores in memory",
        ),
        Answer(
            kernel="triton_padded",
            against="triton_exact",
            text="padding head_dim {head_dim} to a power of two takes {ratio} of the time of its exact width",
        ),
    ),
)
