"""Count the function calls inside the package that one command or one forward pass makes.

Usage: python -m tools.call_path layer | train | predict RUN FILE
Prints the number of calls of functions of the package (without comprehensions and imports), of different
functions, of their files and of the classes whose methods are called: for `OrthogonalSgpa(...)(x)`, for
`sgpa train cifar10` up to the first call of the loss, and for `sgpa predict`.
"""

import argparse
import inspect
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any


class Reached(Exception):
    """The function that ends the count was called."""


class Walk:
    """A profile function that records calls into the package; `until` names the function that ends it."""

    def __init__(self, until: str = "") -> None:
        import sgpa  # noqa: PLC0415

        self.root, self.until = str(Path(sgpa.__file__).parent), until
        self.calls: Counter[tuple[str, str]] = Counter()
        self.stack: list[FrameType] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Record one call; raise `Reached` at the last one."""
        code = frame.f_code
        function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if event != "call" or not function or not code.co_filename.startswith(self.root):
            return
        self.calls[code.co_filename[len(self.root) + 1 :], code.co_qualname] += 1
        if self.until and code.co_qualname.endswith(self.until):
            self.stack = [f for f in _stack(frame) if f.f_code.co_filename.startswith(self.root)]
            sys.setprofile(None)
            raise Reached

    def __str__(self) -> str:
        names = list(self.calls)
        classes = {name.rsplit(".", 1)[0] for _, name in names if "." in name and "<locals>" not in name}
        return (
            f"{sum(self.calls.values())} calls of {len(names)} functions in "
            f"{len({f for f, _ in names})} files, methods of {len(classes)} classes"
        )


def _stack(frame: FrameType | None) -> list[FrameType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def layer() -> Walk:
    """Count the second forward pass of a layer."""
    import torch  # noqa: PLC0415

    from sgpa import ArdRbfKernel, OrthogonalSgpa  # noqa: PLC0415

    attention = OrthogonalSgpa(embed_dim=128, num_heads=4, kernel=ArdRbfKernel(4, 32), num_global=32)
    x = torch.randn(8, 64, 128)
    attention(x)
    walk = Walk()
    sys.setprofile(walk)
    attention(x)
    sys.setprofile(None)
    return walk


def command(arguments: list[str], until: str = "") -> Walk:
    """Count a command of the command line, run in this process."""
    from sgpa.cli import main  # noqa: PLC0415

    walk = Walk(until)
    sys.argv = ["sgpa", *arguments]
    sys.setprofile(walk)
    try:
        main()
    except (Reached, SystemExit):
        pass
    finally:
        sys.setprofile(None)
    return walk


def main() -> None:
    """Print the counts, and with --list every call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["layer", "train", "predict"])
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--list", action="store_true")
    asked, options = parser.parse_known_args()
    if asked.what == "layer":
        walk = layer()
    elif asked.what == "train":
        walk = command(["train", *(asked.arguments or ["cifar10"]), *options], until=".loss")
    else:
        walk = command(["predict", *asked.arguments, *options])
    print(walk)
    if walk.stack:
        files = {frame.f_code.co_filename for frame in walk.stack}
        print(f"the stack at that moment: {len(walk.stack)} functions in {len(files)} files")
    if asked.list:
        for (file, name), count in sorted(walk.calls.items()):
            print(f"{count:4d} {file} {name}")


if __name__ == "__main__":
    main()
