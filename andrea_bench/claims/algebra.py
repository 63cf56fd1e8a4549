"""Statements that are equations: checked on random numbers in float64, or bit by bit."""

from typing import Any

from andrea_bench.claims.finding import Claim, Evidence, claim

TOLERANCE = 1e-12  # relative, of float64 results
SEED = 20240
BATCH, SEQ_LEN, D_MODEL, N_HEAD, HEAD_DIM = 2, 32, 768, 12, 64
SIZE = f"float64, batch {BATCH}, seq_len {SEQ_LEN}, {N_HEAD} x {HEAD_DIM}"
ALWAYS: dict[str, Any] = dict(depends_on="the sizes below", needs="torch")


def _normal(*shape: int) -> Any:
    import torch

    generator = torch.Generator().manual_seed(SEED + sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def _relative_error(a: Any, b: Any) -> float:
    return float((a - b).abs().max() / b.abs().max())


def per_head_equivalence() -> Claim:
    """Q, K and V of one product of all heads, against a product per head; MHA and grouped KV heads."""
    import torch

    evidence = []
    x = _normal(BATCH, SEQ_LEN, D_MODEL)
    for n_kv_head in (N_HEAD, 4):
        columns = (N_HEAD + 2 * n_kv_head) * HEAD_DIM
        w = _normal(D_MODEL, columns)
        fused = (x @ w).view(BATCH, SEQ_LEN, -1, HEAD_DIM).transpose(1, 2)
        per_head = torch.stack([x @ w[:, i : i + HEAD_DIM] for i in range(0, columns, HEAD_DIM)], dim=1)
        error = _relative_error(fused, per_head)
        evidence.append(
            Evidence(
                on=f"{SIZE}, {n_kv_head} KV heads",
                how="exact",
                finding="holds" if error <= TOLERANCE else "fails",
                text=f"largest difference {error:.1e} of the largest value (allowed: {TOLERANCE:.0e})",
                numbers={"relative_error": error, "tolerance": TOLERANCE},
            )
        )
    return claim("per-head-equivalence", evidence, **ALWAYS)


def concat_inverts_split() -> Claim:
    """Split into heads, made contiguous, concatenated again: compared as 64-bit patterns."""
    import torch

    x = _normal(BATCH, SEQ_LEN, D_MODEL)
    x.view(-1)[:3] = torch.tensor([float("nan"), -0.0, 5e-324])  # values that a sloppy comparison would miss
    heads = x.view(BATCH, SEQ_LEN, N_HEAD, HEAD_DIM).transpose(1, 2).contiguous()
    back = heads.transpose(1, 2).reshape(BATCH, SEQ_LEN, D_MODEL)
    differing = int((back.view(torch.int64) != x.view(torch.int64)).sum())
    moved = int((heads.view(-1).view(torch.int64) != x.view(-1).view(torch.int64)).sum())
    evidence = Evidence(
        on=f"{SIZE}, with NaN, -0.0 and the least positive number among them",
        how="exact",
        finding="holds" if differing == 0 else "fails",
        text=f"{differing} of {x.numel()} bit patterns differ ({moved} had moved in between)",
        numbers={"differing": differing, "elements": x.numel(), "moved_by_split": moved},
    )
    return claim("concat-inverts-split", [evidence], **ALWAYS)


def output_projection_mixes() -> Claim:
    """The Jacobian of the output by the heads, in blocks (output chunk, head): without W_O, with a dense W_O,
    and with a W_O that is zero outside the diagonal blocks, which shows that mixing is W_O's doing."""
    import torch

    n_head, head_dim = 4, 8
    d_model = n_head * head_dim
    w_o = _normal(d_model, d_model)
    same = torch.block_diag(*[torch.ones(head_dim, head_dim, dtype=torch.float64)] * n_head)
    cases = {"no W_O": torch.eye(d_model, dtype=torch.float64), "dense W_O": w_o, "block-diagonal W_O": w_o * same}
    blocks = {}
    for name, w in cases.items():
        jacobian: Any = torch.autograd.functional.jacobian(lambda h, w=w: h.reshape(-1) @ w, _normal(n_head, head_dim))
        norms = jacobian.view(n_head, head_dim, n_head, head_dim).pow(2).sum(dim=(1, 3)).sqrt()
        off = norms[~torch.eye(n_head, dtype=torch.bool)]
        blocks[name] = (float(off.min()), float(off.max()), float(norms.max()))
    evidence = []
    for name, (least, most, largest) in blocks.items():
        mixes = least / largest
        expected = most == 0 if name != "dense W_O" else mixes > 1e-3
        words = f"every chunk depends on every head: the weakest block has {mixes:.0%} of the strongest"
        text = words if name == "dense W_O" else f"chunks depend on other heads by {most:g}: not at all"
        evidence.append(
            Evidence(
                on=f"float64, {n_head} x {head_dim}, {name}",
                how="exact",
                finding="holds" if expected else "fails",
                text=text,
                numbers={
                    "weakest_off_block": least,
                    "strongest_off_block": most,
                    "strongest_block": largest,
                    "weakest_share": mixes,
                },
            )
        )
    return claim("output-projection-mixes", evidence, **ALWAYS)


def five_steps() -> Claim:
    """The layer written in five steps, its matrix products counted as they are dispatched, and its result
    against torch's own multi-head attention with the same weights."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention
    from torch.utils._python_dispatch import TorchDispatchMode

    calls: list[tuple[str, bool]] = []
    x = _normal(BATCH * SEQ_LEN, D_MODEL)

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append((func.overloadpacket.__name__, any(a is x for a in args)))
            return func(*args, **(kwargs or {}))

    w_q, w_k, w_v, w_o = (_normal(D_MODEL, D_MODEL + i)[:, :D_MODEL] * D_MODEL**-0.5 for i in range(4))
    with torch.no_grad(), Count():
        q, k, v = ((x @ w).view(BATCH, SEQ_LEN, N_HEAD, HEAD_DIM).transpose(1, 2) for w in (w_q, w_k, w_v))
        heads = scaled_dot_product_attention(q, k, v)
        out = heads.transpose(1, 2).reshape(BATCH * SEQ_LEN, D_MODEL) @ w_o
    of_input = sum(name == "mm" and touches for name, touches in calls)
    others = sum(name == "mm" and not touches for name, touches in calls)
    attention = sum("scaled_dot_product" in name for name, _ in calls)
    layer = torch.nn.MultiheadAttention(D_MODEL, N_HEAD, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([w_q.T, w_k.T, w_v.T]))
        layer.out_proj.weight.copy_(w_o.T)
        shaped = x.view(BATCH, SEQ_LEN, D_MODEL)
        error = _relative_error(out.view_as(shaped), layer(shaped, shaped, shaped, need_weights=False)[0])
    evidence = Evidence(
        on=SIZE,
        how="exact",
        finding="holds" if (of_input, others) == (3, 1) and error <= TOLERANCE else "fails",
        text=f"{of_input} matmuls of the input (1 where they are fused), {others} of the concatenated heads, "
        f"{attention} attention call; {error:.1e} from torch's own layer",
        numbers={"matmuls_of_input": of_input, "matmuls_of_heads": others, "attention_calls": attention,
                 "relative_error": error},
    )  # fmt: skip
    return claim("five-steps", [evidence], **ALWAYS)
