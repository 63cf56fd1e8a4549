"""A small transformer trained on generated text: what its heads' gradients, outputs and attention do meanwhile.

Written out with plain tensors, so that each head's slice of the weights and its own output can be looked at.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from statistics import fmean, pstdev
from typing import Any

from andrea_bench.claims.text import CLOSE, NAME, VOCABULARY, Text, make_batch

D_MODEL, N_HEAD, HEAD_DIM, N_LAYER, SEQ_LEN, BATCH = 64, 4, 16, 2, 48, 32
LEARNING_RATE, STEPS, WATCHED_EVERY = 3e-3, 1200, 50
SEEDS = (1, 2, 3, 4, 5)
EVALUATION_TEXTS, EVALUATION_SEED = 64, 987_654
PATTERNS = {"word": "previous token", "bracket": "matching bracket", "name": "most recent name"}

Weights = dict[str, Any]  # W_Q, W_K, W_V (d_model, d_model) and W_O of each layer by `0.q`, and the rest


def train(seeds: tuple[int, ...] = SEEDS, steps: int = STEPS, said: Callable[[str], None] = print) -> dict[str, Any]:
    """The stored result: a model a seed. Raises EnvironmentUnfit without torch."""
    import torch

    return {
        "schema_version": 1,
        "trained_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "torch": str(torch.__version__),
        "settings": {
            "d_model": D_MODEL, "n_head": N_HEAD, "head_dim": HEAD_DIM, "n_layer": N_LAYER, "seq_len": SEQ_LEN,
            "batch": BATCH, "steps": steps, "learning_rate": LEARNING_RATE, "optimizer": "AdamW",
        },
        "seeds": [_train_one(seed, steps, said) for seed in seeds],
    }  # fmt: skip


def _train_one(seed: int, steps: int, said: Callable[[str], None]) -> dict[str, Any]:
    import torch

    weights = _weights(seed)
    optimizer = torch.optim.AdamW(weights.values(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    texts = make_batch(EVALUATION_TEXTS, SEQ_LEN, EVALUATION_SEED)
    untrained = _attention_mass(weights, texts)
    watched = []
    for step in range(steps):
        tokens = _tokens(make_batch(BATCH, SEQ_LEN, seed * 1_000_003 + step))
        logits, heads, _ = _forward(weights, tokens)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        if step % WATCHED_EVERY == 0:
            watched.append({"step": step, "loss": float(loss.detach()), "gradient": _gradients(weights),
                            "redundancy": [_redundancy(layer.detach()) for layer in heads]})  # fmt: skip
        optimizer.step()
        schedule.step()
    accuracy = _accuracy(weights, texts)
    said(f"seed {seed}: " + ", ".join(f"{name} {value:.1%}" for name, value in accuracy.items()))
    return {
        "seed": seed,
        "accuracy": accuracy,
        "correlation": correlation(watched),
        "attention_untrained": untrained,
        "attention_trained": _attention_mass(weights, texts),
        "watched": watched,
    }


def _weights(seed: int) -> Weights:
    import torch

    generator = torch.Generator().manual_seed(seed)

    def normal(rows: int, columns: int, scale: float) -> Any:
        return (torch.randn(rows, columns, generator=generator) * scale).requires_grad_()

    weights = {"tokens": normal(VOCABULARY, D_MODEL, 0.5), "positions": normal(SEQ_LEN, D_MODEL, 0.5),
               "head": normal(D_MODEL, VOCABULARY, D_MODEL**-0.5)}  # fmt: skip
    for layer in range(N_LAYER):
        for name in "qkvo":
            weights[f"{layer}.{name}"] = normal(D_MODEL, D_MODEL, D_MODEL**-0.5)
        weights[f"{layer}.up"] = normal(D_MODEL, 4 * D_MODEL, D_MODEL**-0.5)
        weights[f"{layer}.down"] = normal(4 * D_MODEL, D_MODEL, (4 * D_MODEL) ** -0.5)
    return weights


def _tokens(texts: list[Text]) -> Any:
    import torch

    return torch.tensor([text.tokens for text in texts])


def _forward(weights: Weights, tokens: Any) -> tuple[Any, list[Any], list[Any]]:
    """Logits (batch, seq_len, vocabulary); by layer what each head adds to the stream, (n_head, batch, seq_len,
    d_model), and its attention, (batch, n_head, seq_len, seq_len)."""
    import torch
    from torch.nn.functional import gelu, layer_norm

    batch, length = tokens.shape
    x = weights["tokens"][tokens] + weights["positions"][:length]
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    heads, attentions = [], []
    for layer in range(N_LAYER):
        normed = layer_norm(x, (D_MODEL,))
        q, k, v = (
            (normed @ weights[f"{layer}.{name}"]).view(batch, length, N_HEAD, HEAD_DIM).transpose(1, 2)
            for name in "qkv"
        )
        scores = (q @ k.transpose(-1, -2)) * HEAD_DIM**-0.5
        attention = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        w_o = weights[f"{layer}.o"].view(N_HEAD, HEAD_DIM, D_MODEL)
        added = torch.einsum("bhsd,hdm->hbsm", attention @ v, w_o)
        x = x + added.sum(0)
        x = x + gelu(layer_norm(x, (D_MODEL,)) @ weights[f"{layer}.up"]) @ weights[f"{layer}.down"]
        heads.append(added)
        attentions.append(attention)
    return layer_norm(x, (D_MODEL,)) @ weights["head"], heads, attentions


def _gradients(weights: Weights) -> list[list[float]]:
    """By layer and head, the norm of the gradient of its slices of W_Q, W_K, W_V (columns) and W_O (rows)."""
    norms = []
    for layer in range(N_LAYER):
        squares = sum(weights[f"{layer}.{n}"].grad.pow(2).view(D_MODEL, N_HEAD, HEAD_DIM).sum((0, 2)) for n in "qkv")
        squares = squares + weights[f"{layer}.o"].grad.pow(2).view(N_HEAD, HEAD_DIM, D_MODEL).sum((1, 2))
        norms.append(squares.sqrt().tolist())
    return norms


def _redundancy(added: Any) -> list[float]:
    """By head, the largest similarity to another head of its layer: the absolute cosine of what they add,
    without its mean over positions."""
    import torch

    flat = (added - added.mean(dim=(1, 2), keepdim=True)).flatten(1)
    flat = flat / flat.norm(dim=1, keepdim=True).clamp_min(1e-12)
    alike = (flat @ flat.T).abs() - torch.eye(N_HEAD)
    found: list[float] = alike.max(dim=1).values.tolist()
    return found


def correlation(watched: list[dict[str, Any]]) -> float:
    """Correlation of redundancy and gradient norm over heads, within each layer at each time looked at."""
    products = []
    for moment in watched:
        for gradient, redundancy in zip(moment["gradient"], moment["redundancy"], strict=True):
            a, b = _standardised(gradient), _standardised(redundancy)
            products += [x * y for x, y in zip(a, b, strict=True)]
    return fmean(products)


def _standardised(values: list[float]) -> list[float]:
    spread = pstdev(values) or 1.0
    return [(value - fmean(values)) / spread for value in values]


def _attention_mass(weights: Weights, texts: list[Text]) -> dict[str, list[list[float]]]:
    """By pattern, layer and head: the mean attention that queries pay to the token which their next one needs."""
    import torch

    with torch.no_grad():
        _, _, attentions = _forward(weights, _tokens(texts))
    mass: dict[str, list[list[float]]] = {}
    for kind, name in PATTERNS.items():
        at = [(i, query, source) for i, text in enumerate(texts) for query, source in text.sources[kind]]
        texts_, queries, sources = (torch.tensor(part) for part in zip(*at, strict=True))
        mass[name] = [attention[texts_, :, queries, sources].mean(0).tolist() for attention in attentions]
    return mass


def _accuracy(weights: Weights, texts: list[Text]) -> dict[str, float]:
    """How often the right token is the likeliest, of all or (as nothing says that a bracket closes now) of the
    closing brackets."""
    import torch

    tokens = _tokens(texts)
    with torch.no_grad():
        logits, _, _ = _forward(weights, tokens)
    found = {}
    for kind, name in PATTERNS.items():
        hits = []
        for i, text in enumerate(texts):
            for query, _ in text.sources[kind]:
                row, target = logits[i, query], int(tokens[i, query + 1])
                if kind == "bracket":
                    row, target = row[CLOSE:NAME], target - CLOSE
                hits.append(int(row.argmax()) == target)
        found[name] = fmean(hits)
    return found
