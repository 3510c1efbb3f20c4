"""`python -m sgpa`, which is also what torchrun starts: torchrun --nproc_per_node 2 -m sgpa ..."""

import os
import sys

from sgpa.cli.app import main

if os.environ.get("RANK", "0") != "0":  # of several processes the first tells; all may complain
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
main()
