"""Models: the sizes of known transformers, by name."""

import msgspec

from andrea_bench.errors import unknown_name

DEFAULT_MODEL = "andrea-120m"


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of a transformer that decide its attention."""

    name: str
    d_model: int
    n_head: int
    n_kv_head: int
    head_dim: int
    n_layer: int
    max_positions: int


def presets() -> dict[str, Model]:
    """Known models by name."""
    rows = [("andrea-12m", 384, 12, 32, 6), ("andrea-120m", 768, 12, 64, 12), ("andrea-480m", 1536, 24, 64, 16)]
    return {
        name: Model(name=name, d_model=d, n_head=h, n_kv_head=h, head_dim=w, n_layer=n, max_positions=1024)
        for name, d, h, w, n in rows
    }


def find_model(name: str) -> Model:
    if name not in presets():
        raise unknown_name("model", name, presets())
    return presets()[name]
