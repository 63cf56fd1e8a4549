"""Projections on tensors: arguments checked, results allocated, launches made, gradients by torch.

Backward is torch's own matmuls: the gradients of a product are products of matrices that lie as torch has them,
and there is nothing to fuse but a copy of the upstream gradients.
"""

import contextlib
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from andrea_kernels.devices import architecture, interpreted
from andrea_kernels.projection import launch
from andrea_kernels.projection.launch import Launch, Sizes

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class QkvProjection(torch.autograd.Function):
    """q, k, v of x and w_qkv; `maker` is launch.fused or launch.per_head."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w_qkv: Tensor, n_head: int, n_kv_head: int, head_dim: int, maker: Any, tf32: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(x, w_qkv)
        batch, seq_len, d_model = x.shape
        sizes = Sizes(batch=batch, seq_len=seq_len, d_model=d_model, n_head=n_head, n_kv_head=n_kv_head,
                      head_dim=head_dim, **_how(x, tf32))  # fmt: skip
        made = maker(sizes, _strides(x)[:2], _strides(w_qkv)[0])
        # q, k and v one after another in one allocation: the kernel finds each by an offset.
        elements = [batch * heads * seq_len * head_dim for heads in (n_head, n_kv_head, n_kv_head)]
        packed = torch.empty(sum(elements), dtype=x.dtype, device=x.device)
        _run(made, sizes, {"x": x, "w": w_qkv}, packed)
        q, k, v = packed.split(elements)
        return (
            q.view(batch, n_head, seq_len, head_dim),
            k.view(batch, n_kv_head, seq_len, head_dim),
            v.view(batch, n_kv_head, seq_len, head_dim),
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor | None, ...]:
        x, w_qkv = ctx.saved_tensors
        # (batch, heads, seq_len, head_dim) each -> (batch, seq_len, (n_head + 2 n_kv_head) head_dim)
        upstream = torch.cat((dq, dk, dv), dim=1).transpose(1, 2).flatten(2)
        dx = upstream @ w_qkv.T if ctx.needs_input_grad[0] else None
        dw = x.flatten(0, 1).T @ upstream.flatten(0, 1) if ctx.needs_input_grad[1] else None
        return dx, dw, None, None, None, None, None


class OutputProjection(torch.autograd.Function):
    """heads (batch, n_head, seq_len, head_dim) and w_o to (batch, seq_len, d_model)."""

    @staticmethod
    def forward(ctx: Any, heads: Tensor, w_o: Tensor, tf32: bool) -> Tensor:
        ctx.save_for_backward(heads, w_o)
        batch, n_head, seq_len, head_dim = heads.shape
        sizes = Sizes(batch=batch, seq_len=seq_len, d_model=w_o.shape[1], n_head=n_head, n_kv_head=n_head,
                      head_dim=head_dim, **_how(heads, tf32))  # fmt: skip
        made = launch.out(sizes, _strides(heads)[:3], _strides(w_o)[0])
        out = torch.empty((batch, seq_len, w_o.shape[1]), dtype=heads.dtype, device=heads.device)
        _run(made, sizes, {"heads": heads, "w": w_o}, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        heads, w_o = ctx.saved_tensors
        dheads = dw = None
        if ctx.needs_input_grad[0]:
            # (batch, seq_len, n_head head_dim) -> (batch, n_head, seq_len, head_dim), a view
            dheads = (do @ w_o.T).unflatten(-1, (heads.shape[1], heads.shape[3])).transpose(1, 2)
        if ctx.needs_input_grad[1]:
            concatenated = heads.transpose(1, 2).flatten(2)  # (batch, seq_len, n_head head_dim)
            dw = concatenated.flatten(0, 1).T @ do.flatten(0, 1)
        return dheads, dw, None


def _how(tensor: Tensor, tf32: bool) -> dict[str, Any]:
    return {
        "dtype": "tf32" if tf32 else str(tensor.dtype).removeprefix("torch."),
        "architecture": architecture(tensor.device),
        "interpreted": interpreted(),
    }


def _strides(tensor: Tensor) -> Any:
    """A dimension of size 1 is never stepped over, and torch leaves its stride to chance; that of a contiguous
    tensor stands in, for one binary to serve where one can."""
    found, like = [], 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        found.append(stride if size > 1 else like)
        like *= max(size, 1)
    return tuple(reversed(found))


def _run(made: Launch, sizes: Sizes, tensors: dict[str, Tensor], out: Tensor) -> None:
    if out.numel() == 0:
        return
    # The interpreter truncates where it casts to bfloat16; torch rounds.
    written = out.float() if made.constants["WIDEN"] else out
    # Triton launches on the current device, which need not be that of the tensors.
    with torch.cuda.device(out.device) if out.is_cuda else contextlib.nullcontext():
        made.function[made.grid](
            *tensors.values(), written, **made.scalars, **made.constants,
            num_warps=made.tile.warps, num_stages=made.tile.stages,
        )  # fmt: skip
    if written is not out:
        out.copy_(written)


def check(tensors: dict[str, tuple[Tensor, int]]) -> None:
    """Raise ValueError, naming the argument, unless each tensor has its number of dimensions, a dtype that the
    kernels do, the first one's dtype and device, and a last stride of 1."""
    first_name, (first, _) = next(iter(tensors.items()))
    for name, (tensor, dimensions) in tensors.items():
        if tensor.dim() != dimensions:
            raise ValueError(f"{name} must have {dimensions} dimensions, not {tensor.dim()}")
        if tensor.dtype not in DTYPES:
            raise ValueError(f"{name} must be float16, bfloat16 or float32, not {str(tensor.dtype)[6:]}")
        if tensor.dtype != first.dtype:
            raise ValueError(
                f"{name} must have the dtype of {first_name}, {str(first.dtype)[6:]}, not {str(tensor.dtype)[6:]}"
            )
        if tensor.device != first.device:
            raise ValueError(f"{name} must be on the device of {first_name}, {first.device}, not on {tensor.device}")
        if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise ValueError(f"{name} must have a last stride of 1, not {tensor.stride(-1)}; .contiguous() makes it so")
    if first.device.type != ("cpu" if interpreted() else "cuda"):
        needed = "on the CPU with TRITON_INTERPRET=1" if interpreted() else "on a CUDA device"
        raise ValueError(f"{first_name} must be {needed}, not on {first.device}")
