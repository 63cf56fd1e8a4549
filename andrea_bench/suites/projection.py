"""Suite projection: one matmul per head, or one for all?"""

from andrea_bench.suite import Answer, Suite

SUITE = Suite(
    name="projection",
    question="Is one fused projection faster than one matmul per head, and what does splitting heads cost?",
    members=(
        ("qkv_projection", "per_head_loop"),
        ("qkv_projection", "per_head_batched"),
        ("qkv_projection", "fused_each"),
        ("qkv_projection", "fused_qkv"),
        ("qkv_projection", "triton_fused_qkv"),
        ("qkv_projection", "triton_per_head_projection"),
        ("layout", "split_heads"),
    ),
    baseline="per_head_loop",
    answers=(
        Answer(
            kernel="fused_each",
            against="per_head_loop",
            text="one fused matmul for each of Q, K and V takes {ratio} of the time of one per head "
            "({n_head} for Q, {n_kv_head} each for K and V)",
        ),
        Answer(
            kernel="fused_qkv",
            against="per_head_loop",
            text="one fused matmul for Q, K and V together takes {ratio} of the time of one per head "
            "({n_head} for Q, {n_kv_head} each for K and V)",
        ),
        Answer(
            kernel="fused_qkv",
            against="fused_each",
            text="one matmul for Q, K and V together takes {ratio} of the time of three",
        ),
        Answer(
            kernel="split_heads",
            against="fused_qkv",
            text="copying the output of the fused projection into contiguous heads takes {ratio} of its time",
        ),
    ),
)
