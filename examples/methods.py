"""Several methods on the same data: NLL and calibration error on digits.

Run `python examples/methods.py`; it takes a few minutes on one core.
"""

import sgpa
from sgpa.data.images import digits
from sgpa.evaluation import metrics


def main(
    methods: tuple[str, ...] = ("ts", "mc-dropout", "sgpa"), steps: int | None = None
) -> dict[str, float]:
    """The NLL of each method on the test digits."""
    data = digits.load()
    nll = {}
    for method in methods:
        model = sgpa.fit(data.train.inputs, data.train.targets, method=method, steps=steps)
        p = model.predict(data.test.inputs).probabilities.double()
        nll[method] = float(metrics.nll(p, data.test.targets))
        print(f"{method}: NLL {nll[method]:.3f}, ECE {metrics.ece(p, data.test.targets):.3f}")
    return nll


if __name__ == "__main__":
    main()
