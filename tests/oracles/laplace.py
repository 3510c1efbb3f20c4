# The last layer's generalised Gauss-Newton matrix and its Gaussian posterior, dense and by automatic
# differentiation: no Kronecker product is taken apart and no eigenvalue computed.
#
# Parameters theta are W [K, E], row after row, then b [K]; P = K E + K.

import torch
from torch import Tensor
from torch.func import hessian, jacrev, vmap


def outputs(theta: Tensor, phi: Tensor) -> Tensor:
    # f = W phi + b of one row, phi [E] -> [K]
    E = len(phi)
    K = len(theta) // (E + 1)
    return theta[: K * E].reshape(K, E) @ phi + theta[K * E :]


def output_jacobian(theta: Tensor, phi: Tensor) -> Tensor:
    return vmap(jacrev(outputs), (None, 0))(theta, phi)  # [N, K, P]


def output_hessian(theta: Tensor, phi: Tensor) -> Tensor:
    # of -log p(y | f) in f; for softmax it does not depend on y
    def nll(f: Tensor) -> Tensor:
        return -f.log_softmax(-1)[0]

    return vmap(lambda x: hessian(nll)(outputs(theta, x)))(phi)  # [N, K, K]


def ggn(theta: Tensor, phi: Tensor) -> Tensor:
    # sum over rows of J' G J, [P, P], with the blocks between W and b that the approximation leaves out
    J, G = output_jacobian(theta, phi), output_hessian(theta, phi)
    return torch.einsum("nkp,nkl,nlq->pq", J, G, J)


def without_cross_blocks(H: Tensor, classes: int) -> Tensor:
    P = len(H) - classes
    return torch.block_diag(H[:P, :P], H[P:, P:])


def kronecker_ggn(theta: Tensor, phi: Tensor) -> Tensor:
    # N G x A and N G, multiplied out, [P, P]
    G, A = output_hessian(theta, phi).mean(0), torch.stack([torch.outer(x, x) for x in phi]).mean(0)
    return torch.block_diag(len(phi) * torch.kron(G, A), len(phi) * G)


def posterior_covariance(H: Tensor, delta: float) -> Tensor:
    return torch.linalg.inv(H + delta * torch.eye(len(H), dtype=H.dtype))


def output_covariance(H: Tensor, delta: float, theta: Tensor, phi: Tensor) -> Tensor:
    J = output_jacobian(theta, phi)
    return J @ posterior_covariance(H, delta) @ J.mT  # [N, K, K]


def log_evidence(H: Tensor, delta: float, theta: Tensor, phi: Tensor, y: Tensor) -> Tensor:
    eye = torch.eye(len(H), dtype=H.dtype)
    f = vmap(outputs, (None, 0))(theta, phi)
    log_likelihood = f.log_softmax(-1).gather(-1, y.unsqueeze(-1)).sum()
    occam = torch.linalg.slogdet(H + delta * eye).logabsdet - torch.linalg.slogdet(delta * eye).logabsdet
    return log_likelihood - 0.5 * (occam + delta * theta @ theta)


def predictive(H: Tensor, delta: float, theta: Tensor, phi: Tensor, draws: int, seed: int) -> Tensor:
    # mean softmax over weights drawn from the posterior, [N, K]
    generator = torch.Generator().manual_seed(seed)
    L = torch.linalg.cholesky(posterior_covariance(H, delta))
    total = torch.zeros(len(phi), len(theta) // (phi.shape[1] + 1), dtype=theta.dtype)
    for _ in range(draws // 10_000):
        epsilon = torch.randn(10_000, len(theta), generator=generator, dtype=theta.dtype)
        sampled = theta + epsilon @ L.mT  # [10000, P]
        f = vmap(vmap(outputs, (None, 0)), (0, None))(sampled, phi)  # [10000, N, K]
        total += f.softmax(-1).sum(0)
    return total / draws
