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

from sgpa.attention import OrthogonalSgpa, global_states
from sgpa.attention.global_state import lower
from sgpa.core import noise
from sgpa.core.errors import NumericalError
from sgpa.core.precision import unchecked
from sgpa.core.types import Posterior
from sgpa.gp.fused import (
    TRITON,
    WIDTH,
    fused_attend,
    fused_inducing,
    fused_mean,
    fused_sample,
    fused_variance,
    fuses,
    inducing_fuses,
    pack,
)
from sgpa.gp.kernels import ArdRbfKernel, ExponentialKernel
from sgpa.gp.posteriors import (
    marginal_variance,
    orthogonal_kl_a,
    orthogonal_kl_g,
    orthogonal_mean,
    plain_variance,
    sample_marginals,
)

pytestmark = pytest.mark.skipif(not TRITON, reason="Triton is not installed")
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
        "variance": plain_variance(kqq, A, s),
        "sample": sample_marginals(Posterior(mean, plain_variance(kqq, A, s))),
        "attended": Kv,
    }


def fused(x, v, k_g, log_variance, L_inv, w_g, s, rbf):
    xv = torch.stack([x, v], 2)
    mean, kl, A, left = fused_mean(xv, pack(L_inv, k_g, w_g, log_variance), rbf)
    variance, attended = fused_variance(left, A, covariance(s)), fused_attend(xv, log_variance, rbf)
    sample = fused_sample(left, A, covariance(s), mean, noise.normal(mean.shape, mean, rows=0))
    outputs = (mean, kl, A, variance, sample, attended)
    return dict(zip(OUTPUTS, outputs, strict=True))


class Fixed:
    """The same numbers at every request, whatever the precision."""

    def take(self, draw):
        waves = torch.arange(draw.shape.numel(), dtype=torch.float64).mul(37).sin().mul(1.5)
        return waves.view(draw.shape).to(draw.device, draw.dtype)


@pytest.fixture(autouse=True, scope="module")
def fixed_numbers():
    with noise.source(Fixed()):
        yield


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


def errors(found, exact, scale):
    return {name: float((found[name] - y).abs().max()) / scale[name] for name, y in exact.items()}


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


widths = st.integers(1, 20)
sizes = st.tuples(st.integers(1, 2), st.integers(1, 2), st.sampled_from([1, 7, 33, 64, 70]), widths, widths)


@settings(max_examples=12, deadline=None, derandomize=True, phases=PHASES)
@given(sizes, st.booleans(), st.integers(0, 9))
def test_a_layers_moments_are_as_good_as_the_plain_ones(size, rbf, seed):
    check(problem(*size, rbf, seed), rbf)


@settings(max_examples=8, deadline=None, derandomize=True, phases=PHASES)
@given(sizes, st.booleans(), st.integers(0, 9))
def test_kernel_attention_is_as_good_as_the_plain_one(size, rbf, seed):
    check(problem(*size, rbf, seed), rbf, of=("attended",))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("of", ["mean", "kl", "A", "variance", "sample"])
def test_each_moment_by_itself(name, of):
    check(problem(2, 2, 70, 5, 7, name == "rbf"), name == "rbf", of=(of,))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("size", [(1, 1, 130, 33, 17), (2, 2, 64, 32, 32), (1, 2, 16, 64, 64)])
def test_three_tiles_and_the_widest_ones(name, size):
    check(problem(*size, name == "rbf"), name == "rbf", of=OUTPUTS)


@pytest.mark.parametrize("name", KERNELS)
def test_points_and_values_side_by_side_and_a_gradient_of_one_number(name):
    """Views into one product, as `projected` makes them; the gradient of a sum is an expanded number."""
    B, T, H, D, rbf = 2, 37, 2, 5, name == "rbf"
    given = problem(B, H, T, 4, D, rbf)
    both = torch.stack([given.pop("x"), given.pop("v")], 2)  # [B, T, 2, H, D]
    found = []
    for function in (plain, fused):
        leaf = both.clone().requires_grad_()
        x, v = leaf.unbind(2)
        out = function(x, v, **given, rbf=rbf)
        (gradient,) = torch.autograd.grad(sum(y.sum() for y in out.values()), leaf)
        found.append([*out.values(), gradient])
    for a, b in zip(*found, strict=True):
        assert float((a - b).detach().abs().max()) <= (2**-9 if GPU else 2e-6) * float(a.detach().abs().max())


@pytest.mark.parametrize("name", KERNELS)
def test_a_key_without_a_value_is_not_there(name):
    rbf, T, more = name == "rbf", 61, 9  # over the edge of a tile
    given = problem(2, 2, T + more, 5, 7, rbf)
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
    given = problem(1, 1, 70, 4, 6, True)
    given["x"][:, 66] = given["x"][:, 2]
    check(given, True, of=OUTPUTS)


@pytest.mark.parametrize("name", KERNELS)
def test_models_side_by_side_are_models_one_by_one(name):
    rbf = name == "rbf"
    each = [problem(2, 2, 9, 4, 5, rbf, seed) for seed in range(3)]
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
    given = problem(2, 2, 9, 4, 5, True)
    xv, lv = torch.stack([given["x"], given["v"]], 2), given["log_variance"]
    each = torch.stack([xv, 2 * xv])  # [E, B, T, 2, H, D]
    together = torch.vmap(lambda xv: fused_attend(xv, lv, True))(each)
    for e in range(2):
        assert torch.allclose(together[e], fused_attend(each[e], lv, True), atol=1e-6)


def test_a_step_of_models_side_by_side_can_be_traced():
    each = [problem(1, 2, 9, 4, 5, True, seed) for seed in range(2)]
    stacked = [torch.stack(x) for x in zip(*(p.values() for p in each), strict=True)]

    def step(*inputs):
        leaves = [x.detach().requires_grad_() for x in inputs]
        out = torch.vmap(lambda *own: tuple(fused(*own, rbf=True).values()))(*leaves)
        loss = sum(y.square().sum() for y in out)
        return loss.detach(), *torch.autograd.grad(loss, leaves)

    traced = make_fx(step)(*stacked)
    called = {str(node.target) for node in traced.graph.nodes}
    for name in ("attend", "mean", "variance", "sample"):
        assert {f"sgpa.{name}.default", f"sgpa.{name}_gradient.default"} <= called
    for a, b in zip(traced(*stacked), step(*stacked), strict=True):
        assert torch.allclose(a, b)


def test_the_operators_keep_the_rules_of_torch():
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


def test_there_is_no_second_derivative_and_it_says_so():
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


def test_the_plain_way_is_taken_where_there_is_no_gpu_and_in_float64():
    s = problem(2, 2, 9, 5, 4, True)["s"]
    A, kqq = torch.rand(2, 2, 5, 9, device=DEVICE), torch.ones(2, 2, 9, device=DEVICE)
    assert fuses(A, s) == GPU
    assert not fuses(A.double(), s.double())
    assert not fuses(A, s.expand(2, *s.shape))
    assert not fuses(torch.rand(2, 2, WIDTH + 1, 9, device=DEVICE), s)
    assert torch.allclose(marginal_variance(kqq, A, s), plain_variance(kqq, A, s), atol=1e-2 if GPU else 1e-5)


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


def relative(found, exact):
    found, exact = found.detach().double(), exact.detach()
    return float((found - exact).abs().max()) / max(1e-3, float(exact.abs().max()))


@settings(max_examples=8, deadline=None, derandomize=True, phases=PHASES)
@given(
    st.sampled_from([(), (3,), (2, 2)]),
    st.integers(1, 37),
    st.integers(1, 20),
    st.booleans(),
    st.integers(0, 9),
)
def test_states_and_their_gradients_are_those_of_float64(heads, M, D, rbf, seed):
    leaves = parameters(heads, M, D, seed)
    with torch.no_grad():
        leaves[0].mul_(1.0 if rbf else 0.3)
    found, exact = fused_inducing(*leaves, 1e-6, rbf), plain_inducing(*leaves, rbf)
    for a, b in zip(found, exact, strict=True):
        assert a.shape == b.shape
        assert relative(a, b) < 2e-7
    weights = [normal(5)(*b.shape).float().to(DEVICE) for b in exact]
    weights[0][..., M + 2 * D + 1 :] = 0  # what fills a row up has no gradient
    ours, theirs = (
        torch.autograd.grad(sum((y * w).sum() for y, w in zip(each, weights, strict=True)), leaves)
        for each in (found, exact)
    )
    for a, b in zip(ours, theirs, strict=True):
        assert relative(a, b.double()) < 2e-6


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter's root
def test_what_is_not_finite_leaves_the_others_alone():
    k_g, log_variance, raw, v_g = parameters((2,), 3, 2)
    with torch.no_grad():
        log_variance[1] = float("nan")
    state, S, kl = fused_inducing(k_g, log_variance, raw, v_g, 1e-6, True)
    assert state[0].isfinite().all()
    assert S.isfinite().all()
    assert state[1, :, :3].isnan().any()
    assert kl[1].isnan()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_not_positive_definite_gives_nan():
    state, _, kl = fused_inducing(*parameters((), 3, 2), -1.5, True)  # less than nothing on the diagonal
    assert state[:, :3].isnan().any()
    assert kl.isnan()


def test_states_of_models_side_by_side():
    leaves = parameters((3, 2), 5, 4)
    for d in range(2):
        found = torch.vmap(lambda *x: fused_inducing(*x, 1e-6, True), in_dims=d)(*leaves)
        expected = fused_inducing(*(x.movedim(d, 0) for x in leaves), 1e-6, True)
        for a, b in zip(found, expected, strict=True):
            assert torch.equal(a, b)
        gradients = [torch.autograd.grad(sum(y.sum() for y in each), leaves) for each in (found, expected)]
        for a, b in zip(*gradients, strict=True):
            assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_states_that_share_a_parameter_side_by_side():
    k_g, log_variance, raw, v_g = parameters((2,), 5, 4)
    more = torch.stack([v_g, 2 * v_g])
    state, S, kl = torch.vmap(lambda v: fused_inducing(k_g, log_variance, raw, v, 1e-6, True))(more)
    assert torch.equal(S[0], S[1])
    assert torch.allclose(state[1, ..., 9:13], 2 * state[0, ..., 9:13])
    assert (kl[1] > kl[0]).all()


def test_states_are_fused_in_float32_on_a_gpu():
    k_g = torch.zeros(2, WIDTH, 4, device=DEVICE)
    assert inducing_fuses(k_g) == GPU
    assert not inducing_fuses(k_g.double())
    assert not inducing_fuses(torch.zeros(2, WIDTH + 1, 4, device=DEVICE))


@pytest.mark.parametrize("name", KERNELS)
def test_layers_take_the_fused_states(monkeypatch, name):
    layers = [
        OrthogonalSgpa(8, 2, KERNELS[name](2, 4), num_global=3, init="paper").to(DEVICE) for _ in range(2)
    ]
    features = torch.stack([layer.Z_g for layer in layers])
    plain = global_states(layers, features)
    monkeypatch.setattr("sgpa.attention.global_state.inducing_fuses", lambda _: True)
    ours = global_states(layers, features)
    leaves = [p for layer in layers for p in layer.parameters()]
    found = []
    for states in (plain, ours):
        total = sum(
            y.sum() for state in states for y in (state.k_g, state.L_inv, state.S, state.w_g, state.kl)
        )
        found.append(torch.autograd.grad(total, leaves, materialize_grads=True))
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))
    for a, b, layer in zip(plain, ours, layers, strict=True):
        for field in ("k_g", "L_inv", "s_g", "S", "v_g", "w_g", "kl"):
            assert torch.allclose(getattr(a, field).float(), getattr(b, field), rtol=1e-5, atol=1e-6), field
        packed = pack(a.L_inv.float(), a.k_g, a.w_g, layer.kernel.log_variance)
        assert torch.allclose(b.packed, packed, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter's root
def test_where_the_fused_states_fail_there_is_more_jitter_or_a_message(monkeypatch):
    monkeypatch.setattr("sgpa.attention.global_state.inducing_fuses", lambda _: True)
    layer = OrthogonalSgpa(8, 2, ArdRbfKernel(2, 4), num_global=3).to(DEVICE)
    with monkeypatch.context() as smaller:
        smaller.setattr(
            "sgpa.attention.global_state.JITTERS", (-2.0,)
        )  # no matrix is positive definite with it
        (state,) = global_states([layer], layer.Z_g.unsqueeze(0))
        assert state.packed is None
        assert state.L_inv.isfinite().all()
        with unchecked():
            assert global_states([layer], layer.Z_g.unsqueeze(0))[0].kl.isnan()
    with torch.no_grad():
        layer.kernel.log_variance[1] = float("nan")
    with pytest.raises(NumericalError, match="head 2"):
        global_states([layer], layer.Z_g.unsqueeze(0))
