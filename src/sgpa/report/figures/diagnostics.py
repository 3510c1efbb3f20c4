"""Figures of training: curves over epochs, and diagnostics of posterior collapse for every layer."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sgpa.report.figures.curves import Curve, Line, history
from sgpa.report.figures.lines import Panel, fit_scale, thinned
from sgpa.report.figures.style import SOFT, blank, legend, panels, styled
from sgpa.report.names import Key

TRAINING = {
    "nll": "Training NLL (nats)",
    "validation": "Validation NLL (nats)",
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


def training_panels(curves: Mapping[Key, Sequence[Curve]]) -> list[Panel]:
    """A panel per logged quantity; quantities that are always zero are left out."""
    shown = []
    for name, title in TRAINING.items():
        lines = {key: history(group, name) for key, group in curves.items()}
        kept = {k: line for k, line in lines.items() if line is not None and np.nanmax(np.abs(line.mean)) > 0}
        if kept:
            shown.append(Panel(title, kept))
    return shown


def layer_histories(curves: Sequence[Curve]) -> dict[str, Line]:
    """Per-layer quantities of one method, those that were logged."""
    histories = {name: history(curves, name, layers=True) for name in LAYERS}
    return {name: h for name, h in histories.items() if h is not None}


@styled
def layer_diagnostics(curves: Sequence[Curve]) -> Figure:
    """A panel per quantity with one line per layer, from light (first) to dark (last)."""
    histories = layer_histories(curves)
    depth = max(h.mean.shape[1] for h in histories.values())
    shades = mpl.colormaps["YlGnBu"](np.linspace(0.42, 1.0, depth))
    dashes = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
    figure = blank(2.2 * -(-len(histories) // 2) + 0.45)
    drawn = panels(figure, len(histories), sharex=True)
    for axes, (name, h) in zip(drawn, histories.items(), strict=True):
        kept = thinned(len(h.x))
        for layer in range(h.mean.shape[1]):
            look = {
                "color": shades[layer],
                "linestyle": dashes[layer % len(dashes)],
                "marker": "o" if len(h.x) == 1 else "",
                "label": f"layer {layer + 1}",
            }
            axes.plot(h.x[kept], h.mean[kept, layer], **look)
        axes.set_title(LAYERS[name])
        fit_scale(axes, [h.mean])
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes.tick_params(length=0, labelbottom=True)
        axes.margins(x=0.02)
    legend(figure, drawn)
    figure.supxlabel("epoch", fontsize=12, color=SOFT)
    return figure
