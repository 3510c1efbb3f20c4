"""Figures of what happened inside: training histories, per-layer collapse signs, example predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sgpa.report.curves import Curve, History, history, numbers
from sgpa.report.figures import panels
from sgpa.report.names import Key, labels
from sgpa.report.style import INK, RULE, SOFT, blank, legend, looks, styled

TRAINING = {
    "nll": "Training NLL (nats)",
    "validation": "Validation criterion",
    "kl_g": "Global KL (nats)",
    "kl_a": "Amortised KL (nats)",
}
LAYERS = {
    "kl_g": "Global KL (nats)",
    "kl_a": "Amortised KL (nats)",
    "variance": "Kernel variance σ²",
    "snr": "Signal-to-noise ratio",
    "off_diagonal": "Attention to other tokens",
}
MOST_EXAMPLES = 8
METHODS_ABREAST = 3  # more would make the bars too thin to read


def _scale(axes: Any, values: Sequence[np.ndarray]) -> None:
    """A logarithmic axis where positive values span more than a factor 50, else a linear one."""
    flat = np.concatenate([v.ravel() for v in values])
    flat = flat[np.isfinite(flat)]
    if flat.size and flat.min() > 0 and flat.max() > 50 * flat.min():
        axes.set_yscale("log")
        axes.minorticks_off()
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.tick_params(length=0, labelbottom=True)
    axes.margins(x=0.02)


def training_histories(curves: Mapping[Key, Sequence[Curve]]) -> dict[str, dict[Key, History]]:
    """What was logged per epoch, by quantity and method; quantities that are zero throughout are left out."""
    found: dict[str, dict[Key, History]] = {}
    for name in TRAINING:
        for key, group in curves.items():
            h = history(group, name)
            if h is not None and np.nanmax(np.abs(h.mean)) > 0:
                found.setdefault(name, {})[key] = h
    return found


@styled
def training_curves(curves: Mapping[Key, Sequence[Curve]]) -> Figure:
    """Likelihood, validation and both KL parts per epoch; mean over seeds, band ± 1 s.e."""
    found = training_histories(curves)
    names, style = labels(curves), looks(curves)
    figure = blank(2.3 * -(-len(found) // 2) + 0.45)
    drawn = panels(figure, len(found), sharex=True)
    for axes, (name, lines) in zip(drawn, found.items(), strict=True):
        for key, h in lines.items():
            line = {**style[key].line, "marker": "", "label": names[key]}
            axes.fill_between(
                h.epoch, h.mean - h.error, h.mean + h.error, color=style[key].colour, alpha=0.2, lw=0
            )
            axes.plot(h.epoch, h.mean, **line)
        axes.set_title(TRAINING[name])
        _scale(axes, [h.mean for h in lines.values()])
    legend(figure, drawn)
    figure.supxlabel("epoch", fontsize=12, color=SOFT)
    return figure


def layer_histories(curves: Sequence[Curve]) -> dict[str, History]:
    """Per-layer quantities of one method, those that were logged."""
    found = {name: history(curves, name, layers=True) for name in LAYERS}
    return {name: h for name, h in found.items() if h is not None}


@styled
def layer_diagnostics(curves: Sequence[Curve]) -> Figure:
    """Small multiples of the signs of collapse, one line per layer, from light (first) to dark (last)."""
    found = layer_histories(curves)
    depth = max(h.mean.shape[1] for h in found.values())
    shades = mpl.colormaps["YlGnBu"](np.linspace(0.42, 1.0, depth))
    dashes = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
    figure = blank(2.2 * -(-len(found) // 2) + 0.45)
    drawn = panels(figure, len(found), sharex=True)
    for axes, (name, h) in zip(drawn, found.items(), strict=True):
        for layer in range(h.mean.shape[1]):
            look = {
                "color": shades[layer],
                "linestyle": dashes[layer % len(dashes)],
                "label": f"layer {layer + 1}",
            }
            axes.plot(h.epoch, h.mean[:, layer], **look)
        axes.set_title(LAYERS[name])
        _scale(axes, [h.mean])
    legend(figure, drawn)
    figure.supxlabel("epoch", fontsize=12, color=SOFT)
    return figure


@dataclass(frozen=True)
class Example:
    """One input and what each method says about it."""

    caption: str
    image: np.ndarray  # [rows, columns], grey values from 0 to 1
    answers: Mapping[Key, Mapping[str, Any]]


def match_examples(curves: Mapping[Key, Sequence[Curve]]) -> list[Example]:
    """Examples of each method's first seed, matched by caption; repeated captions are matched in order."""
    found: dict[tuple[str, int], tuple[np.ndarray, dict[Key, Mapping[str, Any]]]] = {}
    for key, group in curves.items():
        seen: dict[str, int] = {}
        for item in group[0]["data"]:
            caption = str(item["caption"])
            seen[caption] = seen.get(caption, 0) + 1
            _, answers = found.setdefault((caption, seen[caption]), (numbers(item["image"]), {}))
            answers[key] = item
    return [Example(caption, image, answers) for (caption, _), (image, answers) in found.items()]


@styled
def example_predictions(examples: Sequence[Example], keys: Sequence[Key]) -> Figure:
    """Each input with the class probabilities of the methods `keys`; entropy and information in nats."""
    examples = examples[:MOST_EXAMPLES]
    names, style = labels(keys), looks(keys)
    figure = blank(1.45 * len(examples) + 0.35)
    grid = figure.subplots(
        len(examples), 1 + len(keys), squeeze=False, width_ratios=[1.0, *[1.75] * len(keys)]
    )
    for place, (line, example) in enumerate(zip(grid, examples, strict=True)):
        picture = line[0]
        picture.imshow(example.image, cmap="gray", vmin=0, vmax=1, interpolation="none")
        picture.set(xticks=[], yticks=[])
        picture.set_xlabel(fill(example.caption, 15 if len(keys) < 3 else 12), color=INK, fontsize=11)
        picture.grid(visible=False)
        for side in picture.spines.values():
            side.set(visible=True, color=RULE)
        for axes, key in zip(line[1:], keys, strict=True):
            answer = example.answers.get(key)
            if answer is None:
                axes.set_axis_off()
                continue
            p = numbers(answer["probabilities"])
            axes.bar(range(len(p)), p, width=0.74, linewidth=0.6, **style[key].bar)
            axes.set(ylim=(0, 1), yticks=[0, 0.5, 1], xlim=(-0.6, len(p) - 0.4))
            axes.set_yticklabels(["0", "", "1"])
            axes.set_xticks(range(len(p)) if len(p) <= 12 else [])
            axes.tick_params(length=0, labelsize=10)
            axes.grid(visible=False, axis="x")
            parts = [("H", answer.get("entropy")), ("MI", answer.get("mutual_information"))]
            note = "   ".join(f"{symbol} {value:.2f}" for symbol, value in parts if value is not None)
            axes.set_title(note, fontsize=11, weight="normal", color=SOFT, loc="right", pad=3)
            if place == 0:
                name = names[key].replace(" ", "\n", 1) if len(keys) > 2 else names[key]
                above = {"xytext": (0, 20), "textcoords": "offset points"}
                axes.annotate(name, (0, 1), xycoords="axes fraction", weight="bold", **above)
    return figure
