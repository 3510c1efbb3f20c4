"""A linear start: a classifier of texts begins as logistic regression on counts of tokens.

With few texts the counts of words are hard to beat, and a Transformer with random weights finds them slowly.
The regression's directions become the first entries of the embeddings, the head reads them, and the branches
of the residual stream start near zero. Training then improves on that.
"""

import torch
from torch import Tensor, nn

from sgpa.core.inputs import Inputs
from sgpa.gp.likelihoods import CategoricalLikelihood
from sgpa.models.batches import in_batches
from sgpa.models.config import TokenConfig
from sgpa.models.embeddings.tokens import TokenEmbedding
from sgpa.models.layer import Mlp
from sgpa.models.modes import evaluating
from sgpa.models.transformer import Transformer

STRENGTH = 30.0  # C of the ridge penalty ‖W‖² / (2 C), where the rows have norm 1 on average
BRANCH = 0.01  # attention and MLPs are multiplied by this
SIZE = 1.0  # standard deviation of the directions over tokens, in units of that of the other entries


@torch.no_grad()
def linear_start(model: Transformer, inputs: Inputs, targets: Tensor) -> bool:
    """Start a model of texts as logistic regression, where its config asks for that and it is possible.

    Args:
        model: an untrained model.
        inputs, targets: training rows.

    Returns:
        Whether the model was changed: it is a classifier with point weights.
    """
    config, embedding, head = model.config.embedding, model.embedding, model.head
    if not isinstance(config, TokenConfig) or not config.linear_start or not isinstance(inputs, Tensor):
        return False
    if not isinstance(model.likelihood, CategoricalLikelihood) or type(head) is not nn.Linear:
        return False
    if not isinstance(embedding, TokenEmbedding) or not isinstance(embedding.project, nn.Identity):
        return False
    share, idf = token_shares(inputs, config)  # [N, V], [V]
    X = (share - share.mean(0)) * idf
    unit = X.square().sum(1).mean().sqrt()
    W, b = logistic_regression(X / unit, targets, model.config.outputs)  # [V, K], [K]
    logits = X / unit @ W + b  # [N, K]
    U, S, _ = torch.linalg.svd(W - W.mean(1, keepdim=True), full_matrices=False)
    rank = min(
        model.config.outputs - 1, model.config.width // 2, int((S / S[0].clamp_min(1e-12)).gt(1e-6).sum())
    )
    if not rank:
        return False
    _set_directions(embedding, U[:, :rank] * idf.unsqueeze(1), share.mean(0))
    _calm_branches(model)
    with evaluating(model):
        pooled = torch.cat(list(in_batches(model, lambda rows: model.features(rows)[0], inputs)))[:, :rank]
    centre = pooled.mean(0)
    A = torch.linalg.lstsq(pooled - centre, logits - logits.mean(0)).solution  # [rank, K]
    head.weight.zero_()
    head.weight[:, :rank] = A.T
    head.bias.copy_(logits.mean(0) - centre @ A)
    return True


def token_shares(ids: Tensor, config: TokenConfig) -> tuple[Tensor, Tensor]:
    """The share of every token in each row, [N, V], and its inverse document frequency, [V]."""
    counts = torch.zeros(len(ids), config.vocabulary, device=ids.device)
    counts.scatter_add_(1, ids, torch.ones_like(ids, dtype=counts.dtype))
    counts[:, config.pad] = 0
    idf = ((1 + len(ids)) / (1 + (counts > 0).sum(0))).log() + 1
    return counts / counts.sum(1, keepdim=True).clamp_min(1), idf


def logistic_regression(X: Tensor, y: Tensor, classes: int, C: float = STRENGTH) -> tuple[Tensor, Tensor]:
    """Weights [F, K] and biases [K] with the smallest Σ_n NLL + ‖W‖² / (2 C), for X [N, F]."""
    W = X.new_zeros(X.shape[1], classes).requires_grad_()
    b = X.new_zeros(classes).requires_grad_()
    optimiser = torch.optim.LBFGS([W, b], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        nll = nn.functional.cross_entropy(X @ W + b, y, reduction="sum")
        total = (nll + W.square().sum() / (2 * C)) / len(X)
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


def _calm_branches(model: Transformer) -> None:
    """Let the residual stream and the mean over tokens decide at first."""
    maps = [layer.attention.W_o for layer in model.gp_layers]
    maps += [
        mlp.down for mlp in (model.mlp, *(layer.mlp for layer in model.gp_layers)) if isinstance(mlp, Mlp)
    ]
    maps += [] if model.pool is None else [model.pool]
    for linear in maps:
        linear.weight.mul_(BRANCH)
