"""A Model from a Hugging Face config.json as it is: the file, its parts, and its family's reader (families.py)."""

import json
from pathlib import Path
from typing import Any

from andrea_bench.errors import BadInput, unknown_name
from andrea_bench.models.families import D_MODEL, FAMILIES, unknown_family, whisper_encoder
from andrea_bench.models.keys import Keys
from andrea_bench.models.model import Model
from andrea_bench.problem import DTYPES

TOWERS = ("text_config", "vision_config")
DTYPE = ("dtype", "torch_dtype")  # the second is the older name; nested files often hold it in their outer part alone
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def read_model(file: Path, part: str | None = None) -> Model:
    """The Model of a config.json. part: text_config or vision_config of a nested one (default: text_config,
    else vision_config), or `encoder` of Whisper (default: decoder).

    A family that is not known gives its sizes, and says that the whole can't be counted. Raises BadInput
    naming the file, and the key that is missing or contradicts another.
    """
    try:
        content = json.loads(file.read_bytes().decode("utf-8-sig"), object_pairs_hook=_each_key_once)
    except OSError as error:
        raise BadInput(f"{file}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{file}: is not UTF-8 (byte {error.start})") from None
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{file}: is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadInput(f"{file}: must hold one JSON object")
    try:
        return _model(Keys(content), str(file), part)
    except BadInput as error:
        raise BadInput(f"{file}{f'#{part}' if part else ''}: {error}") from None


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys don't contradict one another; JSON itself would take the last."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        if content.setdefault(key, value) != value:
            raise BadInput(f"contradictory keys: {key} {content[key]} and {key} {value}")
    return content


def _model(keys: Keys, name: str, part: str | None) -> Model:
    family = keys.text("model_type")
    said = _dtype(keys)
    towers = [tower for tower in TOWERS if isinstance(keys.content.get(tower), dict)]
    whisper = family == "whisper"
    known = ["decoder", "encoder"] if whisper else towers
    if part is not None and part not in known:
        raise unknown_name("part", part, known) if known else BadInput(f"has no part {part!r}; it is not nested")
    if towers and (part or not keys.has(*D_MODEL)):
        part = part or towers[0]
        # An inner part without a model_type is the outer family's.
        keys = Keys({"model_type": family, **keys.content[part]}, within=part)
        family = keys.text("model_type")
        said = _dtype(keys) or said
    reader = whisper_encoder if whisper and part == "encoder" else FAMILIES.get(family or "", unknown_family)
    experts = next((key for key in EXPERTS if keys.content.get(key)), None)
    fields: dict[str, Any] = {"count_scope": f"{part} alone"} if part else {}
    fields |= reader(keys)
    if experts:
        fields["uncounted"] = f"{experts} {keys.content[experts]}: mixtures of experts are not counted"
    dtype = next((known for known in DTYPES if known == said), None)
    note = f"dtype {said} is none of {', '.join(DTYPES)}" if said and dtype is None else None
    model = Model(name=name, source="its config.json", dtype=dtype, note=note, **fields)
    try:
        model.problem()
    except BadInput as error:
        raise BadInput(f"contradictory sizes: {error}") from None
    return model


def _dtype(keys: Keys) -> str | None:
    """What the file says that the weights are stored in, known here or not; None where it says nothing."""
    return next(filter(None, map(keys.text, DTYPE)), None)
