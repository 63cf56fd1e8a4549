"""Suite layout: heads as a strided view of the fused projection, or as a contiguous copy?"""

from andrea_bench.suite import Answer, Suite

SUITE = Suite(
    name="layout",
    question="Are contiguous heads faster than strided ones, and does that pay for the copy?",
    members=(
        ("layout", "qk_strided"),
        ("layout", "qk_contiguous"),
        ("layout", "qk_copy_then_contiguous"),
        ("layout", "attention_strided"),
        ("layout", "attention_contiguous"),
        ("layout", "attention_copy_then_contiguous"),
        ("layout", "split_heads"),
    ),
    baseline="attention_strided",
    answers=(
        Answer(
            kernel="qk_contiguous",
            against="qk_strided",
            text="Q K^T on contiguous heads takes {ratio} of the time on the strided view",
        ),
        Answer(
            kernel="qk_copy_then_contiguous",
            against="qk_strided",
            text="with the copy's own time, Q K^T on contiguous heads takes {ratio} of the time on the strided view",
        ),
        Answer(
            kernel="attention_contiguous",
            against="attention_strided",
            text="attention on contiguous heads takes {ratio} of the time on the strided view",
        ),
        Answer(
            kernel="attention_copy_then_contiguous",
            against="attention_strided",
            text="with the copy's own time, attention on contiguous heads takes {ratio} of the time on the "
            "strided view",
        ),
    ),
)
