"""Scores of unfamiliar rows that need no Gaussian process, beside the novelty of one."""

import torch
from torch import Tensor

from sgpa.experiments.audit.collect import Collected
from sgpa.inference.novelty import ClassDistances

NEIGHBOURS = 20


def detector_scores(train: Collected, rows: Collected) -> dict[str, Tensor]:
    """Scores that are high for unfamiliar rows, [N] each.

    - `entropy` of the model's own probabilities, and free `energy` -log Σ exp of its logits;
    - `knn`: distance to the 20th nearest training row in what the head reads, on the unit sphere;
    - `mahalanobis`: squared distance of what the head reads to the nearest predicted class;
    - `mahalanobis_layers`: log squared distance of the inner states, mean over layers, without classes;
    - `novelty` of the attached GP.

    The last two are left out where no GP is attached, because no attention is read then.

    Args:
        train: rows that the statistics are made of.
        rows: rows to score.
    """
    f = rows.logits.double()
    unit = torch.nn.functional.normalize
    distances = torch.cdist(unit(rows.head.double()), unit(train.head.double()))  # [N, training rows]
    head = ClassDistances.fit(train.head, train.logits.argmax(-1))
    scores = {
        "entropy": torch.special.entr(f.softmax(-1)).sum(-1),
        "energy": -f.logsumexp(-1),
        "knn": distances.kthvalue(min(NEIGHBOURS, len(train.head)), -1).values,
        "mahalanobis": head.to_class(rows.head),
    }
    if train.gp is None or rows.gp is None:
        return scores
    inner = [
        ClassDistances.fit(known, None).to_class(x).clamp_min(1e-12).log()
        for known, x in zip(train.gp.layers.unbind(1), rows.gp.layers.unbind(1), strict=True)
    ]
    if inner:
        scores["mahalanobis_layers"] = torch.stack(inner).mean(0)
    return scores | {"novelty": rows.gp.novelty}
