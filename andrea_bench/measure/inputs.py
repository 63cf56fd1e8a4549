"""The input tensors of each Op: normal random numbers from a stored seed, never zeros.

Zeros draw less power and clock higher on a GPU (295 against 257 TFLOP/s seen on an A100, thonking.ai), and
constant data hides wrong indexing.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from andrea_bench.problem import Problem

TORCH_DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def make_inputs(op: str, problem: Problem, *, device: str, seed: int) -> dict[str, Tensor]:
    """The tensors of `op` by name (shapes as in kernel.OP_INPUTS), in the Problem's dtype on `device`.

    Weights are scaled by 1/sqrt(fan in), so that outputs are of the size of inputs in every Op."""
    generator = torch.Generator().manual_seed(seed)
    dtype = TORCH_DTYPES[problem.dtype]

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        # Drawn in float32 on the host, so that every device and dtype gets the same numbers.
        return (torch.randn(*shape, generator=generator) * scale).to(device=device, dtype=dtype)

    b, s, t = problem.batch, problem.seq_len, problem.kv_len
    h, g, d = problem.n_head, problem.n_kv_head, problem.head_dim
    if op == "attention":
        return {"q": normal(b, h, s, d), "k": normal(b, g, t, d), "v": normal(b, g, t, d)}
    if op == "output_projection":
        return {
            "heads": normal(b, h, s, d),
            "w_o": normal(h * d, problem.d_model, scale=(h * d) ** -0.5),
        }
    if op == "layout":
        return {"qkv": normal(b, s, (h + 2 * g) * d)}
    inputs = {
        "x": normal(b, s, problem.d_model),
        "w_qkv": normal(problem.d_model, (h + 2 * g) * d, scale=problem.d_model**-0.5),
    }
    if op == "layer":
        inputs["w_o"] = normal(h * d, problem.d_model, scale=(h * d) ** -0.5)
    return inputs


def output_gradients(outputs: tuple[Tensor, ...], *, seed: int) -> tuple[Tensor, ...]:
    """Random gradients of the Op's output tensors, for the backward pass."""
    generator = torch.Generator().manual_seed(seed + 1)
    return tuple(torch.randn(o.shape, generator=generator).to(o.device, o.dtype) for o in outputs)


def detached(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors as fresh leaves that gradients can be asked of."""
    return {name: tensor.detach().requires_grad_() for name, tensor in inputs.items()}
