"""SVG figures for one HTML page: glyphs and styles that figures share are written once."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from markupsafe import Markup, escape

GLYPH = re.compile(r'<path id="([^"]+-[0-9a-f]+)" (d="[^"]*" transform="scale\(0\.015625\)")/>')


@dataclass(frozen=True)
class Inlined:
    """Figures as elements of a page, and the glyphs and styles they share."""

    figures: Mapping[str, Markup]
    letters: Markup  # an invisible element with the outline of every letter
    styles: Markup  # CSS rules


def inline(figures: Mapping[str, tuple[str, str]]) -> Inlined:
    """Make figures, name -> (text of the SVG file, alternative text), small and their ids unique.

    Coordinates are cut to a tenth of a point, unused ids are dropped, and equal glyphs and styles are shared:
    a page of many figures becomes three times smaller.
    """
    letters: dict[str, str] = {}
    styles: dict[str, str] = {}
    done = {}
    for number, (name, (svg, spoken)) in enumerate(figures.items()):
        text = _stripped(svg)
        text = GLYPH.sub(_collect(letters), text)
        text = re.sub(r' style="([^"]+)"', _classed(styles), text)
        done[name] = Markup(_named(text, f"f{number}-", letters, spoken))
    outlines = "".join(f'<path id="{name}" {outline}/>' for name, outline in letters.items())
    hidden = f'<svg class="letters" aria-hidden="true"><defs>{outlines}</defs></svg>'
    rules = "\n".join(f".{name}{{{rule}}}" for rule, name in styles.items())
    return Inlined(done, Markup(hidden), Markup(rules))


def _stripped(svg: str) -> str:
    """The <svg> element without metadata, style sheets, comments and needless digits."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r' (?:d|x|y)="[^"]+"|translate\([^)]+\)', lambda m: re.sub(r"(\.\d)\d+", r"\1", m.group()), svg
    )
    return re.sub(r"\s*\n\s*", "\n", svg)


def _collect(letters: dict[str, str]) -> Callable[[re.Match[str]], str]:
    def take(found: re.Match[str]) -> str:
        name, outline = found.groups()
        return "" if letters.setdefault(name, outline) == outline else found.group()

    return take


def _classed(styles: dict[str, str]) -> Callable[[re.Match[str]], str]:
    def take(found: re.Match[str]) -> str:
        rule = found[1]
        if "url(" in rule:  # refers to a pattern of its own figure
            return found.group()
        return f' class="{styles.setdefault(rule, f"s{len(styles)}")}"'

    return take


def _named(svg: str, prefix: str, letters: Mapping[str, str], spoken: str) -> str:
    """The element with unique ids and without a size, which the page sets."""
    own = set(re.findall(r'\sid="([^"]+)"', svg))
    used = own & {*re.findall(r"url\(#([^)]+)\)", svg), *re.findall(r'href="#([^"]+)"', svg)}
    svg = re.sub(r'\sid="([^"]+)"', lambda m: f' id="{prefix}{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}\1)", svg)
    svg = re.sub(
        r'href="#([^"]+)"',
        lambda m: m.group() if m[1] not in used and m[1] in letters else f'href="#{prefix}{m[1]}"',
        svg,
    )
    head, rest = svg.split(">", 1)
    head = re.sub(r'\s(width|height|version)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{escape(spoken)}">{rest}'
