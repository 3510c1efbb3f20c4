"""The attached GP from the columns that `evaluate` kept: one pass, novelty, and ensembles of all seeds."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sgpa.core.files import read_json, read_tensors
from sgpa.gp.temperature import best_temperature
from sgpa.posthoc.answers import one_pass
from sgpa.posthoc.scales import fit_classes
from sgpa.posthoc.view_weights import LARGEST, fit_weights
from tools.posthoc.scores import classification_scores, detection

Rows = dict[str, Tensor]
MADE = "made unfamiliar "  # sets that `calibrate` makes itself
UNFAMILIAR = {  # kinds of changed held-out rows in their place, in columns of an earlier `evaluate`
    "vit": ("mixtures", "shuffled tiles", "noise", "blur", "low contrast"),
    "cola": ("joined halves", "replaced words", "reversed words", "random words"),
    "imdb": ("joined halves", "replaced words", "reversed words", "random words"),
}
REPORTED = {
    "vit": ("SVHN", "CIFAR-100", "mini-ImageNet"),
    "cola": ("film reviews", "shuffled words", "out of domain"),
    "imdb": ("CoLA sentences", "shuffled words"),
}
FIRST = {"vit": "test", "cola": "in domain", "imdb": "test"}


def read(file: Path) -> dict[str, Rows]:
    """Sets of rows by name."""
    sets: dict[str, Rows] = {}
    for key, value in read_tensors(file)[0].items():
        name, column = key.rsplit("/", 1)
        sets.setdefault(name, {})[column] = value.double() if value.is_floating_point() else value
    return sets


def carried(rows: Rows) -> Tensor:
    """Variances of the layers, and of the GP over what the head reads, [N, L + 1]."""
    layers = rows["shares"].shape[1]
    if rows["carried"].shape[1] > layers:
        return rows["carried"]
    return torch.cat([rows["carried"], rows["rows 256 1.0"][:, layers:]], 1)


def columns(rows: Rows) -> Tensor:
    """Those of `sgpa.posthoc.views`: energy, entropy, GPs of tokens, of rows and of what the head reads."""
    if "views" in rows:
        return rows["views"]
    f = rows["logits"]  # rows of an earlier `evaluate`
    energy, entropy = -f.logsumexp(-1), torch.special.entr(f.softmax(-1)).sum(-1)
    output = torch.stack([energy, entropy], 1)
    return torch.cat([output, rows["tokens 64 1.0"][:, 1:], rows["rows 256 1.0"][:, 1:]], 1)


def scores_of(recipe: str, sets: dict[str, Rows]) -> dict[str, Any]:
    """One pass of the GP on every test set, and detection by novelty, the output and single layers."""
    held = sets["held out"]
    with torch.enable_grad():
        scales = fit_classes(held["logits"], carried(held), held["labels"])
    tests = [name for name, rows in sets.items() if "labels" in rows and name != "held out"]
    measured: dict[str, Any] = {"scores": {}, "detection": {}}
    for name in tests:
        rows = sets[name]
        p, _ = one_pass(rows["logits"], carried(rows), scales)
        measured["scores"][name] = {"GP, one pass": classification_scores(p, rows["labels"])}
    x = columns(held)
    offset, scale = x.mean(0), x.std(0)

    def z(rows: Rows) -> Tensor:
        return ((columns(rows) - offset) / scale).clamp(-LARGEST, LARGEST)

    made = [name for name in sets if name.startswith(MADE)] or UNFAMILIAR[recipe]
    weights = fit_weights(z(held), [z(sets[name]) for name in made])
    assert weights is not None

    def detectors(rows: Rows) -> Rows:
        f, layers = rows["logits"], rows["shares"].shape[1]
        made = {"novelty": z(rows) @ weights, "energy": -f.logsumexp(-1), "kNN": rows["knn"]}
        made["entropy"] = torch.special.entr(f.softmax(-1)).sum(-1)
        made["GP on activations"] = rows["plain gp"]
        made["Mahalanobis, head"] = rows["class distance 0.01"][:, layers]
        made |= {f"Mahalanobis, layer {i + 1}": rows["distance 0.01"][:, i] for i in range(1, layers)}
        return made | {f"GP of queries, layer {i + 1}": rows["shares"][:, i] for i in range(1, layers)}

    inside = detectors(sets[FIRST[recipe]])
    for name in REPORTED[recipe]:
        measured["detection"][name] = detection(inside, detectors(sets[name]))
    return measured | {
        "weights": weights.tolist(),
        "sigma2": scales.layers.tolist(),
        "tau2": float(scales.data),
    }


def ensemble(recipe: str, members: list[dict[str, Rows]]) -> dict[str, Any]:
    """Mean probabilities of all seeds: scores on every test set, and detection by their entropy.

    Images have one temperature for the mean, fitted on the held-out images that all seeds share. Texts that
    one seed holds out were trained on by others, so that there every member has its own temperature.
    """
    if recipe == "vit":
        f = torch.stack([sets["held out"]["logits"] for sets in members])
        T = best_temperature(f, members[0]["held out"]["labels"]).expand(len(members))
    else:
        own = [(sets["held out"]["logits"].unsqueeze(0), sets["held out"]["labels"]) for sets in members]
        T = torch.stack([best_temperature(f, y) for f, y in own])

    def probabilities(name: str) -> Tensor:
        each = [(sets[name]["logits"] / t).softmax(-1) for sets, t in zip(members, T, strict=True)]
        return torch.stack(each).mean(0)

    tests = [name for name, rows in members[0].items() if "labels" in rows and name != "held out"]
    scores = {name: classification_scores(probabilities(name), members[0][name]["labels"]) for name in tests}

    def entropy(name: str) -> Rows:
        return {"entropy": torch.special.entr(probabilities(name)).sum(-1)}

    inside = entropy(FIRST[recipe])
    detected = {name: detection(inside, entropy(name))["entropy"] for name in REPORTED[recipe]}
    return {"members": len(members), "scores": scores, "detection": detected}


def summary(folder: Path, recipe: str) -> dict[str, Any]:
    """All numbers of a recipe: those of `evaluate` and those made here, by seed."""
    seeds: dict[str, Any] = {}
    members = []
    for file in sorted(folder.glob(f"{recipe}-[0-9].json")):
        told, sets = read_json(file, dict), read(file.with_suffix(".safetensors"))
        members.append(sets)
        own = scores_of(recipe, sets)
        for name, methods in own["scores"].items():
            methods |= {
                method: scores for method, scores in told["scores"][name].items() if method != "GP, one pass"
            }
        kept = {key: told[key] for key in ("made", "fit_s", "calibrate_s", "noise", "noise_with_dropout")}
        training = told["training"]
        kept["training"] = {
            "setting": training["setting"],
            "last": training["epochs"][-1],
            "made": training["made"],
        }
        seeds[file.stem.rsplit("-", 1)[1]] = own | kept
    measured: dict[str, Any] = {"recipe": recipe, "seeds": seeds}
    if len(members) > 1:
        measured["ensemble"] = ensemble(recipe, members)
    return measured
