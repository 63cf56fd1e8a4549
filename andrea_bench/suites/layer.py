"""Suite layer: the five steps, each stage and the measured whole."""

from andrea_bench.suite import Answer, Member, Suite

# One kernel for each stage of the whole `five_steps`, in its order.
STAGES: tuple[Member, ...] = (
    ("qkv_projection", "fused_qkv"),
    ("layout", "split_heads"),
    ("attention", "sdpa"),
    ("output_projection", "concat_matmul"),
)

# The stages of `triton_three_launches`.
TRITON_STAGES: tuple[Member, ...] = (
    ("qkv_projection", "triton_fused_qkv"),
    ("attention", "triton_exact"),
    ("output_projection", "triton_output_projection"),
)

SUITE = Suite(
    name="layer",
    question="Where does the time of one attention layer go, and what does the whole cost beyond its stages?",
    members=(
        *STAGES,
        ("layer", "five_steps"),
        ("layer", "five_steps_strided"),
        ("layer", "five_steps_per_head"),
        *TRITON_STAGES,
        ("layer", "triton_three_launches"),
    ),
    baseline="five_steps",
    wholes=(("five_steps", STAGES), ("triton_three_launches", TRITON_STAGES)),
    answers=(
        Answer(
            kernel="five_steps",
            against="five_steps_per_head",
            text="a layer of fused projections takes {ratio} of the time of one with a matmul per head",
        ),
        Answer(
            kernel="five_steps_strided",
            against="five_steps",
            text="without copying the heads the layer takes {ratio} of the time",
        ),
        Answer(
            kernel="triton_three_launches",
            against="five_steps",
            text="a layer of three Triton launches takes {ratio} of the time of torch's five steps",
        ),
    ),
)
