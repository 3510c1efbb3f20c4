"""Hidden states of a pretrained network that reads texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields
from sgpa.core.inputs import Features
from sgpa.core.limits import size_check
from sgpa.core.user_code import errors_of
from sgpa.data.backbones.cache import FeatureRows, cached
from sgpa.data.backbones.hidden_states import hidden_state
from sgpa.data.backbones.locate import locate, need_transformers, open_network, read_config, weights_digest
from sgpa.data.fetch import Progress

BATCH = 16  # texts of similar length that are read together
MAX_TOKENS, GROUP = 512, 4
MOST_TOKENS = 100_000  # more are a mistake


@checked
@dataclass(frozen=True, kw_only=True)
class TextBackbone:
    """A frozen network for texts, and how its hidden states become features.

    Args:
        name: What `locate` takes: `minilm`, a folder, or a name on the hub.
        layer: The hidden state to use, 0 for the embeddings; by default two thirds of the depth, where
            the states say more about a text than the last ones, which serve the network's own task.
        max_tokens: Longer texts are cut; at most what the network reads.
        group: So many neighbouring tokens are averaged to one.

    Example:
        >>> TextBackbone(name="minilm").features(["a good film"]).values.shape  # doctest: +SKIP
        torch.Size([1, 128, 384])
    """

    name: str
    layer: int | None = None
    max_tokens: int = MAX_TOKENS
    group: int = GROUP

    def __post_init__(self) -> None:
        check_fields(
            "backbone",
            [
                ("layer", self.layer, self.layer is None or self.layer >= 0, "0 or more"),
                size_check("max_tokens", self.max_tokens, MOST_TOKENS, least=4),
                ("group", self.group, 1 <= self.group <= self.max_tokens, f"1 to {self.max_tokens}"),
            ],
        )

    @property
    def tokens(self) -> int:
        """The most tokens of a row, after averaging."""
        return -(-self.max_tokens // self.group)

    @property
    def digest(self) -> str:
        """Identifies the network's weights."""
        return weights_digest(locate(self.name))

    def features(
        self, texts: Sequence[str], progress: Progress | None = None, *, keep: bool = False
    ) -> Features:
        """Features [N, tokens, F] of texts in half precision.

        Args:
            texts: One or more texts that are not empty.
            progress: Called with texts done and texts in all.
            keep: Use the cache: read what it holds, and add what it does not.
        """
        empty = [i for i, text in enumerate(texts, 1) if not text.strip()]
        if empty:
            raise InputError(f"backbone {self.name}: text {empty[0]} is empty; drop it or fill it in")
        folder = locate(self.name)
        need_transformers()
        settings = f"texts {self.layer} {self.max_tokens} {self.group}"

        def compute(rows: slice) -> FeatureRows:
            return self._compute(_network(folder), texts[rows], rows.start)

        if keep:
            return cached(texts, f"{settings} {self.digest}", compute, progress).padded(self.tokens)
        return compute(slice(0, len(texts))).padded(self.tokens)

    @torch.inference_mode()
    def _compute(self, network: "_Network", texts: Sequence[str], first: int) -> FeatureRows:
        longest = min(self.max_tokens, network.longest)
        with errors_of(f"backbone {self.name}: its tokenizer cannot read the texts"):
            ids = [network.encode(" ".join(text.split()), longest) for text in texts]
        for i, row in enumerate(ids):
            if not row:
                raise InputError(
                    f"backbone {self.name}: text {first + i + 1} has no token; drop it or fill it in"
                )
        features: list[Tensor] = [torch.empty(0)] * len(ids)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        for start in range(0, len(ids), BATCH):
            batch = order[start : start + BATCH]
            states = network.states([ids[i] for i in batch], self.layer, self.name)  # [B, T, F]
            for state, i in zip(states, batch, strict=True):
                features[i] = averaged(state[: len(ids[i])], self.group)
        return FeatureRows.of(features)


def averaged(x: Tensor, group: int) -> Tensor:
    """Means of `group` neighbouring rows of x [T, F]; the last group may be smaller."""
    return torch.stack([part.mean(0) for part in x.split(group)])


class _Network:
    """A network with its tokenizer."""

    def __init__(self, folder: Path) -> None:
        config = read_config(folder)
        if "vocab_size" not in config.get("text_config", config):
            raise InputError(
                f"backbone {folder}: a {config['model_type']} network does not read texts (no vocab_size)"
            )
        model = open_network(folder, use_safetensors=True)
        self.tokenizer = open_network(folder, "AutoTokenizer")
        self.model: Any = part_for(model, "text_model").eval()
        sizes = self.model.config
        positions = getattr(sizes, "max_position_embeddings", None) or 10**9
        offset = 2 if "roberta" in config["model_type"] else 0  # its positions start behind the padding id
        self.longest = int(min(positions - offset, self.tokenizer.model_max_length))

    def encode(self, text: str, longest: int) -> list[int]:
        """Token ids of a text, cut after `longest`."""
        ids: list[int] = self.tokenizer(text, truncation=True, max_length=longest)["input_ids"]
        return ids

    def states(self, rows: Sequence[list[int]], layer: int | None, name: str) -> Tensor:
        """Hidden states of a layer, [B, T, F]."""
        lengths = torch.tensor([len(row) for row in rows])
        mask = torch.arange(int(lengths.max())) < lengths.unsqueeze(1)  # [B, T]
        ids = torch.zeros(mask.shape, dtype=torch.long)
        ids[mask] = torch.tensor([id for row in rows for id in row])
        with errors_of(f"backbone {name} cannot be run"):
            return hidden_state(self.model, layer, name, input_ids=ids, attention_mask=mask.long())


def part_for(model: Any, name: str) -> Any:
    """The part of a network that reads one kind of inputs: the encoder, or one half of a pair."""
    if hasattr(model, name):
        return getattr(model, name)
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model


@lru_cache(maxsize=1)
def _network(folder: Path) -> _Network:
    with errors_of(f"backbone {folder} cannot be opened"):
        return _Network(folder)
