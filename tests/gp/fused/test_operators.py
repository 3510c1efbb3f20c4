"""Fused operators against float64: their error is at most twice that of the plain version.

On a GPU the learned variance and all gradients take single TF32 products, so the plain version they are held
against takes them too: its factors are cut to TF32 as a GPU's matrix units cut them (libraries take TF32 for
some shapes only). Mean, KL and A are held against plain float32. On the CPU, where Triton's interpreter runs
the kernels, all of it is float32.
"""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from sgpa.attention.global_state import lower
from sgpa.gp.fused import TRITON, fused_attend, fused_inducing, fused_mean, fused_sample, fused_variance, pack
from sgpa.gp.kernels import ArdRbfKernel, ExponentialKernel
from sgpa.gp.posteriors import (
    marginal_variance,
    orthogonal_kl_a,
    orthogonal_kl_g,
    orthogonal_mean,
    sample_marginals,
)

pytestmark = [pytest.mark.gpu_too, pytest.mark.skipif(not TRITON, reason="Triton is not installed")]
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
KERNELS = {"rbf": ArdRbfKernel, "exponential": ExponentialKernel}
ROUNDING = 5e-7  # of float32, relative to `scales`: errors below it count as none
SUMMED = 2**-12 if GPU else 2e-6  # the same for what is summed over many terms, on a GPU in TF32
PHASES = (Phase.explicit, Phase.generate) if GPU else tuple(Phase)  # every shape is compiled on a GPU
OUTPUTS = ("mean", "kl", "A", "variance", "sample", "attended")
EXACT = ("mean", "kl", "A", "attended")  # what is in full float32 on a GPU too


def normal(seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)


def problem(B, H, T, M, D, rbf, seed=0):
    """Points and values as a projection makes them, heads last; a well-conditioned global side."""
    draw, scale = normal(seed), 0.5 if rbf else 0.3
    points = {
        "x": scale * draw(B, T, H, D),
        "v": draw(B, T, H, D),
        "k_g": scale * draw(H, M, D),
        "log_variance": 0.1 * draw(H),
    }
    K = kernel(rbf, points["log_variance"], D).between(points["k_g"], points["k_g"])
    L = torch.linalg.cholesky(K + 0.1 * torch.eye(M))
    rest = {"L_inv": torch.linalg.inv(L), "w_g": draw(H, M, D), "s": (0.3 * draw(H, D, M, M)).tril()}
    return {name: x.float().to(DEVICE) for name, x in (points | rest).items()}


def kernel(rbf, log_variance, D):
    made = KERNELS["rbf" if rbf else "exponential"](len(log_variance), D)
    del made.log_variance
    made.log_variance = log_variance
    return made


def covariance(s):
    return torch.einsum("hvmk,hvnk->hmnv", s, s)


def plain(x, v, k_g, log_variance, L_inv, w_g, s, rbf):
    x, v, k = x.transpose(1, 2), v.transpose(1, 2), kernel(rbf, log_variance, x.shape[-1])
    K, A = k.between(x, x), L_inv @ k.between(k_g, x)
    kqq = k.at(x)
    Kv, Av = K @ v, A @ v
    mean = orthogonal_mean(Kv, A.mT @ w_g, A, Av)  # K_qg v_g = A' w_g
    return {
        "mean": mean,
        "kl": orthogonal_kl_a(Kv, v, Av),
        "A": A,
        "variance": marginal_variance(kqq, A, s),
        "sample": sample_marginals(mean, marginal_variance(kqq, A, s), waves(mean)),
        "attended": Kv,
    }


def fused(x, v, k_g, log_variance, L_inv, w_g, s, rbf):
    xv = torch.stack([x, v], 2)
    mean, kl, A, left = fused_mean(xv, pack(L_inv, k_g, w_g, log_variance), rbf)
    variance, attended = fused_variance(left, A, covariance(s)), fused_attend(xv, log_variance, rbf)
    sample = fused_sample(left, A, covariance(s), mean, waves(mean))
    outputs = (mean, kl, A, variance, sample, attended)
    return dict(zip(OUTPUTS, outputs, strict=True))


def waves(like):
    """Numbers for the noise of a sample, the same in every precision."""
    numbers = torch.arange(like.numel(), dtype=torch.float64).mul(37).sin().mul(1.5)
    return numbers.view(like.shape).to(like)


def passes(function, inputs, rbf, of):
    """The outputs named, and the gradients of all inputs for a random gradient of these outputs."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in inputs.items()}
    out = {name: y for name, y in function(**leaves, rbf=rbf).items() if name in of}
    draw = normal(7)
    given = [draw(*y.shape).to(y) for y in out.values()]
    gradients = torch.autograd.grad(list(out.values()), list(leaves.values()), given, materialize_grads=True)
    return {name: y.detach() for name, y in out.items()} | {
        f"d{name}": g for name, g in zip(leaves, gradients, strict=True)
    }


def scales(inputs, exact, rbf):
    """What an error is relative to: the largest entry; where terms cancel or add up, what these come to.

    The KL is ½ (v' K v - |A v|²), the mean K v - A'A v + A'w_g; d log σ_f² is a sum over all outputs; the
    gradients of what all tokens share are sums over N = B T terms of either sign and size 1: √N. An error of
    the exponential kernel's exponent x·y is relative to |x|², and exp makes it one of K relative to K.
    """
    B, T = inputs["x"].shape[:2]
    least = {f"d{name}": (B * T) ** 0.5 for name in ("k_g", "L_inv", "w_g", "s")}
    largest = {name: max(least.get(name, 1.0), float(y.abs().max())) for name, y in exact.items()}
    v, out = inputs["v"].transpose(1, 2), plain(**inputs, rbf=rbf)
    terms = (v * out["attended"]).sum((-2, -1)).abs()
    summed = sum(float(exact[name].abs().sum()) for name in OUTPUTS if name in exact) + float(terms.sum())
    x, A = inputs["x"].transpose(1, 2), out["A"].abs()
    K = kernel(rbf, inputs["log_variance"], x.shape[-1]).between(x, x)
    added = K @ v.abs() + A.mT @ (A @ v.abs() + inputs["w_g"].abs())
    exponent = 1.0 if rbf else max(1.0, float(x.square().sum(-1).max()))
    return largest | {
        "kl": exponent * max(1.0, float(terms.max())),
        "mean": exponent * max(1.0, float(added.max())),
        "A": exponent * largest.get("A", 1.0),
        "attended": exponent * largest.get("attended", 1.0),
        "dlog_variance": max(1.0, summed),
    }


def errors(actual, exact, scale):
    return {name: float((actual[name] - y).abs().max()) / scale[name] for name, y in exact.items()}


class Tf32(TorchDispatchMode):
    """Products whose factors lose the 13 bits of a float32 number that TF32 has no room for."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default):
            args = [(x.contiguous().view(torch.int32) & -(2**13)).view(torch.float32) for x in args]
        return function(*args, **(kwargs or {}))


def check(inputs, rbf, of=("mean", "kl", "A", "variance", "sample")):
    double = {name: x.double() for name, x in inputs.items()}
    exact = passes(plain, double, rbf, of)
    scale = scales(double, exact, rbf)
    ours = errors(passes(fused, inputs, rbf, of), exact, scale)
    full = errors(passes(plain, inputs, rbf, of), exact, scale)
    with Tf32() if GPU else nullcontext():
        fast = errors(passes(plain, inputs, rbf, of), exact, scale) if GPU else full
    for name, error in ours.items():
        bound = 2 * full[name] + ROUNDING if name in EXACT else 2 * fast[name] + SUMMED
        assert error <= bound, name


kernels = pytest.mark.parametrize("name", KERNELS)
slow = pytest.mark.slow
EDGES = [(1, 1, 1, 1, 1), (2, 1, 7, 17, 3), (1, 2, 33, 3, 18), (1, 1, 64, 16, 16)]  # B, H, T, M, D
widths = st.integers(1, 20)
sizes = st.tuples(st.integers(1, 2), st.integers(1, 2), st.sampled_from([1, 7, 33, 64, 70]), widths, widths)


@kernels
@pytest.mark.parametrize("size", EDGES)
def test_moments_are_as_accurate_as_the_plain_ones(name, size):
    check(problem(*size, name == "rbf"), name == "rbf")


@kernels
@pytest.mark.parametrize("size", EDGES)
def test_kernel_attention_is_as_accurate_as_the_plain_one(name, size):
    check(problem(*size, name == "rbf"), name == "rbf", of=("attended",))


@slow
@settings(max_examples=12 if GPU else 6, deadline=None, derandomize=True, phases=PHASES)
@given(sizes, st.booleans(), st.integers(0, 9))
def test_any_sizes_are_as_accurate_as_the_plain_ones(size, rbf, seed):
    check(problem(*size, rbf, seed), rbf, of=OUTPUTS)


@kernels
@pytest.mark.parametrize("of", ["mean", "kl", "A", "variance", "sample"])
def test_each_moment_alone_is_as_accurate_as_the_plain_one(name, of):
    check(problem(1, 2, 70, 5, 7, name == "rbf"), name == "rbf", of=(of,))


@kernels
@pytest.mark.parametrize(
    "size", [(1, 1, 130, 33, 17), (1, 2, 64, 32, 32), pytest.param((1, 1, 16, 64, 64), marks=slow)]
)
def test_sequences_of_three_tiles_and_the_widest_heads(name, size):
    check(problem(*size, name == "rbf"), name == "rbf", of=OUTPUTS)


@kernels
def test_views_of_one_tensor_and_expanded_gradients_are_read_correctly(name):
    """Views into one product, as `projected` makes them; the gradient of a sum is an expanded number."""
    B, T, H, D, rbf = 2, 37, 2, 5, name == "rbf"
    given = problem(B, H, T, 4, D, rbf)
    both = torch.stack([given.pop("x"), given.pop("v")], 2)  # [B, T, 2, H, D]
    results = []
    for function in (plain, fused):
        leaf = both.clone().requires_grad_()
        x, v = leaf.unbind(2)
        out = function(x, v, **given, rbf=rbf)
        (gradient,) = torch.autograd.grad(sum(y.sum() for y in out.values()), leaf)
        results.append([*out.values(), gradient])
    for a, b in zip(*results, strict=True):
        assert float((a - b).detach().abs().max()) <= (2**-9 if GPU else 2e-6) * float(a.detach().abs().max())


@kernels
def test_zero_value_keys_do_not_contribute(name):
    rbf, T, more = name == "rbf", 61, 9  # the padding reaches into a second tile
    given = problem(2, 2, T + more, 5, 7, rbf)
    given["v"][:, T:] = 0
    other = {n: x.clone() for n, x in given.items()}
    other["x"][:, T:] = 3.0  # any contents
    short = given | {"x": given["x"][:, :T], "v": given["v"][:, :T]}
    results = [fused(**inputs, rbf=rbf) for inputs in (given, other, short)]
    for out in results[:2]:
        for moment in ("mean", "variance", "attended"):
            assert torch.allclose(out[moment][:, :, :T], results[2][moment], atol=1e-5, rtol=1e-5)
        assert torch.allclose(out["kl"], results[2]["kl"], atol=1e-5, rtol=1e-5)


def test_equal_points_of_different_tiles_have_distance_zero():
    given = problem(1, 1, 70, 4, 6, True)
    given["x"][:, 66] = given["x"][:, 2]
    check(given, True, of=OUTPUTS)


def test_a_step_can_be_traced():
    given = list(problem(1, 2, 9, 4, 5, True).values())

    def step(*inputs):
        leaves = [x.detach().requires_grad_() for x in inputs]
        loss = sum(y.square().sum() for y in fused(*leaves, rbf=True).values())
        return loss.detach(), *torch.autograd.grad(loss, leaves)

    traced = make_fx(step)(*given)
    called = {str(node.target) for node in traced.graph.nodes}
    for name in ("attend", "mean", "variance", "sample"):
        assert {f"sgpa.{name}.default", f"sgpa.{name}_gradient.default"} <= called
    other = list(problem(1, 2, 9, 4, 5, True, seed=1).values())  # other numbers than those traced
    for a, b in zip(traced(*other), step(*other), strict=True):
        assert torch.allclose(a, b)


def test_operators_pass_torchs_operator_checks():
    given = problem(2, 2, 9, 4, 5, True)
    xv = torch.stack([given["x"], given["v"]], 2).requires_grad_()
    lv, S = given["log_variance"], covariance(given["s"])
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    left, A = torch.ones(2, 2, 9, device=DEVICE), torch.randn(2, 2, 4, 9, device=DEVICE, requires_grad=True)
    mean = torch.ops.sgpa.mean.default
    torch.library.opcheck(torch.ops.sgpa.attend.default, (xv, lv, True), test_utils=tests)
    torch.library.opcheck(torch.ops.sgpa.variance.default, (left, A, S), test_utils=tests)
    state = pack(given["L_inv"], given["k_g"], given["w_g"], lv)
    torch.library.opcheck(mean, (xv, state, True), test_utils=tests)
    drawn = (left, A, S, torch.randn(2, 2, 9, 5, device=DEVICE), torch.randn(2, 2, 9, 5, device=DEVICE))
    torch.library.opcheck(torch.ops.sgpa.sample.default, drawn, test_utils=tests)
    inducing = torch.ops.sgpa.inducing.default
    torch.library.opcheck(inducing, (*parameters((2,), 3, 2), 1e-6, True), test_utils=tests)


def test_second_derivatives_raise_an_error():
    given = problem(1, 1, 4, 3, 2, True)
    for function in (
        lambda x, **rest: fused(x, **rest)["mean"],
        lambda x, **rest: fused(x, **rest)["variance"],
    ):
        x = given["x"].clone().requires_grad_()
        out = function(x, **{n: y for n, y in given.items() if n != "x"}, rbf=True)
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        with pytest.raises((NotImplementedError, RuntimeError), match=r"autograd|second derivative"):
            first.sum().backward()


# -- what depends on parameters alone


def parameters(heads, M, D, seed=0):
    """Keys, log σ_f², raw factors and v_g, as float32 leaves."""
    draw = normal(seed)
    given = (draw(*heads, M, D), 0.3 * draw(*heads), 0.5 * draw(*heads, D, M, M), draw(*heads, M, D))
    return [x.float().to(DEVICE).requires_grad_() for x in given]


def plain_inducing(k_g, log_variance, raw, v_g, rbf):
    """The state, S and kl in float64 by torch."""
    k, lv, raw, v = (x.double() for x in (k_g, log_variance, raw, v_g))
    K = (KERNELS["rbf" if rbf else "exponential"].exponent(k, k) + lv[..., None, None]).exp()
    L = torch.linalg.cholesky(K + 1e-6 * torch.diag_embed(K.diagonal(dim1=-2, dim2=-1)))
    s, w = lower(raw), L.mT @ v
    eye = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    L_inv = torch.linalg.solve_triangular(L, eye.expand_as(L), upper=False)
    return pack(L_inv, k, w, lv), (s @ s.mT).movedim(-3, -1), orthogonal_kl_g(w, s)


def relative(actual, exact):
    actual, exact = actual.detach().double(), exact.detach()
    return float((actual - exact).abs().max()) / max(1e-3, float(exact.abs().max()))


@kernels
@pytest.mark.parametrize(
    ("heads", "M", "D"), [((), 1, 1), ((3,), 5, 9), ((2, 2), 17, 3), pytest.param((), 37, 20, marks=slow)]
)
def test_states_and_their_gradients_are_those_of_float64(name, heads, M, D):
    rbf = name == "rbf"
    leaves = parameters(heads, M, D)
    with torch.no_grad():
        leaves[0].mul_(1.0 if rbf else 0.3)
    fused, exact = fused_inducing(*leaves, 1e-6, rbf), plain_inducing(*leaves, rbf)
    for a, b in zip(fused, exact, strict=True):
        assert a.shape == b.shape
        assert relative(a, b) < 2e-7
    weights = [normal(5)(*b.shape).float().to(DEVICE) for b in exact]
    weights[0][..., M + 2 * D + 1 :] = 0  # what fills a row up has no gradient
    ours, theirs = (
        torch.autograd.grad(sum((y * w).sum() for y, w in zip(each, weights, strict=True)), leaves)
        for each in (fused, exact)
    )
    for a, b in zip(ours, theirs, strict=True):
        assert relative(a, b.double()) < 2e-6


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter's root
def test_a_head_that_is_not_finite_does_not_change_others():
    k_g, log_variance, raw, v_g = parameters((2,), 3, 2)
    with torch.no_grad():
        log_variance[1] = float("nan")
    state, S, kl = fused_inducing(k_g, log_variance, raw, v_g, 1e-6, True)
    assert state[0].isfinite().all()
    assert S.isfinite().all()
    assert state[1, :, :3].isnan().any()
    assert kl[1].isnan()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_indefinite_matrix_gives_nan():
    state, _, kl = fused_inducing(*parameters((), 3, 2), -1.5, True)  # a negative diagonal
    assert state[:, :3].isnan().any()
    assert kl.isnan()
