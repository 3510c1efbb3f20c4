import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sgpa.core.errors import ConfigError
from sgpa.gp.kernels import KERNELS, ArdRbfKernel, ExponentialKernel

both = pytest.mark.parametrize("kernel_class", [ArdRbfKernel, ExponentialKernel])


def random_kernel(kernel_class, H=2, D=3):
    kernel = kernel_class(H, D).double()
    with torch.no_grad():
        kernel.log_variance.normal_(0, 0.5)
        kernel.log_lengthscale.normal_(0.3, 0.3)
    return kernel


def by_loops(kernel, x, y):
    # one pair of points and one coordinate at a time, in Python floats
    K = torch.empty(*x.shape[:-1], y.shape[-2], dtype=torch.float64)
    for b, h, t, u in torch.cartesian_prod(*(torch.arange(n) for n in K.shape)).tolist():
        exponent = 0.0
        for j in range(x.shape[-1]):
            x_j, y_j = x[b, h, t, j].item(), y[b, h, u, j].item()
            l2 = math.exp(kernel.log_lengthscale[h, j].item()) ** 2
            rbf = isinstance(kernel, ArdRbfKernel)
            exponent += -0.5 * (x_j - y_j) ** 2 / l2 if rbf else x_j * y_j / l2
        K[b, h, t, u] = math.exp(kernel.log_variance[h].item()) * math.exp(exponent)
    return K


@both
@settings(deadline=None, max_examples=15)
@given(
    shape=st.tuples(*[st.integers(1, 3)] * 2, *[st.integers(1, 4)] * 3),
    seed=st.integers(0, 2**31),
)
def test_kernels_equal_their_formula(kernel_class, shape, seed):
    torch.manual_seed(seed)
    B, H, T, U, D = shape
    kernel = random_kernel(kernel_class, H, D)
    x, y = torch.randn(B, H, T, D).double(), torch.randn(B, H, U, D).double()
    torch.testing.assert_close(kernel(x, y), by_loops(kernel, x, y), rtol=1e-10, atol=0)


@both
def test_diagonal_equals_that_of_the_matrix(kernel_class):
    torch.manual_seed(0)
    kernel, x = random_kernel(kernel_class), torch.randn(4, 2, 6, 3).double()
    torch.testing.assert_close(kernel.diagonal(x), kernel(x, x).diagonal(dim1=-2, dim2=-1))


def test_diagonal_of_the_rbf_kernel_is_its_variance():
    kernel = ArdRbfKernel(2, 3, variance=2.5)
    torch.testing.assert_close(kernel.diagonal(100 * torch.randn(4, 2, 5, 3)), torch.full((4, 2, 5), 2.5))


def test_rbf_kernel_never_exceeds_its_variance():
    # rounding of a squared distance must not make it negative: float32, far from the origin
    torch.manual_seed(0)
    x = 30 + torch.randn(4, 2, 50, 3)
    K = ArdRbfKernel(2, 3, lengthscale=0.01)(x, x)
    assert K.max() <= 1


def test_diagonal_of_the_exponential_kernel_grows_with_the_norm():
    torch.manual_seed(0)
    kernel, x = ExponentialKernel(1, 3, variance=2.5, lengthscale=1.7), torch.randn(1, 6, 3)
    expected = 2.5 * torch.exp((x / 1.7).square().sum(-1))
    torch.testing.assert_close(kernel.diagonal(x), expected)


@both
def test_gram_matrix_is_symmetric_and_positive_semidefinite(kernel_class):
    torch.manual_seed(0)
    kernel, x = random_kernel(kernel_class), torch.randn(5, 2, 12, 3).double()
    K = kernel(x, x)
    torch.testing.assert_close(K, K.mT)
    eigenvalues = torch.linalg.eigvalsh(K)
    assert (eigenvalues[..., 0] > -1e-12 * eigenvalues[..., -1]).all()


@both
def test_heads_do_not_mix(kernel_class):
    torch.manual_seed(0)
    kernel, x = random_kernel(kernel_class), torch.randn(2, 5, 3).double()
    changed = x.clone()
    changed[1] += 1
    assert torch.equal(kernel(x, x)[0], kernel(changed, changed)[0])
    assert not torch.equal(kernel(x, x)[1], kernel(changed, x)[1])


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("parameter_dtype", [torch.float32, torch.float64])
def test_dtype_follows_the_input(kernel_class, dtype, parameter_dtype):
    kernel, x = kernel_class(2, 3).to(parameter_dtype), torch.randn(2, 4, 3, dtype=dtype)
    assert kernel(x, x).dtype == kernel.diagonal(x).dtype == dtype


@both
def test_float64_inputs_are_computed_in_float64_with_float32_parameters(kernel_class):
    # the global side is computed in float64 from float32 parameters
    torch.manual_seed(0)
    kernel, x = random_kernel(kernel_class).float(), torch.randn(1, 2, 4, 3).double()
    exact = kernel_class(2, 3).double()
    exact.load_state_dict(kernel.state_dict())
    torch.testing.assert_close(kernel(x, x), exact(x, x), rtol=1e-12, atol=0)


@both
def test_keys_without_batch_axis_broadcast(kernel_class):
    # global keys have no batch axis
    torch.manual_seed(0)
    kernel, x, y = random_kernel(kernel_class), torch.randn(4, 2, 5, 3), torch.randn(2, 6, 3)
    torch.testing.assert_close(kernel(x, y), kernel(x, y.expand(4, 2, 6, 3)))


@both
def test_gradients_equal_finite_differences(kernel_class):
    torch.manual_seed(0)
    kernel = random_kernel(kernel_class)
    x, y = (torch.randn(2, n, 3, dtype=torch.float64, requires_grad=True) for n in (4, 3))

    def values(x, y, *parameters):  # gradcheck moves the kernel's own parameters in place
        return kernel(x, y), kernel.diagonal(x)

    assert torch.autograd.gradcheck(values, (x, y, *kernel.parameters()))


@both
def test_preset_paper_has_unit_parameters(kernel_class):
    kernel = kernel_class.preset("paper", 2, 3)
    assert (kernel.log_variance == 0).all()
    assert (kernel.log_lengthscale == 0).all()


@both
def test_preset_mixing_grows_with_the_width(kernel_class):
    kernel = kernel_class.preset("mixing", 2, 16)
    assert (kernel.log_variance == 0).all()
    torch.testing.assert_close(kernel.log_lengthscale.exp().square(), torch.full((2, 16), 16.0))


@pytest.mark.parametrize(
    ("kernel_class", "log_variance", "log_mean"), [(ArdRbfKernel, 0.0, 0.0), (ExponentialKernel, -4.0, 4.0)]
)
def test_preset_authors_draws_lengthscales(kernel_class, log_variance, log_mean):
    torch.manual_seed(0)
    n = 100 * 100
    kernel = kernel_class.preset("authors", 100, 100)
    assert (kernel.log_variance == log_variance).all()
    assert abs(kernel.log_lengthscale.mean().item() - log_mean) < 5 / math.sqrt(n)
    assert abs(kernel.log_lengthscale.std().item() - 1) < 5 / math.sqrt(2 * n)


def test_initial_values_are_those_of_the_arguments():
    kernel = ArdRbfKernel(2, 3, variance=4.0, lengthscale=0.5)
    torch.testing.assert_close(kernel.log_variance.exp(), torch.full((2,), 4.0))
    torch.testing.assert_close(kernel.log_lengthscale.exp(), torch.full((2, 3), 0.5))


@both
def test_all_bad_arguments_are_named_together(kernel_class):
    with pytest.raises(ConfigError) as error:
        kernel_class(0, -1, variance=0.0, lengthscale=-2.0)
    message = str(error.value)
    assert kernel_class.__name__ in message
    for field in ("num_heads=0", "head_width=-1", "variance=0.0", "lengthscale=-2.0"):
        assert field in message
    assert "\n" not in message


@pytest.mark.parametrize("bad", [math.nan, -1.0])
def test_only_bad_arguments_are_named(bad):
    with pytest.raises(ConfigError, match=r"lengthscale=.*allowed: (positive|a finite number)") as error:
        ArdRbfKernel(2, 3, lengthscale=bad)
    assert "num_heads" not in str(error.value)
    assert "variance" not in str(error.value)


@both
def test_unknown_preset_lists_the_known_ones(kernel_class):
    with pytest.raises(ConfigError, match=r"preset='typo'.*paper, authors, mixing"):
        kernel_class.preset("typo", 2, 3)


def test_kernels_are_found_by_name():
    assert set(KERNELS) == {"ard-rbf", "exponential"}
