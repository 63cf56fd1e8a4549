"""Model presets and Hugging Face configurations: their sizes, and totals equal to published counts."""

import json
import re
from pathlib import Path

import pytest

from andrea_bench.errors import BadInput
from andrea_bench.models import Model, find_model, presets, read_model

CONFIGS = Path(__file__).parent / "fixtures" / "configs"
# Where the sizes can't give the published count: ours less theirs; the preset's note says why.
DIFFER = {"gpt-j-6b": -2_498_560, "stablelm-base-alpha-3b": -1_204_224}
# Published totals of the stored configurations, per file and part (sources: presets.toml; falcon-40b: by hand).
TOTALS = {
    "gpt2": 124_439_808,
    "pythia-410m": 405_334_016,
    "pythia-1b": 1_011_781_632,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neo-2.7b": 2_651_307_520,
    "opt-125m": 125_239_296,
    "bloom-560m": 559_214_592,
    "falcon-7b": 6_921_720_704,
    "llama-3-8b": 8_030_261_248,
    "mistral-7b-v0.1": 7_241_732_096,
    "gemma-7b": 8_537_680_896,
    "phi-2": 2_779_683_840,
    "phi-3-mini-4k": 3_821_079_552,
    "qwen2-0.5b": 494_032_768,
    "qwen3-4b": 4_022_468_096,
    "stablelm-2-1.6b": 1_644_515_328,
    "siglip-so400m-patch14-384#vision_config": 428_225_600,
    "siglip-so400m-vila-1.5-3b": 428_225_600,
    "whisper-small": 241_734_912,
    # 65024 * 8192 + 60 * (8192 * 144 * 64 + 8192**2 + 8 * 8192**2 + 4 * 8192) + 2 * 8192
    "falcon-40b": 41_303_293_952,
}


@pytest.mark.parametrize("name", [n for n, m in presets().items() if m.published_parameters])
def test_a_presets_total_is_the_published_count_or_its_note_says_why_not(name: str) -> None:
    model = presets()[name]
    counts = model.parameters()
    assert counts.unique is not None
    assert model.published_parameters is not None
    assert counts.unique - model.published_parameters == DIFFER.get(name, 0)
    if name in DIFFER:
        assert model.note is not None
        assert f"{-DIFFER[name]:,}" in model.note


@pytest.mark.parametrize(
    ("name", "unit", "digits"),
    [("andrea-12m", 1e6, 1), ("andrea-120m", 1e6, 1), ("andrea-480m", 1e6, -1), ("openclip-vit-h-14-visual", 1e6, 2)],
)
def test_a_total_published_in_round_figures_rounds_to_them(name: str, unit: float, digits: int) -> None:
    model = presets()[name]
    published = float(str(model.published_rounded).strip("~M"))
    assert round((model.parameters().unique or 0) / unit, digits) == published


def test_the_lesson_pages_vocabulary_does_not_fit_the_published_count() -> None:
    model = presets()["andrea-12m-vocab-4353"]
    assert model.parameters().unique == 14_353_152
    assert "does not round" in str(model.note)


def test_preset_names_are_lower_case_with_single_dashes_and_carry_sources() -> None:
    for name, model in presets().items():
        assert re.sub(r"[^a-z0-9]+", "-", str(model.title).lower()).strip("-") == name
        assert model.source
        assert model.count_source
        assert model.n_head % model.n_kv_head == 0


def test_attention_of_andrea_120m_is_the_lessons_count() -> None:
    counts = find_model("andrea-120m").parameters()
    assert counts.attention_per_layer == 4 * 768**2 == 2_359_296
    assert counts.attention == 28_311_552
    assert counts.attention_share == pytest.approx(28_311_552 / 98_698_752)


def test_a_tied_matrix_is_unique_once_and_stored_twice() -> None:
    stories = find_model("stories15m").parameters()
    assert (stories.unique, stories.stored) == (15_191_712, 24_407_712)
    assert (stories.stored or 0) - (stories.unique or 0) == 32_000 * 288
    gpt2 = find_model("gpt-2-small").parameters()
    assert (gpt2.stored or 0) - (gpt2.unique or 0) == 38_597_376
    assert gpt2.output_head == 0


def test_bloom_has_no_position_table() -> None:
    bloom = find_model("bloom-176b")
    assert bloom.parameters().unique == 176_247_271_424
    assert bloom.parameters().embeddings == 250_880 * 14_336


@pytest.mark.parametrize("name", TOTALS)
def test_a_stored_configuration_gives_the_published_total(name: str) -> None:
    file, _, part = name.partition("#")
    model = find_model(f"{CONFIGS / file}.json" + (f"#{part}" if part else ""))
    assert model.parameters().unique == TOTALS[name]


def test_every_stored_configuration_is_tested() -> None:
    assert {file.stem for file in CONFIGS.glob("*.json")} == {name.partition("#")[0] for name in TOTALS}


@pytest.mark.parametrize(
    ("file", "preset"),
    [
        ("gpt2", "gpt-2-small"), ("pythia-410m", "pythia-410m"), ("llama-3-8b", "llama-3-8b"), ("phi-2", "phi-2"),
        ("qwen3-4b", "qwen3-4b"), ("gemma-7b", "gemma-7b"), ("opt-125m", "opt-125m"), ("falcon-7b", "falcon-7b-tied"),
        ("bloom-560m", "bloom-560m"), ("gpt-j-6b", "gpt-j-6b"), ("gpt-neo-2.7b", "gpt-neo-2-7b"),
        ("pythia-1b", "pythia-1b"),
    ],
)  # fmt: skip
def test_a_configuration_and_its_preset_agree_part_by_part(file: str, preset: str) -> None:
    model = read_model(CONFIGS / f"{file}.json")
    assert model.parameters() == presets()[preset].parameters()
    assert model.problem() == presets()[preset].problem()


def config(tmp_path: Path, **keys: object) -> Path:
    """A small Llama's config.json with some keys changed; None takes one away."""
    content: dict[str, object] = {
        "model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2,
        "vocab_size": 1000, "intermediate_size": 1024,
    }  # fmt: skip
    content = {key: value for key, value in (content | keys).items() if value is not None}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(content))
    return file


def test_falcons_multi_query_flag_means_one_kv_head_whatever_num_kv_heads_says(tmp_path: Path) -> None:
    model = read_model(CONFIGS / "falcon-7b.json")
    assert (model.n_kv_head, model.head_dim) == (1, 64)
    assert (model.n_head + 2 * model.n_kv_head) * model.head_dim == 4672
    assert read_model(CONFIGS / "falcon-40b.json").n_kv_head == 8
    separate = config(tmp_path, model_type="falcon", multi_query=False, intermediate_size=None)
    assert read_model(separate).n_kv_head == 8


@pytest.mark.parametrize(
    ("d_model", "n_head", "head_dim"), [(2560, 32, 128), (6144, 64, 128), (640, 4, 256)]
)  # Qwen3-4B, MiniMax-01, Gemma-3-270m
def test_an_explicit_head_dim_wins(tmp_path: Path, d_model: int, n_head: int, head_dim: int) -> None:
    file = config(tmp_path, hidden_size=d_model, num_attention_heads=n_head, head_dim=head_dim)
    model = read_model(file)
    assert model.head_dim == head_dim
    assert model.problem().attention_parameters() == 4 * d_model * n_head * head_dim


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"hidden_size": None}, ["hidden_size", "missing"]),
        ({"num_attention_heads": None}, ["num_attention_heads", "missing"]),
        ({"vocab_size": None}, ["vocab_size", "missing"]),
        ({"intermediate_size": None}, ["intermediate_size", "missing"]),
        ({"n_embd": 768}, ["contradictory", "hidden_size 512", "n_embd 768"]),
        ({"hidden_size": 500}, ["hidden_size 500", "num_attention_heads 8"]),
        ({"num_key_value_heads": 3}, ["contradictory", "n_kv_head 3"]),
        ({"num_hidden_layers": "two"}, ["num_hidden_layers", "'two'"]),
        ({"hidden_size": True}, ["hidden_size", "True"]),
        ({"vocab_size": -1}, ["vocab_size", "-1"]),
        ({"tie_word_embeddings": 1}, ["tie_word_embeddings", "1"]),
        ({"model_type": "gemma"}, ["head_dim", "missing"]),
    ],
)
def test_a_missing_or_contradictory_key_is_named(tmp_path: Path, keys: dict[str, object], words: list[str]) -> None:
    file = config(tmp_path, **keys)
    with pytest.raises(BadInput) as caught:
        find_model(str(file))
    assert str(file) in str(caught.value)
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


def test_an_unknown_family_gives_sizes_and_says_that_it_is_not_counted(tmp_path: Path) -> None:
    counts = read_model(config(tmp_path, model_type="minimax_text_01")).parameters()
    assert counts.unique is None
    assert "minimax_text_01" in str(counts.reason)
    assert counts.attention == 2 * 4 * 512**2
    experts = read_model(config(tmp_path, model_type="mistral", num_local_experts=8)).parameters()
    assert experts.unique is None
    assert "num_local_experts 8" in str(experts.reason)


def test_an_early_gpt_j_under_gpt_neos_name_is_not_counted(tmp_path: Path) -> None:
    keys = {"model_type": "gpt_neo", "max_position_embeddings": 64}
    early = read_model(config(tmp_path, **keys, rotary=True)).parameters()
    assert early.unique is None
    assert "rotary" in str(early.reason)
    assert read_model(config(tmp_path, **keys, rotary=False)).parameters().unique is not None


def test_nested_configurations_give_their_text_part_or_the_named_one(tmp_path: Path) -> None:
    siglip = f"{CONFIGS / 'siglip-so400m-patch14-384.json'}"
    assert find_model(siglip).vocab_size == 32_000
    assert find_model(f"{siglip}#vision_config").problem().seq_len == 27 * 27
    with pytest.raises(BadInput, match=r"audio_config.*vision_config"):
        find_model(f"{siglip}#audio_config")
    inner = {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2, "vocab_size": 10}
    outer = tmp_path / "config.json"
    outer.write_text(json.dumps({"model_type": "llama", "text_config": inner}))
    with pytest.raises(BadInput, match="text_config: key intermediate_size"):
        find_model(str(outer))


@pytest.mark.parametrize(
    ("keys", "dtype"),
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float16"}, "float16"),
        ({"torch_dtype": "float8_e4m3fn"}, None),
        ({}, None),
        ({"dtype": "float8_e4m3fn", "hidden_size": None, "text_config": {}}, None),
        ({"dtype": "bfloat16", "hidden_size": None, "text_config": {}}, "bfloat16"),
        (
            {"dtype": "bfloat16", "hidden_size": None, "text_config": {"hidden_size": 256, "dtype": "float32"}},
            "float32",
        ),
    ],
)
def test_the_dtype_is_what_the_file_says(tmp_path: Path, keys: dict[str, object], dtype: str | None) -> None:
    if "text_config" in keys:
        keys = keys | {"text_config": json.loads(config(tmp_path).read_text()) | dict(keys["text_config"])}  # type: ignore[call-overload]
    model = read_model(config(tmp_path, **keys))
    assert model.dtype == dtype and ("float8" in (model.note or "")) == ("float8" in str(keys))


def test_whispers_encoder_is_a_part_of_its_own() -> None:
    whisper = CONFIGS / "whisper-small.json"
    encoder = find_model(f"{whisper}#encoder")
    assert encoder.problem().seq_len == 1500
    assert encoder.parameters().unique == 185_088 + 1_770_240 + 1_152_000 + 85_045_248 + 1_536
    assert find_model(str(whisper)).problem().seq_len == 448


def test_byte_order_mark_and_crlf_are_read_as_if_plain_and_a_folder_by_its_config(tmp_path: Path) -> None:
    plain = (CONFIGS / "gpt2.json").read_bytes()
    (tmp_path / "config.json").write_bytes(b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n"))
    assert find_model(str(tmp_path)).parameters() == find_model("gpt-2-small").parameters()


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_a_file_that_is_no_configuration_is_one_line_with_its_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=r"^[^\n]*config\.json[^\n]*$"):
        find_model(str(file))


def test_an_unknown_model_names_the_closest_and_a_missing_file_itself() -> None:
    with pytest.raises(BadInput, match="andrea-120m"):
        find_model("andrea-120")
    with pytest.raises(BadInput, match=r"no/such/config\.json"):
        find_model("no/such/config.json")


def test_resizing_keeps_the_mlp_ratio_and_leaves_out_extras() -> None:
    andrea = find_model("andrea-120m")
    wider = andrea.resized(andrea.problem(d_model=1536, n_head=24, n_kv_head=24))
    assert isinstance(wider, Model)
    assert wider.intermediate_size == 6144
    assert wider.parameters().mlp == 12 * 8 * 1536**2
    phi = find_model("phi-2")
    assert phi.resized(phi.problem()) is phi
    assert phi.resized(phi.problem(n_layer=1)).parameters().unique is None


def test_opt_350m_projects_its_narrower_embedding(tmp_path: Path) -> None:
    file = config(
        tmp_path, model_type="opt", hidden_size=1024, num_attention_heads=16, num_hidden_layers=24, ffn_dim=4096,
        intermediate_size=None, vocab_size=50272, max_position_embeddings=2048, word_embed_proj_dim=512,
        do_layer_norm_before=False,
    )  # fmt: skip
    layers = 24 * (12 * 1024**2 + 13 * 1024)
    expected = 50272 * 512 + 2050 * 1024 + 2 * 512 * 1024 + layers
    assert read_model(file).parameters().unique == expected
    assert expected == 331_196_416


def test_the_count_without_embeddings_leaves_out_tables_and_head() -> None:
    # Published beside its total: 302,311,424 of 405,334,016.
    pythia = find_model("pythia-410m").parameters()
    assert pythia.non_embedding == 302_311_424
    assert pythia.tied == 0
    gpt2 = find_model("gpt-2-small").parameters()
    assert gpt2.tied == 50_257 * 768 == 38_597_376
    assert gpt2.non_embedding == 12 * 7_087_872 + 1_536


@pytest.mark.parametrize(
    ("keys", "n_kv_head", "head_dim"),
    [
        ({"model_type": "gpt_bigcode", "multi_query": True}, 1, 64),
        ({"model_type": "chatglm", "multi_query_group_num": 2, "kv_channels": 128}, 2, 128),
        ({"model_type": "t5", "d_kv": 128}, 8, 128),
    ],
)
def test_an_unknown_familys_kv_heads_and_head_dim_are_taken_where_stated(
    tmp_path: Path, keys: dict[str, object], n_kv_head: int, head_dim: int
) -> None:
    model = read_model(config(tmp_path, **keys))
    assert (model.n_kv_head, model.head_dim) == (n_kv_head, head_dim)


def test_latent_attention_is_refused_by_its_key(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"config\.json: kv_lora_rank"):
        read_model(config(tmp_path, model_type="deepseek_v3", kv_lora_rank=512))


def test_one_key_with_two_values_contradicts_itself(tmp_path: Path) -> None:
    file = config(tmp_path)
    file.write_text('{"n_head": 8, "n_head": 12}')
    with pytest.raises(BadInput, match="contradictory keys: n_head 8 and n_head 12"):
        read_model(file)
    file.write_text('{"n_head": ' + "9" * 5000 + "}")
    with pytest.raises(BadInput, match="is no JSON"):
        read_model(file)
