"""Model: the sizes of one transformer, and how many parameters they make."""

from typing import Any, Literal

import msgspec

from andrea_bench.problem import Dtype, Problem

Linear = Literal["qkv", "out", "mlp"]
# The sequence of a model that states none by a table of positions: andrea-120m's context.
DEFAULT_SEQ_LEN = 1024


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameter counts of a Model by part; all layers together unless named per layer.

    embeddings: token and position tables. output_head: 0 where tied to the token table. unique: each matrix
    once. stored: a tied head counted again. What can't be counted is None; `reason` says why.
    """

    embeddings: int | None
    attention_per_layer: int
    attention: int
    mlp: int | None
    norms: int | None
    output_head: int | None
    extras: int
    unique: int | None
    stored: int | None
    reason: str | None = None

    @property
    def attention_share(self) -> float | None:
        """Attention's part of the unique parameters."""
        return self.attention / self.unique if self.unique else None

    @property
    def tied(self) -> int | None:
        """The matrix that the token table and the output head share; 0 where they are two, or there is no head."""
        return self.stored - self.unique if self.stored is not None and self.unique is not None else None

    @property
    def non_embedding(self) -> int | None:
        """The unique parameters outside the tables and the output head."""
        if self.unique is None or self.embeddings is None or self.output_head is None:
            return None
        return self.unique - self.embeddings - self.output_head


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """One transformer stack.

    max_positions: rows of a learned position table; 0 where positions are rotary, ALiBi or none. biases:
    which matmuls have one. extras: other parameters by name. embedding_width: of the token table, where it
    is not d_model. has_output_head: over the vocabulary, tied or not. assumed: fields that no source states.
    uncounted: why the whole can't be counted. dtype: what its file says that its weights are stored in.
    """

    name: str
    d_model: int
    n_head: int
    n_kv_head: int
    head_dim: int
    n_layer: int
    vocab_size: int = 0
    intermediate_size: int | None = None
    max_positions: int = 0
    mlp_gated: bool = False
    biases: list[Linear] = []
    norm: Literal["layernorm", "rmsnorm", "none"] = "layernorm"
    final_norm: bool = True
    norms_per_layer: int = 2
    tied_embeddings: bool = False
    has_output_head: bool = True
    embedding_width: int | None = None
    extras: dict[str, int] = {}
    assumed: list[str] = []
    uncounted: str | None = None
    dtype: Dtype | None = None
    title: str | None = None
    published_parameters: int | None = None
    published_rounded: str | None = None
    count_scope: str | None = None
    count_source: str | None = None
    source: str | None = None
    note: str | None = None

    def problem(self, **changes: Any) -> Problem:
        """The Problem of one layer of this model: batch 1, its context, unless changed."""
        sizes = {
            "seq_len": self.max_positions or DEFAULT_SEQ_LEN,
            "d_model": self.d_model,
            "n_head": self.n_head,
            "n_kv_head": self.n_kv_head,
            "head_dim": self.head_dim,
            "n_layer": self.n_layer,
        }
        return Problem(**{**sizes, **changes})

    def resized(self, problem: Problem) -> "Model":
        """This model with a Problem's widths and layers. The MLP keeps its ratio to d_model; extras, which
        follow no such rule, are left out and the whole is not counted then."""
        shape = ("d_model", "n_head", "n_kv_head", "head_dim", "n_layer")
        sizes = {name: getattr(problem, name) for name in shape}
        if all(getattr(self, name) == size for name, size in sizes.items()):
            return self
        inner = self.intermediate_size
        if inner is not None:
            inner = inner * problem.d_model // self.d_model
        changed = [name for name, size in sizes.items() if getattr(self, name) != size]
        no_rule = f"the extras of {self.name} don't follow {', '.join(changed)}" if self.extras else None
        return msgspec.structs.replace(
            self,
            **sizes,
            intermediate_size=inner,
            assumed=list(dict.fromkeys([*self.assumed, *(["intermediate_size"] if "d_model" in changed else [])])),
            extras={},
            uncounted=self.uncounted or no_rule,
            published_parameters=None,
            published_rounded=None,
            count_source=None,
            note=None,
        )  # fmt: skip

    def parameters(self) -> Parameters:
        """Counts by part, from the sizes alone."""
        d, layers = self.d_model, self.n_layer
        qkv = (self.n_head + 2 * self.n_kv_head) * self.head_dim
        attention = self.problem().attention_parameters()
        attention += (qkv if "qkv" in self.biases else 0) + (d if "out" in self.biases else 0)
        extras = sum(self.extras.values())
        if self.uncounted or self.intermediate_size is None:
            return Parameters(
                embeddings=None, attention_per_layer=attention, attention=attention * layers, mlp=None, norms=None,
                output_head=None, extras=extras, unique=None, stored=None,
                reason=self.uncounted or "intermediate_size is not known",
            )  # fmt: skip
        into = self.intermediate_size * (2 if self.mlp_gated else 1)
        mlp = d * (into + self.intermediate_size) + (into + d if "mlp" in self.biases else 0)
        norm = {"layernorm": 2 * d, "rmsnorm": d, "none": 0}[self.norm]
        tokens = self.vocab_size * (self.embedding_width or d)
        parts: dict[str, Any] = {
            "embeddings": tokens + self.max_positions * d,
            "attention": attention * layers,
            "mlp": mlp * layers,
            "norms": norm * (self.norms_per_layer * layers + self.final_norm),
            "output_head": tokens if self.has_output_head and not self.tied_embeddings else 0,
            "extras": extras,
        }
        unique = sum(parts.values())
        stored = unique + (tokens if self.has_output_head and self.tied_embeddings else 0)
        return Parameters(reason=None, attention_per_layer=attention, unique=unique, stored=stored, **parts)
