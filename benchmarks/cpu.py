"""What uncertainty costs on this CPU: a training step and a prediction of the paper's CIFAR-10 model.

Usage: python -m benchmarks.cpu
"""

from rich.console import Console

from sgpa.bench import as_table, measure


def main() -> None:
    """Print the table."""
    Console().print(as_table(measure("cifar10"), "cifar10"))


if __name__ == "__main__":
    main()
