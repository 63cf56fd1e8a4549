"""The generated text, and the small transformer's own numbers against torch's."""

import random

import msgspec
import pytest

torch = pytest.importorskip("torch", reason="the training needs torch")

from andrea_bench.claims import text, training  # noqa: E402


def test_each_source_is_the_token_that_the_next_one_follows_from() -> None:
    made = text.make_text(400, random.Random(3))
    tokens = made.tokens
    assert len(tokens) == 400 and all(made.sources[kind] for kind in ("word", "bracket", "name"))
    for query, source in made.sources["bracket"]:
        assert tokens[query + 1] - text.CLOSE == tokens[source] - text.OPEN
        inside = tokens[source + 1 : query + 1]
        opened = sum(text.OPEN <= t < text.CLOSE for t in inside)
        assert opened == sum(text.CLOSE <= t < text.NAME for t in inside)
    for query, source in made.sources["name"]:
        assert tokens[query] == text.WHO and tokens[query + 1] == tokens[source]
        assert not any(text.NAME <= t < text.WHO for t in tokens[source + 1 : query + 1])
    for query, source in made.sources["word"]:
        assert source == query - 1 and text.SECOND <= tokens[query] < text.THIRD
        assert tokens[query + 1] - text.THIRD == tokens[source] - text.FIRST


def test_text_is_the_same_for_a_seed_and_another_for_the_next() -> None:
    first, again, other = (text.make_batch(2, 48, seed) for seed in (1, 1, 2))
    assert [t.tokens for t in first] == [t.tokens for t in again] != [t.tokens for t in other]


def test_heads_are_torchs_attention() -> None:
    weights = training._weights(1)
    tokens = training._tokens(text.make_batch(3, 48, 5))
    _, heads, attention = training._forward(weights, tokens)
    x = weights["tokens"][tokens] + weights["positions"]
    normed = torch.nn.functional.layer_norm(x, (64,))
    q, k, v = ((normed @ weights[f"0.{n}"]).view(3, 48, 4, 16).transpose(1, 2) for n in "qkv")
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    whole = expected.transpose(1, 2).reshape(3, 48, 64) @ weights["0.o"]
    torch.testing.assert_close(heads[0].sum(0), whole, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(attention[0].sum(-1), torch.ones(3, 4, 48))


def test_gradient_norms_are_those_of_each_heads_slices() -> None:
    weights = training._weights(1)
    tokens = training._tokens(text.make_batch(2, 48, 5))
    training._forward(weights, tokens)[0].square().mean().backward()
    head = slice(16, 32)
    squares = (
        sum(weights[f"1.{n}"].grad[:, head].square().sum() for n in "qkv") + weights["1.o"].grad[head].square().sum()
    )
    assert training._gradients(weights)[1][1] == pytest.approx(float(squares.sqrt()), rel=1e-5)


def test_redundancy_is_one_for_a_copied_head_and_small_for_the_others() -> None:
    added = torch.randn(4, 2, 48, 64, generator=torch.Generator().manual_seed(0))
    added[3] = -2 * added[0]
    found = training._redundancy(added)
    assert found[0] == pytest.approx(1, abs=1e-5) == found[3] and max(found[1], found[2]) < 0.1


def test_correlation_is_within_each_layer_and_moment() -> None:
    # Perfectly opposed within each layer, though the layers' levels go together.
    watched = [
        {"gradient": [[1, 2, 3, 4], [11, 12, 13, 14]], "redundancy": [[0.4, 0.3, 0.2, 0.1], [0.9, 0.8, 0.7, 0.6]]}
    ]
    assert training.correlation(watched) == pytest.approx(-1)


def test_a_short_training_gives_a_whole_result() -> None:
    said: list[str] = []
    result = training.train(seeds=(1,), steps=3, said=said.append)
    assert msgspec.json.decode(msgspec.json.encode(result)) == result
    (one,) = result["seeds"]
    assert set(one["accuracy"]) == set(one["attention_trained"]) == set(training.PATTERNS.values())
    assert one["watched"][0]["step"] == 0 and said[0].startswith("seed 1: ")
    assert all(0 <= value <= 1 for value in one["accuracy"].values())
