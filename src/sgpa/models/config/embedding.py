"""Configs of the embeddings: what a model's inputs are."""

from dataclasses import dataclass

from sgpa.core.arguments import checked
from sgpa.core.errors import check_fields
from sgpa.core.limits import is_scale, scale_check, size_check

LARGEST = 4_096  # pixels of a side
BRIGHTEST = 1e9  # means of pixels in any unit
MOST_WORDS = 10_000_000
MOST = 1_000_000  # tokens, types and widths
MOST_ROUNDS = 64  # of message passing


@checked
@dataclass(frozen=True, kw_only=True)
class PatchConfig:
    """Square images cut into square patches, each a token.

    uint8 images are scaled to [0, 1] and normalised with `mean` and `std`, so that a saved model contains its
    preprocessing; floating-point images are used as they are, or normalised too with `normalise_floats`.

    Args:
        image_size: pixels of a side.
        channels: 1 for grey images, 3 for colour.
        patch_size: pixels of a patch's side; divides `image_size`.
        mean: of the training pixels in [0, 1], one number per channel; 0.5 where left out.
        std: their standard deviation, one number per channel; 0.5 where left out.
        normalise_floats: `mean` and `std` are those of floating-point images, in their own unit.

    >>> PatchConfig(image_size=32, patch_size=4).max_tokens
    64
    """

    image_size: int = 32
    channels: int = 3
    patch_size: int = 4
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    normalise_floats: bool = False

    def __post_init__(self) -> None:
        for name in ("mean", "std"):  # JSON has lists only
            object.__setattr__(self, name, tuple(getattr(self, name)))
        fits = self.patch_size >= 1 and self.image_size % self.patch_size == 0
        check_fields(
            "embedding",
            [
                (
                    "image_size",
                    self.image_size,
                    1 <= self.image_size <= LARGEST,
                    f"1 to {LARGEST}",
                ),
                ("channels", self.channels, 1 <= self.channels <= LARGEST, f"1 to {LARGEST}"),
                ("patch_size", self.patch_size, fits, f"a divisor of image_size={self.image_size}"),
                (
                    "mean",
                    self.mean,
                    len(self.mean) in (0, self.channels) and all(abs(m) <= BRIGHTEST for m in self.mean),
                    f"{self.channels} numbers, or none",
                ),
                (
                    "std",
                    self.std,
                    len(self.std) == len(self.mean) and all(map(is_scale, self.std)),
                    "as many positive numbers as mean has",
                ),
            ],
        )

    @property
    def max_tokens(self) -> int:
        """Patches per image."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def grid(self) -> tuple[int, ...]:
        """Patches along each side."""
        return (self.image_size // self.patch_size,) * 2


@checked
@dataclass(frozen=True, kw_only=True)
class TokenConfig:
    """Token ids [B, T] with learned embeddings and positions.

    Args:
        vocabulary: number of token ids.
        max_tokens: the most tokens of a text.
        embedding_width: width of the token embeddings.
        pad: the id that fills up short rows.
        scale: standard deviation of initial embeddings; rare tokens keep most of theirs, as noise.
        drop: probability with which dropout removes a whole token; its position stays.
        linear_start: whether a classifier starts as logistic regression on counts of tokens.
        group: so many neighbouring tokens are averaged to one before the first layer, so that attention over
            long texts costs less.

    >>> TokenConfig(vocabulary=1000, max_tokens=64, group=4).grid
    (16,)
    """

    vocabulary: int
    max_tokens: int = 512
    embedding_width: int = 128
    pad: int = 0
    scale: float = 1.0
    drop: float = 0.0
    linear_start: bool = False
    group: int = 1

    def __post_init__(self) -> None:
        check_fields(
            "embedding",
            [
                ("vocabulary", self.vocabulary, 2 <= self.vocabulary <= MOST_WORDS, f"2 to {MOST_WORDS}"),
                ("max_tokens", self.max_tokens, 1 <= self.max_tokens <= MOST, f"1 to {MOST}"),
                ("embedding_width", self.embedding_width, 1 <= self.embedding_width <= MOST, f"1 to {MOST}"),
                ("pad", self.pad, 0 <= self.pad < self.vocabulary, f"0..{self.vocabulary - 1}"),
                scale_check("scale", self.scale),
                ("drop", self.drop, 0 <= self.drop < 1, "0 up to, but not, 1"),
                ("group", self.group, 1 <= self.group <= self.max_tokens, f"1 to {self.max_tokens}"),
            ],
        )

    @property
    def grid(self) -> tuple[int, ...]:
        """Groups of tokens along the text."""
        return (-(-self.max_tokens // self.group),)


@checked
@dataclass(frozen=True, kw_only=True)
class GraphConfig:
    """Graphs whose nodes and edges are all tokens, distinguished by node identifiers and type vectors.

    Args:
        node_types: number of node types.
        edge_types: number of edge types.
        identifier_width: width of the orthonormal node identifiers.
        max_tokens: the most nodes and edges of a graph.
        endpoint_types: whether the token of an edge contains the types of the nodes it joins.
        undirected: whether both directions of an edge are one token, the mean of both, which costs half.
        message_passing: rounds before the first layer in which every node adds up its edges, so that its
            token contains its neighbours; 0 for none.

    >>> GraphConfig(node_types=28, edge_types=4).max_tokens
    256
    """

    node_types: int
    edge_types: int
    identifier_width: int = 16
    max_tokens: int = 256
    endpoint_types: bool = False
    undirected: bool = False
    message_passing: int = 0

    def __post_init__(self) -> None:
        rounds = self.message_passing
        check_fields(
            "embedding",
            [
                *(
                    (name, getattr(self, name), 1 <= getattr(self, name) <= MOST, f"1 to {MOST}")
                    for name in ("node_types", "edge_types", "identifier_width", "max_tokens")
                ),
                ("message_passing", rounds, 0 <= rounds <= MOST_ROUNDS, f"0 to {MOST_ROUNDS}"),
            ],
        )

    @property
    def grid(self) -> tuple[int, ...]:
        """Nodes and edges have no positions."""
        return ()


@checked
@dataclass(frozen=True, kw_only=True)
class WordsConfig:
    """Words with learned embeddings and features of a frozen language model.

    Args:
        vocabulary: number of word ids.
        features: width of the language model's layers.
        layers: number of its layers, mixed with learned weights.
        max_tokens: the most words of a text.
        embedding_width: width of the learned embeddings.
        scale, drop: of the learned embeddings, as in `TokenConfig`; features are never dropped.
    """

    vocabulary: int
    features: int
    layers: int = 3
    max_tokens: int = 64
    embedding_width: int = 128
    scale: float = 1.0
    drop: float = 0.0

    def __post_init__(self) -> None:
        check_fields(
            "embedding",
            [
                ("vocabulary", self.vocabulary, 2 <= self.vocabulary <= MOST_WORDS, f"2 to {MOST_WORDS}"),
                scale_check("scale", self.scale),
                ("drop", self.drop, 0 <= self.drop < 1, "0 up to, but not, 1"),
                *(
                    (name, getattr(self, name), 1 <= getattr(self, name) <= MOST, f"1 to {MOST}")
                    for name in ("features", "layers", "max_tokens", "embedding_width")
                ),
            ],
        )

    @property
    def grid(self) -> tuple[int, ...]:
        """Tokens along the text."""
        return (self.max_tokens,)


@checked
@dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """Sequences of features [B, T, F] with padding, such as the hidden states of a frozen network.

    Args:
        width: F, the number of features of a token.
        max_tokens: the most tokens of a row.
        drop: probability with which dropout removes a whole token; its position stays.

    >>> FeatureConfig(width=384).grid
    (128,)
    """

    width: int
    max_tokens: int = 128
    drop: float = 0.0

    def __post_init__(self) -> None:
        check_fields(
            "embedding",
            [
                ("width", self.width, 1 <= self.width <= MOST, f"1 to {MOST}"),
                size_check("max_tokens", self.max_tokens, MOST),
                ("drop", self.drop, 0 <= self.drop < 1, "0 up to, but not, 1"),
            ],
        )

    @property
    def grid(self) -> tuple[int, ...]:
        """Tokens along the row."""
        return (self.max_tokens,)


EmbeddingConfig = PatchConfig | TokenConfig | GraphConfig | WordsConfig | FeatureConfig
