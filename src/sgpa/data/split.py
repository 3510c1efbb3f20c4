"""Random splits of rows; classes keep their shares."""

import torch
from torch import Tensor


def split_rows(
    targets: Tensor, held_out: int, seed: int, *, stratified: bool = True
) -> tuple[Tensor, Tensor]:
    """Indices of rows to keep and of rows to hold out, both in random order.

    Every class has its share of the rows that are held out: the whole part of it, and the classes with the
    largest remainders one row more, up to the number that was asked for. A class of two rows or more keeps
    at least one. Values (floats) and `stratified=False` are split without regard to the targets.

    Args:
        targets: Classes [N] of an integer type, or values [N].
        held_out: Number of rows to hold out, 0 to N.
        seed: Random seed.
        stratified: Whether classes keep their shares.

    Returns:
        Indices [N - held_out] and [held_out].

    >>> kept, out = split_rows(torch.tensor([0] * 8 + [1] * 2), 5, seed=0)
    >>> torch.tensor([0] * 8 + [1] * 2)[out].sum()
    tensor(1)
    """
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))
    if targets.is_floating_point() or not stratified:
        return order[held_out:], order[:held_out]
    classes, labels = targets.cpu()[order].unique(return_inverse=True)  # [K], [N]
    quota = _quota(labels.bincount(minlength=len(classes)), held_out)  # [K]
    same = labels.unsqueeze(1) == torch.arange(len(classes))  # [N, K]
    rank = same.cumsum(0)[torch.arange(len(labels)), labels]  # place of a row within its class, from 1   [N]
    out = rank <= quota[labels]
    return order[~out], order[out]


def _quota(count: Tensor, held_out: int) -> Tensor:
    """How many rows of each class of `count` [K] rows are held out, [K]."""
    share = held_out * count.double() / count.sum()
    quota = share.floor().long()
    most = (count - 1).clamp_min(0) if held_out <= int((count - 1).clamp_min(0).sum()) else count
    quota = quota.minimum(most)
    for k in (share - quota).argsort(descending=True, stable=True).tolist() * len(count):
        if int(quota.sum()) >= held_out:
            break
        quota[k] += int(quota[k] < most[k])
    return quota
