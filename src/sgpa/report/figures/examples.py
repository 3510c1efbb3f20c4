"""Single inputs with the predictions of each method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sgpa.report.figures.curves import Curve, numbers
from sgpa.report.figures.style import INK, RULE, SOFT, Looks, blank, styled
from sgpa.report.names import Key, labels

MOST_EXAMPLES = 8
METHODS_ABREAST = 3  # more would make the bars too thin to read


@dataclass(frozen=True)
class Example:
    """One input and the prediction of each method."""

    caption: str
    image: np.ndarray  # [rows, columns], grey values from 0 to 1
    answers: Mapping[Key, Mapping[str, Any]]


def match_examples(curves: Mapping[Key, Sequence[Curve]]) -> list[Example]:
    """Examples of each method's first seed, matched by caption; repeated captions are matched in order."""
    by_caption: dict[tuple[str, int], tuple[np.ndarray, dict[Key, Mapping[str, Any]]]] = {}
    for key, group in curves.items():
        seen: dict[str, int] = {}
        for item in group[0]["data"]:
            caption = str(item["caption"])
            seen[caption] = seen.get(caption, 0) + 1
            _, answers = by_caption.setdefault((caption, seen[caption]), (numbers(item["image"]), {}))
            answers[key] = item
    return [Example(caption, image, answers) for (caption, _), (image, answers) in by_caption.items()]


@styled
def example_predictions(examples: Sequence[Example], keys: Sequence[Key], style: Looks) -> Figure:
    """Each input with the class probabilities of the methods `keys`; entropy and information in nats."""
    examples = examples[:MOST_EXAMPLES]
    names = labels(keys)
    figure = blank(1.45 * len(examples) + 0.35)
    grid = figure.subplots(
        len(examples), 1 + len(keys), squeeze=False, width_ratios=[1.0, *[1.75] * len(keys)]
    )
    for place, (line, example) in enumerate(zip(grid, examples, strict=True)):
        _picture(line[0], example, narrow=len(keys) >= METHODS_ABREAST)
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


def _picture(axes: Any, example: Example, *, narrow: bool) -> None:
    axes.imshow(example.image, cmap="gray", vmin=0, vmax=1, interpolation="none")
    axes.set(xticks=[], yticks=[])
    axes.set_xlabel(fill(example.caption, 12 if narrow else 15), color=INK, fontsize=11)
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set(visible=True, color=RULE)
