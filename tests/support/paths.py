"""Paths that tests use, in one place: a test that moves to another folder still finds its data."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]  # of the repository
NAMED = os.environ.get("SGPA_DATA")
DATA = Path(NAMED) if NAMED else ROOT.parent / "shared" / "data"
KEPT = {
    name: ROOT / "src" / "sgpa" / "pretrained" / name / "cells" / "kernel-sgpa-0"
    for name in ("cifar10", "digits")
}
assert all(folder.is_dir() for folder in KEPT.values())


def needs(pattern: str) -> pytest.MarkDecorator:
    """Skip a test if real data are missing, unless SGPA_DATA names their folder; then the test fails."""
    absent = not NAMED and not any(DATA.glob(pattern))
    return pytest.mark.skipif(absent, reason=f"no {pattern} in {DATA} (set SGPA_DATA)")
