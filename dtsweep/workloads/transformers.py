"""Models of the `transformers` library, built from configurations without a download."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dtsweep.errors import SweepError, did_you_mean, nearest
from dtsweep.workloads.fields import check_counts, check_new_tokens, refused_division
from dtsweep.workloads.samples import POOL_SAMPLES, KeepsSamples, seeded_generator, take

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from dtsweep.sweep.point import Point


class _Model(NamedTuple):
    """A network of the `transformers` library and the numbers of its configuration."""

    config: str
    network: str
    task: Literal["image_class", "next_token", "same_token"]
    """Target: the class of an image, each next token, or (BERT) the masked token at each place."""
    numbers: dict[str, Any]


# The library's own configurations are those of ResNet-50, ViT-B, BERT base and GPT-2. Dropout is 0,
# so that losses reproduce; no cache, which only generation needs.
MODELS: dict[str, _Model] = {
    "resnet-50": _Model(
        "ResNetConfig", "ResNetForImageClassification", "image_class", {"num_labels": 1000}
    ),
    "vit-base": _Model(
        "ViTConfig", "ViTForImageClassification", "image_class", {"num_labels": 1000}
    ),
    "bert-base": _Model(
        "BertConfig",
        "BertForMaskedLM",
        "same_token",
        {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    ),
    "gpt2": _Model(
        "GPT2Config",
        "GPT2LMHeadModel",
        "next_token",
        {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False},
    ),
    "llama-160m": _Model(
        "LlamaConfig",
        "LlamaForCausalLM",
        "next_token",
        {
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "num_key_value_heads": 12,
        }
        | {"intermediate_size": 3072, "vocab_size": 32000, "max_position_embeddings": 2048}
        | {"tie_word_embeddings": False, "use_cache": False},
    ),
    "llama-1b": _Model(
        "LlamaConfig",
        "LlamaForCausalLM",
        "next_token",
        {
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        }
        | {"intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 131072}
        | {"tie_word_embeddings": True, "use_cache": False},
    ),
    "llama-8b": _Model(
        "LlamaConfig",
        "LlamaForCausalLM",
        "next_token",
        {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        }
        | {"intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192}
        | {"tie_word_embeddings": False, "use_cache": False},
    ),
}
"""By name; sizes as published with each model."""


@dataclass(frozen=True)
class Transformers(KeepsSamples):
    """A model by name, with random weights and 512 samples of random images or tokens.

    Needs the extra `models` (`pip install 'dtsweep[models]'`).
    """

    model: str
    """One of `resnet-50`, `vit-base`, `bert-base`, `gpt2`, `llama-160m`, `llama-1b`, `llama-8b`."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Overrides of the model's configuration, for example `{"num_hidden_layers": 2}`."""
    sequence: int = 128
    """Tokens per sample; not read by image models."""
    image_size: int = 224
    """Pixels per side of a sample's image; not read by language models."""
    new_tokens: int = 0
    """Tokens that `serve` generates; with the prompt they make `sequence`. 0 generates none."""

    def __post_init__(self) -> None:
        """Check what can be checked without the library."""
        if self.model not in MODELS:
            raise SweepError(
                f"Transformers(model={self.model!r}) is unknown; "
                f"{did_you_mean(str(self.model), MODELS)}"
            )
        if not isinstance(self.overrides, dict):
            raise SweepError(
                f"Transformers(overrides={self.overrides!r}): a dict of configuration fields"
            )
        check_counts(self, "sequence", "image_size")
        check_new_tokens(self)
        if self.new_tokens and MODELS[self.model].task != "next_token":
            raise SweepError(
                f"Transformers(new_tokens={self.new_tokens}): {self.model} generates no tokens"
            )

    @property
    def tokens_per_sample(self) -> int | None:
        """Tokens that one sample trains on; None for image models.

        >>> Transformers("gpt2", sequence=64).tokens_per_sample
        64
        >>> Transformers("resnet-50").tokens_per_sample is None
        True
        """
        if MODELS[self.model].task == "image_class":
            return None
        return self.sequence

    @property
    def tokens_per_answer(self) -> int | None:
        """Tokens of an answer of `serve`: the new ones, else those that get scores."""
        return self.new_tokens or self.tokens_per_sample

    @property
    def unread_fields(self) -> tuple[str, ...]:
        """Settings that this model does not read.

        >>> Transformers("gpt2").unread_fields
        ('image_size', 'new_tokens')
        """
        unread = "image_size"
        if MODELS[self.model].task == "image_class":
            unread = "sequence"
        if self.new_tokens:
            return (unread,)
        return (unread, "new_tokens")

    def build(self) -> nn.Module:
        """Make the network with random weights.

        Raises:
            SweepError: transformers is not installed, or `overrides` names no field of the
                configuration.
        """
        network: nn.Module = getattr(_library(), MODELS[self.model].network)(self._config())
        return network

    def tensor_parallel_plan(self, model: Any) -> dict[str, Any]:
        """Give torch's styles by module, for the plan that the library has for the model."""
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

        whole = Replicate()
        styles = {
            "colwise": ColwiseParallel(),
            "rowwise": RowwiseParallel(),
            "colwise_gather_output": ColwiseParallel(output_layouts=whole),
            "colwise_rep": ColwiseParallel(output_layouts=whole),
            "embedding_rowwise": RowwiseParallel(input_layouts=whole),
        }
        return {name: styles[style] for name, style in model.tp_plan.items()}

    def impossible_grid(self, point: Point) -> str | None:
        """Say why workers can't divide the model so, or None."""
        numbers = {**MODELS[self.model].numbers, **self.overrides}
        if point.pipeline_parallel > 1:
            return "models of transformers are no sequence of blocks; use pipeline_parallel=1"
        if not self.model.startswith("llama"):
            return f"transformers has no tensor-parallel plan for {self.model}; use a llama"
        if numbers["tie_word_embeddings"]:
            return (
                "workers can't share tied embeddings; use "
                "Transformers(overrides={'tie_word_embeddings': False})"
            )
        names = ("num_key_value_heads", "num_attention_heads", "vocab_size", "intermediate_size")
        return refused_division({name: numbers[name] for name in names}, point.tensor_parallel)

    def batch(self, samples: range, device: torch.device) -> tuple[dict[str, Tensor], Tensor]:
        """Give the arguments of the network, and what it should predict.

        Returns:
            `pixel_values` (samples, channels, image_size, image_size), float32 from -1 to 1, and
            the classes (samples,); or `input_ids` (samples, sequence), int64, and tokens of that
            shape.

        Raises:
            SweepError: as `build`.
        """
        kept = self._kept(device, self._draw)
        if "images" in kept:
            images = take(kept["images"], samples) / 127.5 - 1
            return {"pixel_values": images}, take(kept["classes"], samples)
        tokens = take(kept["tokens"], samples)
        shown = tokens[:, :-1]
        return {"input_ids": shown}, tokens[:, 1:] if MODELS[
            self.model
        ].task == "next_token" else shown

    def loss(self, model: nn.Module, batch: tuple[dict[str, Tensor], Tensor]) -> Tensor:
        """Give the mean cross entropy over the images, or over all tokens."""
        from torch.nn import functional

        arguments, wanted = batch
        scores = model(**arguments).logits
        return functional.cross_entropy(scores.flatten(0, -2), wanted.flatten())

    def serve(self, model: nn.Module, batch: tuple[dict[str, Tensor], Tensor]) -> Iterator[Tensor]:
        """Yield the likeliest new tokens one by one, (samples,) each, by the library's cache.

        Without `new_tokens`, yield the scores of all classes, by image or by token.
        """
        arguments, _ = batch
        if not self.new_tokens:
            yield model(**arguments).logits
            return
        tokens = arguments["input_ids"][:, : self.sequence - self.new_tokens]
        cache = None
        for _ in range(self.new_tokens):
            output = model(input_ids=tokens, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            tokens = output.logits[:, -1:].argmax(-1)
            yield tokens[:, 0]

    def _config(self) -> Any:
        model = MODELS[self.model]
        config_class = getattr(_library(), model.config)
        default = config_class()
        fields = default.to_dict() | {"num_labels": default.num_labels}
        image_size = {}
        if "image_size" in fields:
            image_size = {"image_size": self.image_size}
        for name in self.overrides:
            if name in image_size:
                raise SweepError(
                    "Transformers(overrides): give image_size as Transformers(image_size=...)"
                )
            if name not in fields:
                near = nearest(default.attribute_map.get(name, name), fields)
                hint = ""
                if near:
                    hint = f"; did you mean {near!r}?"
                raise SweepError(
                    f"Transformers(overrides): {name!r} is not a field of {model.config}{hint}"
                )
        config = config_class(**model.numbers | image_size | self.overrides)
        longest = getattr(config, "max_position_embeddings", self.sequence)
        if self.sequence > longest:
            raise SweepError(
                f"Transformers(sequence={self.sequence}): {self.model} takes at most {longest}"
            )
        return config

    def _draw(self) -> dict[str, Tensor]:
        import torch

        config = self._config()
        generator = seeded_generator()
        if MODELS[self.model].task != "image_class":
            shape = (POOL_SAMPLES, self.sequence + 1)
            return {"tokens": torch.randint(0, config.vocab_size, shape, generator=generator)}
        pixels = (POOL_SAMPLES, config.num_channels, self.image_size, self.image_size)
        return {
            "images": torch.randint(0, 256, pixels, generator=generator, dtype=torch.uint8),
            "classes": torch.randint(0, config.num_labels, (POOL_SAMPLES,), generator=generator),
        }


def _library() -> Any:
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise SweepError(
            "the workload Transformers needs the transformers library: pip install "
            "'dtsweep[models]'"
        ) from error
    return transformers
