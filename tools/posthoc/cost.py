"""Time of a prediction with an attached GP, relative to one plain pass; on an idle machine.

    python -m tools.posthoc.cost vit runs/posthoc/vit-0 --device cuda --out runs/posthoc/scores

Writes OUT/cost-RECIPE-DEVICE.json: several batch sizes, five rounds each, the shortest of each method.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

import sgpa
from sgpa.core.files import write_json
from sgpa.core.provenance import provenance
from sgpa.experiments.audit.collect import dropout_logits
from sgpa.experiments.audit.cost import measure_costs
from sgpa.models.modes import evaluating
from sgpa.posthoc.calls import logits_of, read_batch
from tools.posthoc.sets import Size, load

ROWS = (16, 64, 256)


def resized(batches: list[Any], rows: int) -> dict[str, torch.Tensor]:
    """The first rows of several batches as one batch, padded with zeros to one number of tokens."""
    wide_ones = [x.shape[1] for batch in batches for x in batch.values() if x.ndim == 2]
    width = max(wide_ones, default=0)

    def wide(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x, (0, width - x.shape[1])) if x.ndim == 2 else x

    keys = [key for key in batches[0] if key != "labels"]
    return {key: torch.cat([wide(batch[key]) for batch in batches])[:rows] for key in keys}


def main() -> None:
    """Fit, time, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", choices=["vit", "cola", "imdb"])
    parser.add_argument("model", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--statistics", type=int, default=8000)
    parser.add_argument("--out", type=Path, default=Path("runs/posthoc/scores"))
    options = parser.parse_args()
    size = Size(
        statistics=options.statistics, tests=512, corrupted=2, strangers=10, perturbed=20, severities=()
    )
    model, sets = load(options.recipe, options.model, options.data_dir, options.seed, size)
    model = model.to(options.device)
    measured: dict[str, Any] = {"made": provenance()}
    started = time.perf_counter()
    gp = sgpa.attach(model).fit(sets.train)
    fitted = time.perf_counter()
    gp.calibrate(sets.held_out)
    measured |= {"fit_s": fitted - started, "calibrate_s": time.perf_counter() - fitted}
    last = sgpa.attach(model, layers=[-2, -1]).fit(sets.train[:8]).calibrate(sets.held_out[:8])
    device = torch.device(options.device)

    @torch.no_grad()
    def plain(batch: Any) -> torch.Tensor:
        with evaluating(model):
            return logits_of(read_batch(batch, device)(model), model)

    predictors = {
        "one plain pass": plain,
        "one pass": gp.predict,
        "ten samples": lambda batch: gp.predict(batch, samples=10),
        "one pass, last two layers": last.predict,
        "ten samples, last two layers": lambda batch: last.predict(batch, samples=10),
        "MC dropout, ten passes": lambda batch: dropout_logits(model, [batch]),
    }
    test = next(iter(sets.tests.values()))
    for rows in ROWS:
        batch = resized(list(test)[:8], rows)
        on_device = {key: value.to(device) for key, value in batch.items()}
        began = time.perf_counter()
        costs = measure_costs(predictors, [on_device] * (8 if device.type == "cuda" else 1), options.device)
        measured[f"{rows} rows"] = {name: cost.time for name, cost in costs.items()}
        print(rows, measured[f"{rows} rows"], f"{time.perf_counter() - began:.0f} s", flush=True)
    write_json(options.out / f"cost-{options.recipe}-{device.type}.json", measured)


if __name__ == "__main__":
    main()
