"""A linear start: a classifier of texts begins as logistic regression on counts of tokens.

With few texts the counts of words are hard to beat, and a Transformer with random weights finds them slowly.
The regression's directions become the first entries of the embeddings, the head reads them, and the branches
of the residual stream start near zero. Training then improves on that.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding_bag

from sgpa.data import Dataset
from sgpa.gp.likelihoods import CategoricalLikelihood
from sgpa.models.batches import in_batches
from sgpa.models.config import TokenConfig
from sgpa.models.embeddings.tokens import TokenEmbedding
from sgpa.models.layer import Mlp
from sgpa.models.modes import evaluating
from sgpa.models.transformer import Transformer

STRENGTHS = (30.0, 100.0, 300.0)  # C of the ridge penalty ‖W‖² / (2 C), for rows of norm 1 on average
BRANCH = 0.01  # attention and MLPs are multiplied by this
AT_ONCE = 256  # texts whose counts are a table
SIZE = 1.0  # standard deviation of the directions over tokens, in units of that of the other entries


@torch.no_grad()
def linear_start(model: Transformer, train: Dataset, held_out: Dataset) -> bool:
    """Start a model of texts as logistic regression, where its config asks for that and it is possible.

    Args:
        model: an untrained model.
        train: rows that the regression is fitted to.
        held_out: rows that choose its penalty.

    Returns:
        Whether the model was changed: it is a classifier with point weights.
    """
    config, embedding, head = model.config.embedding, model.embedding, model.head
    if not isinstance(config, TokenConfig) or not config.linear_start or not isinstance(train.inputs, Tensor):
        return False
    if not isinstance(model.likelihood, CategoricalLikelihood) or type(head) is not nn.Linear:
        return False
    if not isinstance(embedding, TokenEmbedding) or not isinstance(embedding.project, nn.Identity):
        return False
    counts = TokenCounts.of(train.inputs, config)
    logits, W = _best_regression(counts, train, held_out, model.config.outputs)  # [N, K], [V, K]
    U, S, _ = torch.linalg.svd(W - W.mean(1, keepdim=True), full_matrices=False)
    rank = min(
        model.config.outputs - 1, model.config.width // 2, int((S / S[0].clamp_min(1e-12)).gt(1e-6).sum())
    )
    if not rank:
        return False
    _set_directions(embedding, U[:, :rank] * counts.idf.unsqueeze(1), counts.share)
    _scale_down_branches(model)
    with evaluating(model):
        pooled = torch.cat(list(in_batches(model, lambda rows: model.features(rows)[0], train.inputs)))
    pooled = pooled[:, :rank]
    centre = pooled.mean(0)
    A = torch.linalg.lstsq(pooled - centre, logits - logits.mean(0)).solution  # [rank, K]
    head.weight.zero_()
    head.weight[:, :rank] = A.T
    head.bias.copy_(logits.mean(0) - centre @ A)
    return True


def _best_regression(
    counts: "TokenCounts", train: Dataset, held_out: Dataset, classes: int
) -> tuple[Tensor, Tensor]:
    """Logits of the training rows [N, K] and weights [V, K], with the penalty of the lowest held-out NLL."""
    linear, test = (counts.linear(_ids(data)) for data in (train, held_out))
    W, b = (torch.zeros(*size, classes, device=train.targets.device) for size in ((len(counts.idf),), ()))
    best = math.inf
    for C in STRENGTHS:
        V, c = logistic_regression(linear, train.targets, (W, b), C)
        nll = float(cross_entropy(test(V) + c, held_out.targets))
        if nll >= best:
            break  # a weaker penalty is worse still
        best, W, b = nll, V, c
    return linear(W) + b, W


def _ids(data: Dataset) -> Tensor:
    assert isinstance(data.inputs, Tensor)
    return data.inputs


@dataclass(frozen=True)
class TokenCounts:
    """Which tokens training texts have. A share is that of a token among the tokens of a text."""

    pad: int
    share: Tensor  # mean share of each token    [V]
    idf: Tensor  # inverse document frequency    [V]
    norm: float  # root mean square length of the centred shares times idf

    @staticmethod
    def of(ids: Tensor, config: TokenConfig) -> "TokenCounts":
        """Those of texts [N, T]."""
        N, zero = len(ids), torch.zeros(config.vocabulary, device=ids.device)
        rows = share = zero
        for shares in token_shares(ids, config):
            rows, share = rows + (shares > 0).sum(0), share + shares.sum(0) / N
        idf = ((1 + N) / (1 + rows)).log() + 1
        squares = sum(float((shares * idf).square().sum()) for shares in token_shares(ids, config)) / N
        norm = max(1e-12, squares - float((share * idf).square().sum())) ** 0.5
        return TokenCounts(config.pad, share, idf, norm)

    def linear(self, ids: Tensor) -> Callable[[Tensor], Tensor]:
        """W [V, K] -> X W [N, K], where X are the centred shares of texts [N, T], times idf, of norm 1.

        X has a column for every token of the vocabulary and is never formed.
        """
        real = ids != self.pad
        lengths = real.sum(1)
        flat, first = ids[real], lengths.cumsum(0) - lengths
        scale = (self.idf / self.norm).unsqueeze(1)  # [V, 1]

        def product(W: Tensor) -> Tensor:
            scaled = scale * W
            return embedding_bag(flat, scaled, first, mode="mean") - self.share @ scaled

        return product


def token_shares(ids: Tensor, config: TokenConfig) -> Iterator[Tensor]:
    """The share of every token but padding in each text, [n, V], for `AT_ONCE` texts at a time."""
    for part in ids.split(AT_ONCE):
        counts = torch.zeros(len(part), config.vocabulary, device=ids.device)
        counts.scatter_add_(1, part, torch.ones_like(part, dtype=counts.dtype))
        counts[:, config.pad] = 0
        yield counts / counts.sum(1, keepdim=True).clamp_min(1)


def logistic_regression(
    linear: Callable[[Tensor], Tensor], y: Tensor, start: tuple[Tensor, Tensor], C: float
) -> tuple[Tensor, Tensor]:
    """Weights W [F, K] and biases b [K] with the smallest Σ_n NLL + ‖W‖² / (2 C).

    Args:
        linear: W [F, K] -> X W [N, K] for rows X [N, F].
        y: classes of the rows, [N].
        start: W and b to begin with.
        C: strength of the regression.
    """
    W, b = (part.clone().requires_grad_() for part in start)
    optimiser = torch.optim.LBFGS([W, b], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        nll = cross_entropy(linear(W) + b, y, reduction="sum")
        total = (nll + W.square().sum() / (2 * C)) / len(y)
        total.backward()
        return total

    with torch.enable_grad():
        optimiser.step(loss)
    return W.detach(), b.detach()


def _set_directions(embedding: TokenEmbedding, directions: Tensor, frequency: Tensor) -> None:
    """Make directions [V, R] the first entries of the embeddings, with mean 0 over tokens as they occur."""
    centred = directions - frequency @ directions
    spread = (frequency @ centred.square()).sqrt()  # [R]
    rank = directions.shape[1]
    embedding.tokens.weight[:, :rank] = SIZE * embedding.config.scale * centred / spread
    embedding.tokens.weight[embedding.config.pad] = 0
    embedding.positions[:, :rank] = 0


def _scale_down_branches(model: Transformer) -> None:
    """Let the residual stream and the mean over tokens decide at first."""
    maps = [layer.attention.W_o for layer in model.gp_layers]
    maps += [
        mlp.down for mlp in (model.mlp, *(layer.mlp for layer in model.gp_layers)) if isinstance(mlp, Mlp)
    ]
    maps += [] if model.pool is None else [model.pool]
    for linear in maps:
        linear.weight.mul_(BRANCH)
