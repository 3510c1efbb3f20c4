"""`python -m tests.numerics --count 500`: hostile float32 layers against float64."""

import argparse
import sys

import torch
from tests.support.hostile_layers import measure, measure_multihead


def main() -> int:
    """Measure all layers; exit status 1 if one is wrong without an error."""
    parser = argparse.ArgumentParser(prog="python -m tests.numerics", description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="of the first layer")
    parser.add_argument("--multihead", action="store_true", help="MultiheadSgpa with masks, causal, across")
    given = parser.parse_args()
    torch.set_num_threads(1)
    function = measure_multihead if given.multihead else measure
    measured = [function(seed) for seed in range(given.seed, given.seed + given.count)]
    wrong = [each for each in measured if each.problem is not None]
    for each in wrong:
        sys.stdout.write(f"{each}\n")
    worst = max(each.error for each in measured)
    sys.stdout.write(
        f"{given.count} layers: {len(wrong)} wrong, {sum(each.refused for each in measured)} refused with an "
        f"error, largest error of a variance {worst:.2g} of max(prior, variance)\n"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
