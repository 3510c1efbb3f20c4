"""Style of all figures: palette, fonts, panels and legends; saving as SVG and PDF.

Colours are safe for colour-blind readers; marker, dash and hatch repeat the distinction in greyscale.
"""

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.layout_engine import ConstrainedLayoutEngine

from sgpa.core.files import write_bytes
from sgpa.report.names import Key, base

P = ParamSpec("P")
R = TypeVar("R")

WIDTH = 5.6  # inches: half a page, and readable at the 350 pixels of a phone
INK, SOFT, RULE, PAPER = "#1d2329", "#5c6570", "#e4e7eb", "#ffffff"
FONTS = ("Inter", "Source Sans 3", "Helvetica Neue", "Helvetica", "Arial", "Liberation Sans")


@dataclass(frozen=True)
class Look:
    """How one method is drawn in all figures."""

    colour: str
    marker: str
    dash: str | tuple[int, tuple[float, ...]]
    hatch: str
    hollow: bool = False  # dot-product attention

    @property
    def line(self) -> dict[str, Any]:
        """Arguments of `Axes.plot`."""
        face = PAPER if self.hollow else self.colour
        return {"color": self.colour, "marker": self.marker, "linestyle": self.dash, "markerfacecolor": face}

    @property
    def bar(self) -> dict[str, Any]:
        """Arguments of `Axes.bar`."""
        face, edge = (PAPER, self.colour) if self.hollow else (self.colour, PAPER)
        return {"facecolor": face, "edgecolor": edge, "hatch": self.hatch}


LOOKS = {  # hatches of lines only: dots and circles make files of megabytes
    "mle": Look("#e08214", "s", (0, (5, 1.6)), "///"),
    "ts": Look("#9a8700", "v", (0, (1.2, 1.2)), "/-"),
    "vs": Look("#b08d57", ">", (0, (8, 1, 1, 1)), "\\\\"),
    "ms": Look("#8c5a6e", "p", (0, (5, 3)), "-\\"),
    "mfvi": Look("#cc79a7", "^", (0, (6, 1.5, 1.2, 1.5)), "\\\\\\"),
    "mcd": Look("#009e73", "D", (0, (3, 1.2)), "xxx"),
    "kflla": Look("#7a5195", "P", (0, (7, 2)), "---"),
    "posthoc": Look("#17808a", "<", (0, (4, 1.2, 1, 1.2)), "//-"),
    "sngp": Look("#a5300f", "X", (0, (4, 1, 1, 1, 1, 1)), "|||"),
    "sgpa": Look("#0b559f", "o", "-", ""),
    "sgpah": Look("#2f6fb7", "d", (0, (9, 1, 2, 1)), "||-"),
    "de": Look("#333333", "h", (0, (2, 1)), "+++"),
    "sgpae": Look("#4fa9de", "*", (0, (11, 1.2)), "\\|"),
}
OTHERS = (  # for other methods, in order of appearance
    Look("#6b7280", "8", (0, (1, 2)), "//"),
    Look("#5f7161", "H", (0, (2, 2)), "xx"),
    Look("#94a3b8", "1", (0, (3, 1, 1, 1)), "||"),
)


Looks = Mapping[Key, Look]


def looks(keys: Iterable[Key]) -> dict[Key, Look]:
    """The look of each (attention, method): one colour per method, hollow markers for dot-product.

    Variants of a method take its look and those of methods that do not appear. Computed once for all rows of
    a page, so that a method looks the same in every figure.
    """
    keys = list(keys)
    methods = list(dict.fromkeys(method for _, method in keys))
    known = {method: LOOKS[method] for method in methods if method in LOOKS}
    variants = [method for method in methods if base(method) != method]
    own = [base(method) for method in variants if base(method) in LOOKS]
    free = [name for name in dict.fromkeys([*own, *LOOKS]) if name not in known]
    known |= {method: LOOKS[look] for method, look in zip(variants, free, strict=False)}
    unknown = [method for method in methods if method not in known]
    known |= {method: OTHERS[i % len(OTHERS)] for i, method in enumerate(unknown)}
    return {key: replace(known[key[1]], hollow=key[0] == "sdp") for key in keys}


@lru_cache(maxsize=1)
def _family() -> tuple[str, ...]:
    """The first installed of `FONTS`, then the font of matplotlib for missing glyphs."""
    installed = set(fontManager.get_font_names())
    return (*[name for name in FONTS if name in installed][:1], "DejaVu Sans")


def _settings() -> Any:  # matplotlib types its keys differently from version to version
    return {
        "font.family": list(_family()),
        "font.size": 12,
        "axes.titlesize": 13,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titlepad": 8,
        "axes.labelsize": 12,
        "axes.labelcolor": SOFT,
        "axes.edgecolor": "#aab1ba",
        "axes.linewidth": 0.9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": RULE,
        "grid.linewidth": 0.8,
        "text.color": INK,
        "xtick.color": "#aab1ba",
        "ytick.color": "#aab1ba",
        "xtick.labelcolor": SOFT,
        "ytick.labelcolor": SOFT,
        "xtick.labelsize": 11,
        "ytick.labelsize": 11,
        "lines.linewidth": 2,
        "lines.markersize": 6.5,
        "lines.markeredgewidth": 1.4,
        "hatch.linewidth": 0.9,
        "legend.frameon": False,
        "legend.fontsize": 12,
        "legend.handlelength": 2.6,
        "figure.facecolor": PAPER,
        "savefig.facecolor": PAPER,
        "svg.fonttype": "path",  # glyphs as outlines: the same on every machine
        "svg.hashsalt": "sgpa",  # equal figures give equal files
        "pdf.fonttype": 42,
    }


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Run a drawing function with our settings, without changing those of the caller."""

    @wraps(draw)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        with mpl.rc_context(_settings()):
            return draw(*args, **kwargs)

    return inner


def blank(height: float) -> Figure:
    """An empty figure one column wide."""
    air = ConstrainedLayoutEngine(h_pad=0.09, w_pad=0.05, hspace=0.03)
    return Figure(figsize=(WIDTH, height), layout=air)


def panels(figure: Figure, count: int, columns: int = 2, **options: Any) -> list[Any]:
    """`count` axes in reading order on a grid; the rest of the last row stays empty."""
    columns = min(columns, count)
    grid = figure.subplots(-(-count // columns), columns, squeeze=False, **options)
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.remove()
    return axes[:count]


def legend(figure: Figure, axes: Iterable[Any]) -> None:
    """One legend above all panels, each name once, in as many columns as fit; the figure grows to hold it."""
    handles = {
        line.get_label(): line
        for panel in axes
        for line in panel.get_lines()
        if not line.get_label().startswith("_")
    }
    many = len(handles) > 6
    longest = max(map(len, handles), default=0)
    columns = min(len(handles), 2 if longest > (20 if many else 14) else 3)
    size = {"fontsize": 10.5, "handlelength": 2.4, "columnspacing": 1.0} if many else {}
    figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=columns, **size)
    rows = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + 0.24 * (rows - 1))


@styled
def svg_bytes(figure: Figure) -> bytes:
    """The figure as SVG, drawn in memory: on a full disk a canvas raises errors of its own."""
    drawn = io.BytesIO()
    FigureCanvasSVG(figure).print_svg(drawn, metadata={"Date": None})
    return drawn.getvalue()


@styled
def save(figure: Figure, path: Path, *, pdf: bool = True) -> Path:
    """Write `path`.svg, and `path`.pdf if asked for; returns the first. Equal figures give equal files.

    `Figure.savefig` would draw every figure twice, once for a layout that is already known.
    """
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")  # the layout of many panels takes seconds: compute it once
    svg = path.with_suffix(".svg")
    write_bytes(svg, svg_bytes(figure))
    if pdf:
        drawn = io.BytesIO()
        FigureCanvasPdf(figure).print_pdf(drawn, metadata={"CreationDate": None})
        write_bytes(path.with_suffix(".pdf"), drawn.getvalue())
    return svg
