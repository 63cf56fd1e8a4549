"""Suite output: concatenate the heads and multiply by W_O, or never concatenate?"""

from andrea_bench.suite import Answer, Suite

SUITE = Suite(
    name="output",
    question="What does concatenating the heads cost, and is the output projection better off without it?",
    members=(
        ("output_projection", "concat_matmul"),
        ("output_projection", "per_head_sum"),
        ("output_projection", "einsum"),
        ("output_projection", "strided_matmul"),
        ("output_projection", "triton_output_projection"),
    ),
    baseline="concat_matmul",
    answers=(
        Answer(
            kernel="per_head_sum",
            against="concat_matmul",
            text="{n_head} matmuls summed take {ratio} of the time of concatenating and one matmul",
        ),
        Answer(
            kernel="strided_matmul",
            against="concat_matmul",
            text="heads that lie so that concatenating is free take {ratio} of the time of concatenating and "
            "one matmul",
        ),
    ),
)
