"""Which products may be fast, and which must not: the measurements behind docs/reference/precision.md.

On the CPU a TF32 product is made by rounding what goes into it to ten bits after the leading one.
"""

import pytest
import torch
from torch.overrides import TorchFunctionMode

from sgpa.attention import ChengBootsSgpa, OrthogonalSgpa, StandardSgpa
from sgpa.attention import decoupled as sgpa_module
from sgpa.attention import kernel as kernel_module
from sgpa.core.inputs import Batch
from sgpa.data.images.digits import load
from sgpa.gp.kernels import ArdRbfKernel
from sgpa.gp.linalg import JITTERS
from sgpa.gp.objective import Progress
from sgpa.methods import Sgpa
from sgpa.models import ModelConfig, PatchConfig, SgpaConfig


def tf32(x):
    """x rounded to 11 significant bits (Veltkamp's splitting)."""
    c = 8193.0 * x
    return c - (c - x)


class FastGradient(torch.autograd.Function):
    """Rounds the gradient that goes into the products of a backward pass."""

    @staticmethod
    def forward(ctx, y):
        del ctx
        return y.view_as(y)

    @staticmethod
    def backward(ctx, g):
        del ctx
        return tf32(g)


def rounded(x):
    return x + (tf32(x) - x).detach()


class FastLinear(TorchFunctionMode):
    """Linear maps, forward and backward, in TF32."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is not torch.nn.functional.linear:
            return func(*args, **(kwargs or {}))
        x, W, bias = (*args, None)[:3]
        y = FastGradient.apply(func(rounded(x), rounded(W)))
        return y if bias is None else y + bias


def test_rounding_keeps_the_bits_of_tf32():
    x = torch.tensor([1 + 2**-10, 1 + 2**-12, -(1 + 3 * 2**-11), 2.0**-20, 0.0])
    assert tf32(x).tolist() == [1 + 2**-10, 1.0, -(1 + 2**-9), 2.0**-20, 0.0]
    y = torch.randn(1000)
    assert ((tf32(y) - y).abs() <= 2**-11 * y.abs()).all()


# -- bfloat16 (also test_autocast.py: the KL and the global state)

LAYERS = {
    "orthogonal": lambda: OrthogonalSgpa(8, 2, ArdRbfKernel(2, 4), num_global=3),
    "cheng-boots": lambda: ChengBootsSgpa(8, 2, ArdRbfKernel(2, 4), num_global=3),
    "standard": lambda: StandardSgpa(8, 2, ArdRbfKernel(2, 4), max_tokens=5),
}


@pytest.mark.parametrize("name", LAYERS)
def test_bfloat16_does_not_reach_mean_variance_and_kl(name, monkeypatch):
    layer, x, seen = LAYERS[name](), torch.randn(2, 5, 8), []
    compute = layer.moments

    def moments(*arguments):
        seen.append(compute(*arguments))
        return seen[-1]

    monkeypatch.setattr(layer, "moments", moments)
    layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x)
    exact, low = seen
    for a, b in ((exact.mean, low.mean), (exact.variance, low.variance), (exact.kl.a, low.kl.a)):
        assert b.dtype == torch.float32
        assert torch.equal(a, b)


# -- TF32 in products with weights


@pytest.fixture(scope="module")
def trained():
    """A small SGPA model of digits after sixty steps, and batches of sixteen."""
    torch.manual_seed(0)
    method, data = Sgpa(attention=SgpaConfig(num_global=8)), load(320).train
    embedding = PatchConfig(image_size=8, channels=1, patch_size=2)
    model = method.build(ModelConfig(embedding=embedding, depth=2, heads=2, width=16, outputs=10))
    method.initialise(model, Batch(data.inputs, data.targets))
    batches = [Batch(x, y) for x, y in zip(data.inputs.split(16), data.targets.split(16), strict=True)]
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for batch in 3 * batches:
        optimiser.zero_grad()
        method.loss(model, batch, Progress(1.0, 320)).total.backward()
        optimiser.step()
    return method, model, batches


def losses_and_gradients(method, model, batches):
    """Loss [N] and gradient [N, P] of each batch, the random numbers always the same."""
    both = []
    parameters = [p for p in model.parameters() if p.requires_grad]
    for batch in batches:
        torch.manual_seed(1)
        loss = method.loss(model, batch, Progress(1.0, 320)).total
        gradients = torch.autograd.grad(loss, parameters)
        both.append((loss.detach(), torch.cat([g.flatten() for g in gradients])))
    losses, gradients = zip(*both, strict=True)
    return torch.stack(losses), torch.stack(gradients)


def test_tf32_in_linear_maps_changes_less_than_the_choice_of_a_batch(trained):
    """It changes loss and gradient by less than 1 % of their standard deviation over batches."""
    loss, g = losses_and_gradients(*trained)
    with FastLinear():
        fast_loss, fast_g = losses_and_gradients(*trained)
    assert not torch.equal(g, fast_g)
    assert (fast_loss - loss).square().mean().sqrt() < 0.01 * loss.std()
    noise = (g - g.mean(0)).square().sum(1).mean().sqrt()
    assert (fast_g - g).square().sum(1).mean().sqrt() < 0.01 * noise


# -- TF32 where nearly equal terms are subtracted


def fast_exponent(x, y):
    """`ArdRbfKernel.exponent` with its product in TF32."""
    half_x, half_y = (0.5 * z.square().sum(-1, keepdim=True) for z in (x, y))
    exponent = (tf32(x) @ tf32(y).mT - half_x - half_y.mT).clamp_max(0)
    return exponent if x is not y else exponent.masked_fill(torch.eye(x.shape[-2], dtype=torch.bool), 0.0)


FAST = {
    "linear": (kernel_module, "linear", lambda x, W: torch.nn.functional.linear(tf32(x), tf32(W))),
    "whitening": (sgpa_module, "whiten", lambda L_inv, K: tf32(L_inv) @ tf32(K)),
    "gram": (ArdRbfKernel, "exponent", staticmethod(fast_exponent)),
}


@torch.no_grad()
def changes(which):
    """Largest relative change of the variance and of the amortised KL of a layer with smooth kernels."""
    torch.manual_seed(0)
    layer = OrthogonalSgpa(16, 2, ArdRbfKernel(2, 8, lengthscale=4.0), num_global=32)
    x = torch.randn(8, 16, 16)
    layer.init_on_data(x.flatten(0, 1))
    state, exact = layer.global_state(), layer.double().moments(x.double(), None)
    layer.float()
    with pytest.MonkeyPatch.context() as patch:
        if which is not None:
            patch.setattr(*FAST[which])
        moments = layer.moments(x, None, state)
    pairs = ((moments.variance, exact.variance), (moments.kl.a, exact.kl.a))
    return [float(((a - b) / b).abs().max()) for a, b in pairs]


def test_float32_and_fast_projections_keep_variance_and_kl():
    assert max(changes(None)) < 1e-3
    assert max(changes("linear")) < 2e-3


def test_a_fast_whitening_product_destroys_variance_and_kl():
    assert min(changes("whitening")) > 0.1


def test_a_fast_gram_matrix_harms_variance_and_kl():
    for gram, linear in zip(changes("gram"), changes("linear"), strict=True):
        assert gram > 10 * linear


# -- float32 on the global side


@pytest.mark.parametrize("seed", range(5))
def test_a_factor_in_float32_is_inaccurate_where_float64_is_accurate(seed):
    """|L^-1 (K + ε) L^-T - I|, which is zero for the right factor, of 32 points of a smooth kernel."""
    torch.manual_seed(seed)
    points = torch.randn(1, 32, 2, dtype=torch.float64)
    with torch.no_grad():
        K = ArdRbfKernel(1, 2, lengthscale=2.0).double()(points, points)[0]
    K += JITTERS[0] * torch.eye(32)

    def off(dtype):
        L, info = torch.linalg.cholesky_ex(K.to(dtype))
        L_inv = torch.linalg.inv(L.double())
        return float("inf") if info else float((L_inv @ K @ L_inv.mT - torch.eye(32)).abs().max())

    assert off(torch.float64) < 1e-9
    assert off(torch.float32) > 0.01
