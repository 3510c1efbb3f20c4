"""A direct implementation of the paper's equations in plain PyTorch, as a baseline for speed.

The T x T Gram matrix is formed. The Cholesky factor is expanded over sequences and used in a triangular
solve. The variance goes through a tensor with one entry per sequence, head, value dimension, token and global
key. Every layer computes its own global state. The results equal those of `sgpa.OrthogonalSgpa`
(`tests/benchmarks/test_timing.py`).
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from sgpa.core.inputs import Batch
from sgpa.experiments.timing import ROWS, Jobs
from sgpa.gp.linalg import JITTERS
from sgpa.gp.objective import Progress
from sgpa.methods import Sgpa
from sgpa.models import ModelConfig, SgpaConfig, Transformer

NAME = "SGPA, naive"
SAMPLES = 10


class Mlp(nn.Module):
    """x + MLP(LN(x))."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, drops: bool = True) -> Tensor:
        """[..., E] -> [..., E]; inducing points pass without dropout."""
        drop = self.dropout if drops else nn.Identity()
        return x + drop(self.down(drop(functional.gelu(self.up(self.norm(x))))))


class Attention(nn.Module):
    """Orthogonally decoupled SGPA (eq:odsvgp) with an ARD-RBF kernel."""

    def __init__(self, width: int, heads: int, num_global: int, dropout: float, cells: int) -> None:
        super().__init__()
        H, M, D = heads, num_global, width // heads
        self.heads = heads
        self.places = nn.Parameter(torch.zeros(cells, H, D)) if cells else None
        self.places_g = nn.Parameter(torch.zeros(H, M, D)) if cells else None
        self.W_v, self.W_o = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.W_qk = nn.Linear(width, width, bias=False)
        self.kernel = nn.ParameterDict({"log_variance": torch.zeros(H), "log_lengthscale": torch.zeros(H, D)})
        self.Z_g = nn.Parameter(torch.zeros(H, M, width))
        self.v_g = nn.Parameter(torch.zeros(H, M, D))
        self.raw_s_g = nn.Parameter(torch.zeros(H, D, M, M))
        self.dropout = nn.Dropout(dropout)

    def gram(self, x: Tensor, y: Tensor) -> Tensor:
        """σ² exp(-½ |x - y|²) of points that are divided by ℓ, [..., H, T, U]."""
        squares = x.square().sum(-1, keepdim=True) + y.square().sum(-1).unsqueeze(-2) - 2 * x @ y.mT
        variance = self.kernel["log_variance"].to(x.dtype).exp().view(-1, 1, 1)
        return variance * (-0.5 * squares.clamp_min(0)).exp()

    def forward(self, x: Tensor, G_Z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A draw of the output [B, T, E], KL_g [] and KL_a [B], of x and G(Z_g) [H, M, E]."""
        q = self.W_qk(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, H, T, D]
        v = self.W_v(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, H, T, V]
        k_g = G_Z @ self.W_qk.weight.unflatten(0, (self.heads, -1)).mT  # [H, M, D]
        scale = self.kernel["log_lengthscale"].exp().unsqueeze(-2)  # [H, 1, D]
        q, k_g = q / scale, k_g / scale
        if self.places is not None and self.places_g is not None:
            q, k_g = q + self.places.transpose(0, 1), k_g + self.places_g
        K_gg = self.gram(k_g.double(), k_g.double())  # [H, M, M]
        jitter = JITTERS[0] * K_gg.diagonal(dim1=-2, dim2=-1)
        L = torch.linalg.cholesky(K_gg + torch.diag_embed(jitter)).to(x.dtype)
        s = self.raw_s_g.tril(-1) + torch.diag_embed(self.raw_s_g.diagonal(dim1=-2, dim2=-1).exp())
        K_qq, K_qg = self.gram(q, q), self.gram(q, k_g)  # [B, H, T, T], [B, H, T, M]
        A = torch.linalg.solve_triangular(L.expand(len(x), *L.shape), K_qg.mT, upper=False)  # [B, H, M, T]
        mean = K_qq @ v - A.mT @ (A @ v) + K_qg @ self.v_g  # [B, H, T, V]
        unexplained = K_qq.diagonal(dim1=-2, dim2=-1) - A.square().sum(-2)  # [B, H, T]
        learned = (A.mT.unsqueeze(-3) @ s).square().sum(-1)  # Σ over [B, H, V, T, M]
        variance = unexplained.clamp_min(0).unsqueeze(-1) + learned.mT  # [B, H, T, V]
        f = mean + variance.clamp_min(1e-12).sqrt() * torch.randn_like(mean)
        kl_a = 0.5 * ((v * (K_qq @ v)).sum((-2, -1)) - (A @ v).square().sum((-2, -1))).sum(-1)
        log_det = 2 * s.diagonal(dim1=-2, dim2=-1).log().sum(-1)  # [H, V]
        kl_s = 0.5 * (s.square().sum((-2, -1)) - log_det - s.shape[-1]).sum()
        kl_g = 0.5 * (L.mT @ self.v_g).square().sum() + kl_s
        return self.dropout(self.W_o(f.transpose(1, 2).flatten(2))), kl_g, kl_a


class Layer(nn.Module):
    """The deep kernel G followed by attention, on a residual stream."""

    def __init__(self, config: ModelConfig, attention: SgpaConfig, mlp: Mlp | None) -> None:
        super().__init__()
        self.mlp, self.norm = mlp, nn.LayerNorm(config.width)
        cells = config.embedding.max_tokens if attention.kernel.locality else 0
        self.attention = Attention(config.width, config.heads, attention.num_global, config.dropout, cells)

    def forward(self, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, T, E] -> [B, T, E], KL_g, KL_a."""
        Z = self.attention.Z_g
        h = f if self.mlp is None else self.mlp(f)
        G_Z = self.norm(Z if self.mlp is None else self.mlp(Z, drops=False))
        value, kl_g, kl_a = self.attention(self.norm(h), G_Z)
        return h + value, kl_g, kl_a


class NaiveSgpa(nn.Module):
    """A classifier with the sizes, the embedding and the weights of an SGPA `Transformer`."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        c, attention = model.config, model.config.attention
        assert isinstance(attention, SgpaConfig)
        assert attention.kernel.name == "ard-rbf"
        self.embedding = copy.deepcopy(model.embedding)
        self.dropout = nn.Dropout(c.dropout)
        mlps = [None, *(Mlp(c.width, c.dropout) for _ in range(c.depth - 1))]
        self.layers = nn.ModuleList(Layer(c, attention, mlp) for mlp in mlps)
        self.mlp, self.norm = Mlp(c.width, c.dropout), nn.LayerNorm(c.width)
        self.pool = nn.Linear(c.width, 1) if c.pooling == "sequence" else None
        self.head = nn.Linear(c.width, c.outputs)
        reference = next(model.parameters())
        self.to(reference.device, reference.dtype).load_state_dict(model.state_dict())

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits [B, C] of one draw, KL_g and KL_a."""
        f = self.dropout(self.embedding(inputs)[0])  # [B, T, E]
        kl_g = kl_a = f.new_zeros(())
        for layer in self.layers:
            f, g, a = layer(f)
            kl_g, kl_a = kl_g + g, kl_a + a.mean()
        x = self.norm(self.mlp(f))
        pooled = x.mean(1) if self.pool is None else (self.pool(x).softmax(1) * x).sum(1)
        return self.head(pooled), kl_g, kl_a

    def loss(self, batch: Batch, method: Sgpa, progress: Progress) -> Tensor:
        """The negative ELBO."""
        logits, kl_g, kl_a = self(batch.inputs)
        weight_g, weight_a = method.kl.at(progress)
        return functional.cross_entropy(logits, batch.targets) + weight_g * kl_g + weight_a * kl_a

    @torch.no_grad()
    def predict(self, inputs: Tensor, samples: int = SAMPLES) -> Tensor:
        """Mean probabilities [N, C]: the samples are copies of the rows."""
        self.eval()
        copies = inputs.repeat(samples, *[1] * (inputs.ndim - 1))
        return self(copies)[0].softmax(-1).unflatten(0, (samples, -1)).mean(0)


@contextmanager
def naive_jobs(method: Sgpa, model: Transformer, batch: Batch, inputs: Tensor) -> Iterator[Jobs]:
    """A plain training step on `batch`, and a prediction for `inputs`."""
    method.initialise(model, batch)
    plain = NaiveSgpa(model)
    optimiser = torch.optim.Adam(plain.parameters(), lr=5e-4)

    def step() -> None:
        plain.train()
        optimiser.zero_grad()
        plain.loss(batch, method, Progress(0.5, ROWS)).backward()
        optimiser.step()

    yield Jobs(step, lambda: plain.predict(inputs))
