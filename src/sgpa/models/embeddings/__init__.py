"""From inputs to tokens."""

from torch import nn

from sgpa.models.config import (
    FeatureConfig,
    GraphConfig,
    PatchConfig,
    TokenConfig,
    WordsConfig,
)
from sgpa.models.config.embedding import EmbeddingConfig
from sgpa.models.embeddings.features import FeatureEmbedding
from sgpa.models.embeddings.graphs import GraphEmbedding
from sgpa.models.embeddings.patches import PatchEmbedding
from sgpa.models.embeddings.tokens import TokenEmbedding
from sgpa.models.embeddings.words import WordEmbedding

EMBEDDINGS: dict[type, type[nn.Module]] = {
    PatchConfig: PatchEmbedding,
    TokenConfig: TokenEmbedding,
    GraphConfig: GraphEmbedding,
    WordsConfig: WordEmbedding,
    FeatureConfig: FeatureEmbedding,
}


def embedding_of(config: EmbeddingConfig, width: int) -> nn.Module:
    """The embedding that a config describes, into vectors [width]."""
    return EMBEDDINGS[type(config)](config, width)
