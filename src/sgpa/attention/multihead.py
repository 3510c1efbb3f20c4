"""`nn.MultiheadAttention`, with a sparse Gaussian process inside."""

from typing import Any

import torch
from torch import Tensor, nn

from sgpa.attention.base import check_inputs, checked_pass, mask_tokens
from sgpa.attention.decoupled import ChengBootsSgpa, DecoupledSgpa, OrthogonalSgpa
from sgpa.attention.masks import Mask, as_bool, read_mask
from sgpa.attention.moments import Moments
from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields, shown
from sgpa.core.limits import WIDEST
from sgpa.core.precision import full_precision, require_finite
from sgpa.core.types import Kl
from sgpa.core.user_code import errors_of
from sgpa.gp.kernels import ArdRbfKernel, Kernel

LEAST_SCALE = 1e-9  # of a variance: float32 has room below for kernels that shrink it further
SCALES = f"{LEAST_SCALE:g} to 1"
FORMS: dict[str, type[DecoupledSgpa]] = {"cheng-boots": ChengBootsSgpa, "orthogonal": OrthogonalSgpa}


class _NoPackedProjection:
    """Takes the place of `in_proj_weight`, which SGPA does not have.

    torch does not use its fused inference where a weight overrides torch functions, as this one does.
    """

    requires_grad = True

    @classmethod
    def __torch_function__(cls, *_: object) -> Any:
        return NotImplemented


class MultiheadSgpa(nn.Module):
    """Sparse-GP attention with the arguments and results of `nn.MultiheadAttention`.

    In training the output is one sample of the posterior, in evaluation its mean; `sgpa.sampling` and
    `sgpa.posterior_mean` change that for a block of code. The KL of the last forward pass is kept in `kl`;
    `sgpa.total_kl` adds up that of all layers of a module. Queries, keys and global keys share one
    projection, as they are points of one kernel's input space. The layer also serves as cross-attention.

    Args:
        embed_dim: E, the width of tokens.
        num_heads: H, which divides E.
        dropout: probability of dropout on the output; kernel weights themselves are not dropped.
        bias: of the output projection; the others have none.
        add_bias_kv: not supported.
        add_zero_attn: not supported.
        kdim: width of keys, E.
        vdim: width of values, E.
        batch_first: inputs are [B, T, E] instead of [T, B, E].
        device: of the parameters.
        dtype: of the parameters.
        num_global: M, global inducing points per head.
        kernel: for (num_heads, embed_dim / num_heads); by default `ArdRbfKernel.preset("mixing", ...)`.
        form: `cheng-boots` (eq:naivedsvgp) or `orthogonal` (eq:odsvgp).
        initial_variance_scale: share of the kernel's variance to start with, around the same mean.

    Example:
        >>> attention = MultiheadSgpa(8, 2, batch_first=True, num_global=3)
        >>> x = torch.randn(4, 5, 8)
        >>> value, weights = attention(x, x, x, is_causal=True)
        >>> value.shape, weights.shape
        (torch.Size([4, 5, 8]), torch.Size([4, 5, 5]))
    """

    # what nn.TransformerEncoder and nn.TransformerEncoderLayer read to decide on their fused inference
    in_proj_weight = _NoPackedProjection()
    in_proj_bias = None
    _qkv_same_embed_dim = False

    @checked
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        num_global: int = 32,
        kernel: Kernel | None = None,
        form: str = "cheng-boots",
        initial_variance_scale: float = 1.0,
    ) -> None:
        super().__init__()
        check_fields(
            type(self).__name__,
            [
                ("num_heads", num_heads, num_heads >= 1, "1 or more"),
                ("embed_dim", embed_dim, 1 <= embed_dim <= WIDEST, f"1 to {WIDEST}"),
                (
                    "embed_dim",
                    embed_dim,
                    num_heads < 1 or embed_dim % num_heads == 0,
                    f"a multiple of num_heads={num_heads}",
                ),
                ("dropout", dropout, 0 <= dropout < 1, "0 up to, but not, 1"),
                ("add_bias_kv", add_bias_kv, not add_bias_kv, "False: every key belongs to a token"),
                ("add_zero_attn", add_zero_attn, not add_zero_attn, "False: a zero value changes nothing"),
                ("kdim", kdim, kdim in (None, embed_dim), f"embed_dim={embed_dim}"),
                ("vdim", vdim, vdim in (None, embed_dim), f"embed_dim={embed_dim}"),
                ("form", form, form in FORMS, ", ".join(FORMS)),
                (
                    "initial_variance_scale",
                    initial_variance_scale,
                    LEAST_SCALE <= initial_variance_scale <= 1,
                    SCALES,
                ),
            ],
        )
        if kernel is None:
            kernel = ArdRbfKernel.preset("mixing", num_heads, max(1, embed_dim // num_heads))
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.attention = FORMS[form](embed_dim, num_heads, kernel, num_global=num_global, dropout=dropout)
        if not bias:
            self.attention.W_o = nn.Linear(embed_dim, embed_dim, bias=False)
        self.draws: bool | None = None  # whether the output is a sample; None: in training only
        self.kl: Kl | None = None  # of the last forward pass
        with errors_of(f"MultiheadSgpa: device={shown(device)}, dtype={shown(dtype)} cannot be used"):
            self.to(device=device, dtype=dtype)
        if initial_variance_scale != 1:
            self.attention.scale_initial_variance(initial_variance_scale)

    @property
    def out_proj(self) -> nn.Linear:
        """The output projection."""
        return self.attention.W_o

    @checked_pass
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from queries to keys; it is self-attention where all three are one tensor.

        Args:
            query: [B, T, E] with `batch_first`, else [T, B, E]; or [T, E].
            key: the same with U keys.
            value: like key.
            key_padding_mask: True (or -inf) at padded keys, [B, U] or [U]. Outputs of self-attention are
                zero there.
            need_weights: return the weights.
            attn_mask: True (or -inf) at keys that a token must not see, [T, U] or [B H, T, U].
            average_attn_weights: average the weights over heads.
            is_causal: tokens do not see later tokens; needs no `attn_mask`.

        Returns:
            The output, shaped like query, and the matrix that multiplies the values, [B, T, U] or
            [B, H, T, U] (not normalised: a kernel's weights do not add up to 1), or None.
        """
        same, batched = query is key is value, query.ndim != 2
        query, key, value = (self._batch_first(x, batched) for x in (query, key, value))
        padding = (
            None if key_padding_mask is None else as_bool(key_padding_mask, "key_padding_mask", self.name)
        )
        padding = padding if padding is None or batched else padding.unsqueeze(0)  # [B, U]
        self._check(query, key, value, padding)
        sizes = (len(query), self.num_heads, query.shape[1], key.shape[1])
        mask = read_mask(attn_mask, is_causal, sizes=sizes, like=query, name=self.name)
        key, value = mask_tokens(key, padding), mask_tokens(value, padding)
        query = key if same else query
        with full_precision(query):
            dtype = self.out_proj.weight.dtype  # autocast makes bfloat16 of the inputs
            points = [x.to(dtype) for x in ((query,) if same else (query, key, value))]
            moments = self._moments(points, padding, mask)
            F = moments.draw(()) if self.is_sampling else moments.mean  # [B, H, T, V]
        out = self.attention.merge_heads(F)  # [B, T, E]
        out = mask_tokens(out, padding) if same else out
        require_finite(lambda: self.attention.not_finite_message(query), out, moments.kl.g, moments.kl.a)
        self.attention.check_kl(moments.kl, key, value)
        self.kl = moments.kl
        weights = self._weights(query, key, padding, mask) if need_weights else None  # [B, H, T, U]
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), weights

    @property
    def is_sampling(self) -> bool:
        """Whether the next output is a sample of the posterior, not its mean."""
        return self.training if self.draws is None else self.draws

    @property
    def name(self) -> str:
        """What the layer is called in error messages."""
        return "MultiheadSgpa"

    def _moments(self, points: list[Tensor], padding: Tensor | None, mask: Mask | None) -> Moments:
        if len(points) == 1:
            return self.attention.moments(points[0], padding, None, mask)
        query, key, value = points
        return self.attention.cross_moments(query, key, value, mask)

    @torch.no_grad()
    def _weights(self, query: Tensor, key: Tensor, padding: Tensor | None, mask: Mask | None) -> Tensor:
        state = self.attention.global_state()
        with full_precision(query):
            dtype = self.out_proj.weight.dtype
            q = self.attention.points(query.to(dtype), self.attention.W_qk)  # [B, H, T, D]
            k_a = q if query is key else self.attention.points(key.to(dtype), self.attention.W_qk)
            A_q = state.L_inv.to(dtype) @ self.attention.kernel.between(state.k_g, q)  # [B, H, M, T]
            weights = self.attention.coefficients(q, k_a, A_q, state)  # [B, H, T, U]
        weights = weights if mask is None else mask.apply(weights)
        return weights if padding is None else weights.masked_fill(padding[:, None, None, :], 0.0)

    def _batch_first(self, x: Tensor, batched: bool) -> Tensor:
        if not batched:
            return x.unsqueeze(0)
        return x if self.batch_first or x.ndim != 3 else x.transpose(0, 1)

    def _check(self, query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None) -> None:
        for argument, x in (("query", query), ("key", key), ("value", value)):
            check_inputs(x, padding if x is key else None, self.embed_dim, f"{self.name}: {argument}")
        if not (len(query) == len(key) and key.shape == value.shape):
            shapes = ", ".join(str(list(x.shape)) for x in (query, key, value))
            raise InputError(
                f"{self.name}: query, key and value of shapes {shapes} "
                "(allowed: [B, T, E], [B, U, E], [B, U, E])"
            )

    def __getstate__(self) -> dict[str, Any]:  # a KL with a graph cannot be copied
        return super().__getstate__() | {"kl": None}

    def extra_repr(self) -> str:
        """Layout of the inputs, for printing."""
        return f"batch_first={self.batch_first}"
