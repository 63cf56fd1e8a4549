"""What each family of Hugging Face configurations says of a Model: key names, defaults and extra parameters.

Key names and class defaults: the configuration classes of github:huggingface/transformers (recall).
"""

from collections.abc import Callable
from typing import Any

from andrea_bench.errors import BadInput
from andrea_bench.models.keys import Keys
from andrea_bench.models.model import Model

Reader = Callable[[Keys], dict[str, Any]]
D_MODEL = ("hidden_size", "n_embd", "d_model", "n_embed")
N_HEAD = ("num_attention_heads", "n_head", "num_heads", "n_heads")
N_KV_HEAD = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
HEAD_DIM = ("head_dim", "d_kv", "kv_channels")
N_LAYER = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
INTERMEDIATE = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")


def _sizes(keys: Keys, *, ratio: int | None = None, n_kv_head: int | None = None) -> dict[str, Any]:
    """Sizes that every family states, under whichever names. ratio: of the MLP, where the key may be left out."""
    d_model = keys.size(*D_MODEL)
    n_head = keys.size(*N_HEAD)
    head_dim = keys.size("head_dim", default=None)
    if head_dim is None:
        if d_model % n_head:
            raise BadInput(
                f"{keys.found(*D_MODEL)} {d_model} is not divisible by {keys.found(*N_HEAD)} {n_head}, "
                "and there is no head_dim"
            )
        head_dim = d_model // n_head
    inner = keys.size(*INTERMEDIATE, default=None)
    if inner is None:
        inner = ratio * d_model if ratio else keys.size(*INTERMEDIATE)
    return {
        "d_model": d_model,
        "n_head": n_head,
        "n_kv_head": n_kv_head or keys.size("num_key_value_heads", default=n_head),
        "head_dim": head_dim,
        "n_layer": keys.size(*N_LAYER),
        "vocab_size": keys.size("vocab_size"),
        "intermediate_size": inner,
    }


def _tied(keys: Keys, default: bool) -> dict[str, Any]:
    return {"tied_embeddings": keys.flag("tie_word_embeddings", default)}


def _gpt2(keys: Keys) -> dict[str, Any]:
    positions = keys.size("n_positions", "max_position_embeddings")
    return {
        **_sizes(keys, ratio=4),
        **_tied(keys, True),
        "max_positions": positions,
        "biases": ["qkv", "out", "mlp"],
    }


def _gpt_neo(keys: Keys) -> dict[str, Any]:
    positions = keys.size("max_position_embeddings")
    fields = {**_sizes(keys, ratio=4), **_tied(keys, True), "max_positions": positions, "biases": ["out", "mlp"]}
    if keys.flag("rotary", False):
        # GPT-J was published under this name before it had a model_type of its own; its layers differ.
        fields["uncounted"] = "rotary: an early GPT-J under gpt_neo's name, whose layout is not GPT-Neo's"
    return fields


def _gpt_neox(keys: Keys) -> dict[str, Any]:
    attention = ["qkv", "out"] if keys.flag("attention_bias", True) else []
    return {**_sizes(keys), **_tied(keys, False), "biases": [*attention, "mlp"]}


def _gptj(keys: Keys) -> dict[str, Any]:
    sizes = _sizes(keys, ratio=4)
    extras = {"lm_head_bias": sizes["vocab_size"]}
    return {**sizes, **_tied(keys, False), "biases": ["mlp"], "norms_per_layer": 1, "extras": extras}


def _opt(keys: Keys) -> dict[str, Any]:
    sizes = _sizes(keys)
    d_model = sizes["d_model"]
    width = keys.size("word_embed_proj_dim", default=d_model)
    # The position table has 2 rows more than positions.
    extras = {"position_offset_rows": 2 * d_model}
    if width != d_model:
        extras["embedding_projections"] = 2 * width * d_model
    return {
        **sizes,
        **_tied(keys, True),
        "max_positions": keys.size("max_position_embeddings"),
        "biases": ["qkv", "out", "mlp"] if keys.flag("enable_bias", True) else [],
        "final_norm": keys.flag("do_layer_norm_before", True) and not keys.flag("_remove_final_layer_norm", False),
        "embedding_width": width,
        "extras": extras,
    }


def _bloom(keys: Keys) -> dict[str, Any]:
    sizes = _sizes(keys, ratio=4)
    extras = {"embedding_layernorm": 2 * sizes["d_model"]}
    return {**sizes, **_tied(keys, True), "biases": ["qkv", "out", "mlp"], "extras": extras}


def _falcon(keys: Keys) -> dict[str, Any]:
    """Three layouts: new_decoder_architecture has KV heads of its own; multi_query has one, whatever
    num_kv_heads says; else there are as many as query heads."""
    grouped = keys.flag("new_decoder_architecture", False)
    if grouped:
        n_kv_head = keys.size("num_kv_heads", "n_head_kv")
    else:
        n_kv_head = 1 if keys.flag("multi_query", True) else keys.size(*N_HEAD)
    parallel = keys.flag("parallel_attn", True)
    norms = keys.size("num_ln_in_parallel_attn", default=2 if grouped else 1) if parallel else 2
    return {
        **_sizes(keys, ratio=4, n_kv_head=n_kv_head),
        **_tied(keys, True),
        "biases": ["qkv", "out", "mlp"] if keys.flag("bias", False) else [],
        "norms_per_layer": norms,
    }


def _llama(keys: Keys) -> dict[str, Any]:
    attention = ["qkv", "out"] if keys.flag("attention_bias", False) else []
    mlp = ["mlp"] if keys.flag("mlp_bias", False) else []
    return {
        **_sizes(keys),
        **_tied(keys, False),
        "biases": [*attention, *mlp],
        "mlp_gated": True,
        "norm": "rmsnorm",
    }


def _qwen2(keys: Keys) -> dict[str, Any]:
    return {**_llama(keys), "biases": ["qkv"]}


def _with_qk_norm(fields: dict[str, Any]) -> dict[str, Any]:
    """A norm of head_dim for q and one for k, in each layer."""
    return {**fields, "extras": {"qk_norm": 2 * fields["head_dim"] * fields["n_layer"]}}


def _qwen3(keys: Keys) -> dict[str, Any]:
    return _with_qk_norm(_llama(keys))


def _gemma(keys: Keys) -> dict[str, Any]:
    # Gemma's class has a head_dim of its own by default, which is not hidden_size / heads.
    keys.size("head_dim")
    return {**_llama(keys), **_tied(keys, True)}


def _gemma2(keys: Keys) -> dict[str, Any]:
    return {**_gemma(keys), "norms_per_layer": 4}


def _gemma3(keys: Keys) -> dict[str, Any]:
    return _with_qk_norm(_gemma2(keys))


def _phi(keys: Keys) -> dict[str, Any]:
    sizes = _sizes(keys)
    extras = {"lm_head_bias": sizes["vocab_size"]}
    if keys.flag("qk_layernorm", False):
        extras["qk_norm"] = 4 * sizes["head_dim"] * sizes["n_layer"]
    return {
        **sizes, **_tied(keys, False), "biases": ["qkv", "out", "mlp"], "norms_per_layer": 1, "extras": extras,
    }  # fmt: skip


def _stablelm(keys: Keys) -> dict[str, Any]:
    return {
        **_sizes(keys),
        **_tied(keys, False),
        "mlp_gated": True,
        "biases": ["qkv"] if keys.flag("use_qkv_bias", False) else [],
        "norms_per_layer": 1 if keys.flag("use_parallel_residual", False) else 2,
    }


def _siglip_vision(keys: Keys) -> dict[str, Any]:
    sizes = _sizes(Keys({"vocab_size": 1, **keys.content}, within=keys.within)) | {"vocab_size": 0}
    d, inner = sizes["d_model"], sizes["intermediate_size"]
    patch = keys.size("patch_size")
    positions = (keys.size("image_size") // patch) ** 2
    extras = {"patch_conv": keys.size("num_channels", default=3) * patch * patch * d + d}
    if keys.flag("vision_use_head", True):
        # A learned query, attention with biases, a norm and an MLP.
        extras["attention_pool_head"] = d + 4 * d * d + 4 * d + 2 * d + 2 * d * inner + inner + d
    return {**sizes, "max_positions": positions, "biases": ["qkv", "out", "mlp"], "extras": extras}


def _siglip_text(keys: Keys) -> dict[str, Any]:
    sizes = _sizes(keys)
    d = sizes["d_model"]
    width = keys.size("projection_size", default=d)
    return {
        **sizes,
        "has_output_head": False,
        "max_positions": keys.size("max_position_embeddings"),
        "biases": ["qkv", "out", "mlp"],
        "extras": {"head": d * width + width},
    }


def _whisper_tower(keys: Keys, side: str) -> dict[str, Any]:
    renamed = {
        **keys.content,
        "num_attention_heads": keys.size(f"{side}_attention_heads"),
        "num_hidden_layers": keys.size(f"{side}_layers"),
        "intermediate_size": keys.size(f"{side}_ffn_dim"),
    }
    return {**_sizes(Keys(renamed)), "biases": ["qkv", "out", "mlp"]}


def whisper_encoder(keys: Keys) -> dict[str, Any]:
    fields = _whisper_tower(keys, "encoder")
    d, mels = fields["d_model"], keys.size("num_mel_bins", default=80)
    extras = {
        "conv1": mels * 3 * d + d,
        "conv2": d * 3 * d + d,
        # The key projections have no bias.
        "missing_key_bias": -d * fields["n_layer"],
    }
    return {
        **fields,
        "vocab_size": 0,
        "max_positions": keys.size("max_source_positions"),
        "extras": extras,
        "count_scope": "encoder alone, its fixed sinusoid table counted",
    }


def _whisper(keys: Keys) -> dict[str, Any]:
    """The decoder's sizes; the whole encoder and the cross-attention stand among the extras."""
    fields = _whisper_tower(keys, "decoder")
    d, layers = fields["d_model"], fields["n_layer"]
    encoder = Model(name="encoder", **whisper_encoder(keys)).parameters().unique
    return {
        **fields,
        "tied_embeddings": True,
        "max_positions": keys.size("max_target_positions"),
        "extras": {
            "encoder": encoder,
            # Four matrices, three biases and a norm with two rows.
            "decoder_cross_attention": layers * (4 * d * d + 3 * d + 2 * d),
            "decoder_missing_key_bias": -layers * d,
        },
        "count_scope": "encoder and decoder; sizes of the decoder",
    }


def unknown_family(keys: Keys) -> dict[str, Any]:
    """A family that is not known here: its sizes, without a count of the whole."""
    family = keys.text("model_type")
    known = ", ".join(sorted(FAMILIES))
    if keys.has("kv_lora_rank"):
        raise BadInput("kv_lora_rank: multi-head latent attention has no one head_dim; give the axes instead")
    d_model, n_head = keys.size(*D_MODEL), keys.size(*N_HEAD)
    head_dim = keys.size(*HEAD_DIM, default=None)
    grouped = keys.size(*N_KV_HEAD, default=None) or (1 if keys.flag("multi_query", False) else n_head)
    if head_dim is None and d_model % n_head:
        raise BadInput(f"hidden size {d_model} is not divisible by {n_head} heads, and there is no head_dim")
    return {
        "d_model": d_model,
        "n_head": n_head,
        "n_kv_head": grouped,
        "head_dim": head_dim or d_model // n_head,
        "n_layer": keys.size(*N_LAYER, default=1),
        "vocab_size": keys.size("vocab_size", default=0),
        "uncounted": f"the layout of model_type {family!r} is not known here; known: {known}"
        if family
        else "the file has no model_type",
    }


FAMILIES: dict[str, Reader] = {
    "gpt2": _gpt2,
    "gpt_neo": _gpt_neo,
    "gpt_neox": _gpt_neox,
    "gptj": _gptj,
    "opt": _opt,
    "bloom": _bloom,
    "falcon": _falcon,
    "RefinedWebModel": _falcon,
    "RefinedWeb": _falcon,
    "llama": _llama,
    "mistral": _llama,
    "phi3": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "phi": _phi,
    "stablelm": _stablelm,
    "siglip_vision_model": _siglip_vision,
    "siglip_text_model": _siglip_text,
    "whisper": _whisper,
}
