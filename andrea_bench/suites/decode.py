"""Suite decode: one query against a long KV cache."""

from andrea_bench.problem import Op
from andrea_bench.suite import Answer, Member, Suite

OP: Op = "attention"
KERNELS = (
    "eager",
    "sdpa",
    "sdpa_math",
    "sdpa_flash",
    "sdpa_efficient",
    "sdpa_cudnn",
    "triton_decode",
    "flash_attn",
    "xformers",
    "flashinfer",
)
MEMBERS: tuple[Member, ...] = tuple((OP, name) for name in KERNELS)

SUITE = Suite(
    name="decode",
    question="How long does attention of one new token take against a KV cache of kv_len tokens?",
    members=MEMBERS,
    baseline="eager",
    defaults={"direction": ["decode"], "seq_len": [1], "kv_len": [1024, 4096]},
    answers=(
        Answer(
            kernel="sdpa",
            against="eager",
            text="one token against {kv_len} keys: torch's fused attention takes {ratio} of the time of eager",
        ),
        Answer(
            kernel="triton_decode",
            against="sdpa",
            text="one token against {kv_len} keys: the split Triton kernel takes {ratio} of the time of torch's",
        ),
    ),
)
