"""Provenance of a page: commands, versions, hardware, commit and date of one or several runs."""

import json
from collections.abc import Mapping
from typing import Any

from sgpa.report.names import method_name

MOST_LINES = 12  # of commands: every cell of a benchmark may have its own


def facts(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The recorded facts as (name, text); several values of a fact are joined."""
    found = [(word, _texts(run.get(word.lower()))) for word in ("Date", "Commit", "Hardware")]
    found.append(("Versions", _texts(run.get("versions"))))
    seconds = (run.get("seconds") or {}).items()
    times = [f"{method_name(name)} {_duration(float(s))}" for name, s in seconds if s is not None]
    found.append(("Time", times))
    found.append(
        ("Data", [f"{name}: {_texts(mark)[0]}" for name, mark in (run.get("data") or {}).items() if mark])
    )
    return [(name, "; ".join(texts)) for name, texts in found if texts]


def command(run: Mapping[str, Any]) -> str:
    """The commands, one per line."""
    lines = _texts(run.get("command"))
    more = [f"... and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    return "\n".join(lines[:MOST_LINES] + more)


def recipe(run: Mapping[str, Any]) -> str:
    """The settings as JSON."""
    given = run.get("recipe")
    return json.dumps(given, indent=2, ensure_ascii=False, default=str) if given else ""


def _texts(value: Any) -> list[str]:
    """A fact as texts: a list is one per value, a dict is one line of its items."""
    if not value:
        return []
    if isinstance(value, Mapping):
        return [", ".join(f"{name} {item}" for name, item in value.items())]
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else [str(value)]


def _duration(seconds: float) -> str:
    """'8.4 s', '2 min 05 s' or '3 h 20 min'."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
