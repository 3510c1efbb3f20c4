"""Fused operators against float64: their error is at most twice that of the plain version.

On a GPU the learned variance and all gradients take single TF32 products, so the plain version they are held
against takes them too; mean, KL and A are held against plain float32. On the CPU, where Triton's interpreter
runs the kernels, all of it is float32.
"""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from sgpa.fused import TRITON, WIDTH, factors, fused_attend, fused_factor, fused_mean, fused_variance, fuses
from sgpa.kernels import ArdRbfKernel, ExponentialKernel
from sgpa.linalg import matrix_units
from sgpa.posteriors import marginal_variance, orthogonal_kl_a, orthogonal_posterior, plain_variance

pytestmark = pytest.mark.skipif(not TRITON, reason="Triton is not installed")
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
KERNELS = {"rbf": ArdRbfKernel, "exponential": ExponentialKernel}
ROUNDING = 5e-7  # of float32, relative to `scales`: errors below it count as none
SUMMED = 2**-10 if GPU else 2e-6  # the same for what is summed over many terms, on a GPU in TF32
OUTPUTS = ("mean", "kl", "A", "variance", "attended")
EXACT = ("mean", "kl", "A", "attended")  # what is in full float32 on a GPU too


def normal(seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


def problem(B, H, T, M, D, V, rbf, seed=0):
    """Points and values as a projection makes them, heads last; a well-conditioned global side."""
    draw, scale = normal(seed), 0.5 if rbf else 0.3
    points = {
        "x": scale * draw(B, T, H, D),
        "v": draw(B, T, H, V),
        "k_g": scale * draw(H, M, D),
        "log_variance": 0.1 * draw(H),
    }
    K = kernel(rbf, points["log_variance"], D).between(points["k_g"], points["k_g"])
    L = torch.linalg.cholesky(K + 0.1 * torch.eye(M))
    rest = {"L_inv": torch.linalg.inv(L), "w_g": draw(H, M, V), "s": (0.3 * draw(H, V, M, M)).tril()}
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
    mean = orthogonal_posterior(kqq, K, A.mT, A, A, v, w_g, s).mean  # K_qg v_g = A' w_g
    return {
        "mean": mean,
        "kl": orthogonal_kl_a(K @ v, v, A),
        "A": A,
        "variance": plain_variance(kqq, A, s),
        "attended": K @ v,
    }


def fused(x, v, k_g, log_variance, L_inv, w_g, s, rbf):
    x, v = x.transpose(1, 2), v.transpose(1, 2)
    mean, kl, A = fused_mean(x, v, k_g, L_inv, w_g, log_variance, rbf)
    variance = fused_variance(kernel(rbf, log_variance, x.shape[-1]).at(x), A, covariance(s))
    attended = fused_attend(x, v, log_variance, rbf)
    return {"mean": mean, "kl": kl, "A": A, "variance": variance, "attended": attended}


def passes(function, inputs, rbf, of):
    """The outputs named, and the gradients of all inputs for a random gradient of these outputs."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in inputs.items()}
    out = {name: y for name, y in function(**leaves, rbf=rbf).items() if name in of}
    draw = normal(7)
    given = [draw(*y.shape).to(y) for y in out.values()]
    found = torch.autograd.grad(list(out.values()), list(leaves.values()), given, materialize_grads=True)
    return {name: y.detach() for name, y in out.items()} | {
        f"d{name}": g for name, g in zip(leaves, found, strict=True)
    }


def scales(inputs, exact, rbf):
    """What an error is relative to: the largest entry; where terms cancel or add up, what these come to.

    The KL is ½ (v' K v - |P|²); d log σ_f² is a sum over all outputs; the gradients of what all tokens share
    are sums over N = B T terms of either sign and size 1, which come to √N.
    """
    B, T = inputs["x"].shape[:2]
    least = {f"d{name}": (B * T) ** 0.5 for name in ("k_g", "L_inv", "w_g", "s")}
    largest = {name: max(least.get(name, 1.0), float(y.abs().max())) for name, y in exact.items()}
    v = inputs["v"].transpose(1, 2)
    terms = (v * plain(**inputs, rbf=rbf)["attended"]).sum((-2, -1)).abs()
    summed = sum(float(exact[name].abs().sum()) for name in OUTPUTS if name in exact) + float(terms.sum())
    return largest | {"kl": max(1.0, float(terms.max())), "dlog_variance": max(1.0, summed)}


def errors(found, exact, scale):
    return {name: float((found[name] - y).abs().max()) / scale[name] for name, y in exact.items()}


def check(inputs, rbf, of=("mean", "kl", "A", "variance")):
    double = {name: x.double() for name, x in inputs.items()}
    exact = passes(plain, double, rbf, of)
    scale = scales(double, exact, rbf)
    ours = errors(passes(fused, inputs, rbf, of), exact, scale)
    full = errors(passes(plain, inputs, rbf, of), exact, scale)
    with matrix_units() if GPU else nullcontext():
        fast = errors(passes(plain, inputs, rbf, of), exact, scale) if GPU else full
    for name, error in ours.items():
        bound = 2 * full[name] + ROUNDING if name in EXACT else 2 * fast[name] + SUMMED
        assert error <= bound, name


widths = st.integers(1, 20)
sizes = st.tuples(
    st.integers(1, 2), st.integers(1, 2), st.sampled_from([1, 7, 33, 64, 70]), widths, widths, widths
)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(sizes, st.booleans(), st.integers(0, 9))
def test_a_layers_moments_are_as_good_as_the_plain_ones(size, rbf, seed):
    check(problem(*size, rbf, seed), rbf)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(sizes, st.booleans(), st.integers(0, 9))
def test_kernel_attention_is_as_good_as_the_plain_one(size, rbf, seed):
    check(problem(*size, rbf, seed), rbf, of=("attended",))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("of", ["mean", "kl", "A", "variance"])
def test_each_moment_by_itself(name, of):
    check(problem(2, 2, 70, 5, 7, 3, name == "rbf"), name == "rbf", of=(of,))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("size", [(1, 1, 130, 33, 17, 9), (2, 2, 64, 32, 32, 32), (1, 2, 16, 64, 64, 64)])
def test_three_tiles_and_the_widest_ones(name, size):
    check(problem(*size, name == "rbf"), name == "rbf", of=OUTPUTS)


@pytest.mark.parametrize("name", KERNELS)
def test_points_and_values_side_by_side_and_a_gradient_of_one_number(name):
    """Views into one product, as `projected` makes them; the gradient of a sum is an expanded number."""
    B, T, H, D, rbf = 2, 37, 2, 5, name == "rbf"
    given = problem(B, H, T, 4, D, D, rbf)
    both = torch.stack([given.pop("x"), given.pop("v")], 2)  # [B, T, 2, H, D]
    found = []
    for function in (plain, fused):
        leaf = both.clone().requires_grad_()
        x, v = leaf.unbind(2)
        out = function(x, v, **given, rbf=rbf)
        (gradient,) = torch.autograd.grad(sum(y.sum() for y in out.values()), leaf)
        found.append([*out.values(), gradient])
    for a, b in zip(*found, strict=True):
        assert float((a - b).detach().abs().max()) <= (2e-6 + (2 * SUMMED if GPU else 0)) * float(
            a.detach().abs().max()
        )


@pytest.mark.parametrize("name", KERNELS)
def test_a_key_without_a_value_is_not_there(name):
    rbf, T, more = name == "rbf", 61, 9  # over the edge of a tile
    given = problem(2, 2, T + more, 5, 7, 6, rbf)
    given["v"][:, T:] = 0
    other = {n: x.clone() for n, x in given.items()}
    other["x"][:, T:] = 3.0  # whatever stands there
    short = given | {"x": given["x"][:, :T], "v": given["v"][:, :T]}
    results = [fused(**inputs, rbf=rbf) for inputs in (given, other, short)]
    for out in results[:2]:
        for moment in ("mean", "variance", "attended"):
            assert torch.allclose(out[moment][:, :, :T], results[2][moment], atol=1e-5, rtol=1e-5)
        assert torch.allclose(out["kl"], results[2]["kl"], atol=1e-5, rtol=1e-5)


def test_a_point_in_the_same_place_as_another_has_no_distance():
    given = problem(1, 1, 70, 4, 6, 3, True)
    given["x"][:, 66] = given["x"][:, 2]
    check(given, True, of=OUTPUTS)


@pytest.mark.parametrize("name", KERNELS)
def test_models_side_by_side_are_models_one_by_one(name):
    rbf = name == "rbf"
    each = [problem(2, 2, 9, 4, 5, 3, rbf, seed) for seed in range(3)]
    leaves = [torch.stack(x).requires_grad_() for x in zip(*(p.values() for p in each), strict=True)]
    names = list(each[0])

    def outputs(*inputs):
        return tuple(fused(**dict(zip(names, inputs, strict=True)), rbf=rbf).values())

    together = torch.vmap(outputs)(*leaves)
    gradients = torch.autograd.grad(sum(y.square().sum() for y in together), leaves)
    for e in range(3):
        own = [x[e].detach().clone().requires_grad_() for x in leaves]
        alone = outputs(*own)
        for a, b in zip(alone, together, strict=True):
            assert torch.allclose(a, b[e], atol=1e-6, rtol=1e-5)
        found = torch.autograd.grad(sum(y.square().sum() for y in alone), own)
        for a, b in zip(found, gradients, strict=True):
            assert torch.allclose(a, b[e], atol=1e-4, rtol=1e-4)


def test_what_models_share_is_shared_side_by_side():
    given = problem(2, 2, 9, 4, 5, 3, True)
    x = torch.stack([given["x"], 2 * given["x"]]).transpose(2, 3)  # [E, B, H, T, D]
    v, lv = given["v"].transpose(1, 2), given["log_variance"]
    together = torch.vmap(lambda x: fused_attend(x, v, lv, True))(x)
    for e in range(2):
        assert torch.allclose(together[e], fused_attend(x[e], v, lv, True), atol=1e-6)


def test_a_step_of_models_side_by_side_can_be_traced():
    each = [problem(1, 2, 9, 4, 5, 3, True, seed) for seed in range(2)]
    stacked = [torch.stack(x) for x in zip(*(p.values() for p in each), strict=True)]

    def step(*inputs):
        leaves = [x.detach().requires_grad_() for x in inputs]
        out = torch.vmap(lambda *own: tuple(fused(*own, rbf=True).values()))(*leaves)
        loss = sum(y.square().sum() for y in out)
        return loss.detach(), *torch.autograd.grad(loss, leaves)

    traced = make_fx(step)(*stacked)
    called = {str(node.target) for node in traced.graph.nodes}
    for name in ("attend", "mean", "variance"):
        assert {f"sgpa.{name}.default", f"sgpa.{name}_gradient.default"} <= called
    for a, b in zip(traced(*stacked), step(*stacked), strict=True):
        assert torch.allclose(a, b)


def test_the_operators_keep_the_rules_of_torch():
    given = problem(2, 2, 9, 4, 5, 3, True)
    x, v = given["x"].transpose(1, 2).requires_grad_(), given["v"].transpose(1, 2)
    lv, S = given["log_variance"], covariance(given["s"])
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    kqq, A = torch.ones(2, 2, 9, device=DEVICE), torch.randn(2, 2, 4, 9, device=DEVICE, requires_grad=True)
    mean = torch.ops.sgpa.mean.default
    torch.library.opcheck(torch.ops.sgpa.attend.default, (x, v, lv, True), test_utils=tests)
    torch.library.opcheck(torch.ops.sgpa.variance.default, (kqq, A, S), test_utils=tests)
    inputs = (x, v, given["k_g"], given["L_inv"], given["w_g"], lv, True)
    torch.library.opcheck(mean, inputs, test_utils=tests)
    K = torch.eye(3, dtype=torch.float64, device=DEVICE)
    torch.library.opcheck(
        torch.ops.sgpa.factor.default, (K, 1e-6), test_utils=("test_schema", "test_faketensor")
    )


def test_there_is_no_second_derivative_and_it_says_so():
    given = problem(1, 1, 4, 3, 2, 2, True)
    for function in (
        lambda x, **rest: fused(x, **rest)["mean"],
        lambda x, **rest: fused(x, **rest)["variance"],
    ):
        x = given["x"].clone().requires_grad_()
        out = function(x, **{n: y for n, y in given.items() if n != "x"}, rbf=True)
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        with pytest.raises((NotImplementedError, RuntimeError), match=r"autograd|second derivative"):
            first.sum().backward()


def test_the_plain_way_is_taken_where_there_is_no_gpu_and_in_float64():
    s = problem(2, 2, 9, 5, 4, 4, True)["s"]
    A, kqq = torch.rand(2, 2, 5, 9, device=DEVICE), torch.ones(2, 2, 9, device=DEVICE)
    assert fuses(A, s) == GPU
    assert not fuses(A.double(), s.double())
    assert not fuses(A, s.expand(2, *s.shape))
    assert not fuses(torch.rand(2, 2, WIDTH + 1, 9, device=DEVICE), s)
    assert torch.allclose(marginal_variance(kqq, A, s), plain_variance(kqq, A, s), atol=1e-2 if GPU else 1e-5)


# -- Cholesky factors


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(1, 37), st.sampled_from([(), (3,), (2, 2)]), st.integers(0, 9))
def test_factors_are_those_of_torch(M, batch, seed):
    X = normal(seed)(*batch, M, M + 2)
    K = (X @ X.mT / M).to(DEVICE)
    L, L_inv = fused_factor(K, 1e-6)
    expected = torch.linalg.cholesky(K + 1e-6 * torch.diag_embed(K.diagonal(dim1=-2, dim2=-1)))
    assert torch.allclose(L, expected, rtol=1e-9, atol=1e-11)
    assert torch.allclose(L_inv @ L, torch.eye(M, dtype=K.dtype, device=DEVICE), atol=1e-8)
    assert torch.equal(L, L.tril())
    assert torch.equal(L_inv, L_inv.tril())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter's root
def test_what_is_not_positive_definite_gives_nan_and_leaves_the_others_alone():
    good = torch.eye(3, dtype=torch.float64, device=DEVICE)
    bad = good.clone()
    bad[0, 1] = bad[1, 0] = 2.0
    L, L_inv = fused_factor(torch.stack([good, bad]), 1e-6)
    assert torch.allclose(L[0], good, atol=1e-5)
    assert L[1].isnan().any()
    assert L_inv[1].isnan().any()


def test_factors_side_by_side():
    X = normal(0)(2, 3, 4, 4).to(DEVICE)
    K = X @ X.mT
    for d in range(2):
        L, L_inv = torch.vmap(lambda k: fused_factor(k, 1e-6), in_dims=d)(K)
        expected = fused_factor(K.movedim(d, 0), 1e-6)
        assert torch.equal(L, expected[0])
        assert torch.equal(L_inv, expected[1])


def test_factors_are_for_recorded_steps_on_a_gpu():
    K = torch.eye(WIDTH, dtype=torch.float64, device=DEVICE)
    assert factors(K) == GPU
    assert not factors(K.float())
    assert not factors(torch.eye(WIDTH + 1, dtype=torch.float64, device=DEVICE))
