"""Run one measurement, and append it to a file.

    python -m tools.own_data digits 300 --seed 1
    python -m tools.own_data images 3000 --seed 1 --device cuda --append results.jsonl

`python -m tools.own_data.page` makes the page of `docs/results/own-data` from all measurements.
"""

import argparse
import datetime
import importlib
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

KINDS = ("digits", "images", "house_numbers", "texts", "molecules")


def main() -> None:
    """Parse, measure, print one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m tools.own_data", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("rows", type=int, help="rows to learn from, those held out included")
    parser.add_argument("--seed", type=int, default=0, help="of the split and of the training")
    parser.add_argument(
        "--data-dir", type=Path, default=os.environ.get("SGPA_DATA"), help="where the data are"
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--backbone", help="of texts: a folder with MiniLM's weights, or none")
    parser.add_argument("--append", type=Path, help="a .jsonl file that receives the line")
    options = parser.parse_args()
    torch.set_num_threads(1)
    module = importlib.import_module(f"tools.own_data.{options.kind}")
    more = {} if options.device == "cpu" else {"device": options.device}
    more |= {} if options.backbone is None else {"backbone": options.backbone}
    origin = provenance(options.device)  # before a long measurement, in which the checkout may change
    scores = module.measure(options.rows, options.seed, options.data_dir, **more)
    line = json.dumps(
        {"kind": options.kind, "rows": options.rows, "seed": options.seed, "columns": list(module.COLUMNS)}
        | {"scores": scores}
        | origin,
        ensure_ascii=False,
    )
    print(line)
    if options.append is not None:
        with options.append.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def provenance(device: str) -> dict[str, Any]:
    """Commit, hardware and time of a measurement."""
    try:
        command = ["git", "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = os.environ.get("SGPA_COMMIT", "unknown")
    cpu = f"{platform.machine()} CPU, {os.cpu_count()} cores"
    hardware = torch.cuda.get_device_name(device) if device.startswith("cuda") else cpu
    now = datetime.datetime.now(datetime.UTC)
    return {"commit": commit, "hardware": hardware, "date": f"{now:%Y-%m-%d}"}


if __name__ == "__main__":
    main()
