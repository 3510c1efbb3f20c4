"""Score one trained model with an attached GP beside its baselines, and keep the columns of all rows.

    python -m tools.posthoc.evaluate vit runs/posthoc/vit-0 --seed 0 --device cuda --out runs/posthoc/scores
    python -m tools.posthoc.evaluate cola runs/posthoc/cola-mean/cola-0 --seed 0 --device cuda --out ...

Writes OUT/RECIPE-SEED.json (scores) and OUT/RECIPE-SEED.safetensors (columns of every set, float16).
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import nll_loss

import sgpa
from sgpa.core.files import read_json, write_json, write_tensors
from sgpa.core.provenance import provenance
from sgpa.experiments.audit.calibrators import LastLayerLaplace
from sgpa.experiments.audit.collect import Collected, dropout_logits
from sgpa.gp.temperature import best_temperature
from sgpa.methods.scaling import matrix_scaling, vector_scaling
from sgpa.posthoc.answers import one_pass
from sgpa.posthoc.attached import AttachedGp
from sgpa.posthoc.calibration import MAX_STRANGERS
from sgpa.posthoc.calls import read_batch
from sgpa.posthoc.scales import fit_classes
from sgpa.posthoc.statistics import device_of
from sgpa.posthoc.unfamiliar import made_unfamiliar
from tools.posthoc.analysis import MADE
from tools.posthoc.columns import Columns
from tools.posthoc.scores import classification_scores, detection
from tools.posthoc.sets import Size, load

LEVELS = (0.03, 0.1, 0.3, 1.0)  # σ² of noise that is drawn, in units of a head's spread
SAMPLES = 10
SMALL = Size(
    statistics=300, held_out=200, tests=100, corrupted=10, strangers=60, perturbed=60, severities=(1, 5)
)
Rows = dict[str, Tensor]


def collected(rows: Rows) -> Collected:
    """Columns as what calibrators read."""
    empty = torch.empty(len(rows["logits"]), 0)
    return Collected(
        rows["logits"],
        rows["carried"],
        empty,
        rows["head"],
        rows["novelty"],
        rows.get("labels"),
    )


@torch.no_grad()
def noisy_logits(gp: AttachedGp, batches: Sequence[Any], variance: Tensor, *, dropout: bool) -> Tensor:
    """Logits of passes with noise, [S, N, C]."""
    model = gp._attached("noise")
    torch.manual_seed(0)
    parts = [
        gp._draw(
            model, read_batch(batch, device_of(model)), variance, samples=SAMPLES, seed=i, dropout=dropout
        )[1].cpu()
        for i, batch in enumerate(batches)
    ]
    return torch.cat(parts, 1)


def mean_probabilities(draws: Tensor, temperature: float) -> Tensor:
    """[S, N, C] -> [N, C]."""
    return (draws.double() / temperature).softmax(-1).mean(0)


class NoiseChoice:
    """The noise with the lowest NLL of held-out rows, with its temperature."""

    def __init__(self, gp: AttachedGp, held_out: Sequence[Any], y: Tensor, *, dropout: bool) -> None:
        self.gp, self.dropout = gp, dropout
        layers = len(gp.modules)
        fitted = gp._ready("noise").scales.drawn
        settings = {str(level): torch.full((layers + 1,), level) for level in LEVELS} | {
            "fitted": fitted.float()
        }
        self.tried: dict[str, float] = {}
        best = float("inf")
        for name, variance in settings.items():
            draws = noisy_logits(gp, held_out, variance, dropout=dropout)
            T = float(best_temperature(draws, y))
            self.tried[name] = float(nll_loss(mean_probabilities(draws, T).clamp_min(1e-30).log(), y))
            if self.tried[name] < best:
                best, self.variance, self.temperature = self.tried[name], variance, T

    def probabilities(self, batches: Sequence[Any]) -> Tensor:
        """[N, C]."""
        draws = noisy_logits(self.gp, batches, self.variance, dropout=self.dropout)
        return mean_probabilities(draws, self.temperature)


class PlainGp:
    """A GP on what the head reads, after GAPA: the mean stays, the variance reaches the logits in one pass.

    Activations have the variance s² v(x), where s is their spread and v(x) the share of an RBF kernel's
    variance that 256 inducing points leave. The last layer is linear, so that a logit has the variance
    v(x) Σ_j s_j² W_kj². With its mean over classes labels stay; τ and a scale as for the attached GP.
    """

    def __init__(self, held_out: Rows) -> None:
        with torch.enable_grad():
            self.scales = fit_classes(
                held_out["logits"], held_out["plain gp"].unsqueeze(-1), held_out["labels"]
            )

    def probabilities(self, rows: Rows) -> Tensor:
        """[N, C]."""
        return one_pass(rows["logits"].double(), rows["plain gp"].double().unsqueeze(-1), self.scales)[0]


def detectors(rows: Rows) -> Rows:
    """Scores that are high for unfamiliar rows, [N] each."""
    f = rows["logits"].double()
    scores = {"entropy": torch.special.entr(f.softmax(-1)).sum(-1), "energy": -f.logsumexp(-1)}
    scores |= {name: rows[name].double() for name in ("knn", "plain gp", "novelty")}
    for name, value in rows.items():
        if value.ndim == 2 and name not in ("logits", "head", "carried", "views"):
            scores |= {f"{name}, layer {i + 1}": value[:, i].double() for i in range(value.shape[1])}
    return scores


def main() -> None:
    """Fit, collect, score, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", choices=["vit", "cola", "imdb"])
    parser.add_argument(
        "model", type=Path, nargs="+", help="folders; the one with the best history is scored"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--small", action="store_true", help="few rows, to try it")
    parser.add_argument("--out", type=Path, default=Path("runs/posthoc/scores"))
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    started = time.perf_counter()

    def tell(what: str) -> None:
        print(f"{time.perf_counter() - started:.0f} s: {what}", flush=True)

    folder = best_variant(options.model, options.seed)
    size = SMALL if options.small else Size()
    model, sets = load(options.recipe, folder, options.data_dir, options.seed, size)
    model = model.to(options.device)
    tell("loaded")
    measured: dict[str, Any] = {"model": str(folder), "made": provenance()}
    measured["training"] = read_json(folder / "history.json", dict)
    begun = time.perf_counter()
    gp = sgpa.attach(model).fit(sets.train)
    fitted = time.perf_counter()
    gp.calibrate(sets.held_out)
    measured |= {"fit_s": fitted - begun, "calibrate_s": time.perf_counter() - fitted}
    tell("calibrated")
    columns = Columns(gp, sets.train)
    statistics, held = columns.of(sets.train), columns.of(sets.held_out)
    tests = {name: columns.of(rows) for name, rows in sets.tests.items()}
    made = unfamiliar_sets(sets.held_out, device_of(model))
    others = {name: columns.of(rows) for name, rows in (sets.strangers | sets.perturbed | made).items()}
    tell("collected")
    measured["scores"] = calibration(gp, sets, statistics, held, tests, measured, tell)
    inside = detectors(next(iter(tests.values())))
    measured["detection"] = {name: detection(inside, detectors(rows)) for name, rows in others.items()}
    later = list(tests.items())[1:]
    measured["detection"] |= {name: detection(inside, detectors(rows)) for name, rows in later}
    inside = detectors(held)
    measured["chosen_on"] = {name: detection(inside, detectors(others[name])) for name in sets.perturbed}
    name = f"{options.recipe}-{options.seed}"
    write_json(options.out / f"{name}.json", measured)
    keep = {"statistics": statistics, "held out": held} | tests | others
    dump = {
        f"{part}/{key}": (value.half() if value.is_floating_point() else value).contiguous()
        for part, rows in keep.items()
        for key, value in rows.items()
        if key != "head" and not (part == "statistics" and key != "logits")
    }
    write_tensors(options.out / f"{name}.safetensors", dump)
    tell("written")


def unfamiliar_sets(held_out: Sequence[Any], device: torch.device) -> dict[str, list[Any]]:
    """Rows of held-out batches as `calibrate` makes them unfamiliar, `MAX_STRANGERS` or more of a kind."""
    kinds: dict[str, list[Any]] = {}
    count = 0
    for batch in held_out:
        call = read_batch(batch, device)
        for i, changed in enumerate(made_unfamiliar(call)):
            kinds.setdefault(f"{MADE}{i + 1}", []).append(changed.options)
        count += len(batch["labels"])
        if count >= MAX_STRANGERS:
            break
    return kinds


def best_variant(folders: Sequence[Path], seed: int) -> Path:
    """Of several variants the one with the best mean MCC of held-out rows over its seeds."""
    if len(folders) == 1:
        return folders[0]

    def mean(folder: Path) -> float:
        files = sorted(folder.parent.glob(f"{folder.name.rsplit('-', 1)[0]}-*/history.json"))
        best = [max(epoch["mcc"] for epoch in read_json(file, dict)["epochs"]) for file in files]
        return sum(best) / len(best)

    for folder in folders:
        print(f"{folder.parent.name}: held-out MCC {mean(folder):.4f}", flush=True)
    best = max(folders, key=mean)
    assert best.name.endswith(f"-{seed}")
    return best


def calibration(
    gp: AttachedGp,
    sets: Any,
    statistics: Rows,
    held: Rows,
    tests: dict[str, Rows],
    measured: dict[str, Any],
    tell: Any,
) -> dict[str, dict[str, dict[str, float]]]:
    """Scores of every method on every test set."""
    f, y = held["logits"], held["labels"]
    scales = gp._ready("calibrate").scales
    T = best_temperature(f.unsqueeze(0), y)
    vector, matrix = vector_scaling(f, y), matrix_scaling(f, y)
    tell("scaled")
    laplace = LastLayerLaplace.fit(collected(statistics), collected(held))
    plain = PlainGp(held)
    model = gp._attached("calibrate")
    dropped = float(best_temperature(dropout_logits(model, sets.held_out), y))
    tell("dropout")
    noise = NoiseChoice(gp, sets.held_out, y, dropout=False)
    both = NoiseChoice(gp, sets.held_out, y, dropout=True)
    measured |= {"noise": noise.tried, "noise_with_dropout": both.tried}
    measured |= {"tau2": float(scales.data), "sigma2": scales.layers.tolist(), "temperature": float(T)}
    tell("noise chosen")
    result = {}
    for name, rows in tests.items():
        batches, own = sets.tests[name], rows["logits"].double()
        made = {
            "MLE": own.softmax(-1),
            "temperature": (own / T).softmax(-1),
            "vector scaling": vector.logits(own).softmax(-1),
            "matrix scaling": matrix.logits(own).softmax(-1),
            "KFAC Laplace": laplace.probabilities(rows["head"], own),
            "GP on activations": plain.probabilities(rows),
            "MC dropout + temperature": mean_probabilities(dropout_logits(model, batches), dropped),
            "GP, one pass": one_pass(own, rows["carried"].double(), scales)[0],
            "GP, ten samples": noise.probabilities(batches),
            "GP, ten samples with dropout": both.probabilities(batches),
        }
        result[name] = {method: classification_scores(p, rows["labels"]) for method, p in made.items()}
        tell(name)
    return result


if __name__ == "__main__":
    main()
