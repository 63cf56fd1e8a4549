"""Models: the sizes of known transformers, by preset name or from a Hugging Face config.json, and their parameters."""

import tomllib
from functools import cache
from pathlib import Path

from andrea_bench.errors import BadInput, unknown_name
from andrea_bench.models.hugging_face import read_model
from andrea_bench.models.model import Model, Parameters

DEFAULT_MODEL = "andrea-120m"
PRESETS_FILE = Path(__file__).with_name("presets.toml")

__all__ = ["DEFAULT_MODEL", "Model", "Parameters", "find_model", "presets", "read_model"]


@cache
def presets() -> dict[str, Model]:
    """The known models by name, with the sources of their facts (presets.toml)."""
    rows = tomllib.loads(PRESETS_FILE.read_text(encoding="utf-8"))
    return {name: Model(name=name, **row) for name, row in rows.items()}


def find_model(name: str) -> Model:
    """The preset of that name, or the model of a config.json (a file, or a folder that holds one).

    A part of a nested configuration is named after '#', as in `config.json#vision_config`. Raises BadInput
    with the closest preset, or the file and the key that is wrong.
    """
    if name in presets():
        return presets()[name]
    path, _, part = name.partition("#")
    file = Path(path) / "config.json" if Path(path).is_dir() else Path(path)
    if file.is_file():
        return read_model(file, part or None)
    if "/" in name or path.endswith(".json"):
        raise BadInput(f"--model {name}: there is no such file, and no preset of that name")
    raise unknown_name("model", name, presets())
