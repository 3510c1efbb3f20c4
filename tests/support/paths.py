"""Where things are, in one place: a test file that moves must not lose its data and be skipped unnoticed."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]  # of the repository
NAMED = os.environ.get("SGPA_DATA")
DATA = Path(NAMED) if NAMED else ROOT.parent / "shared" / "data"
KEPT = {name: ROOT / "models" / name / "cells" / "kernel-sgpa-0" for name in ("cifar10", "digits")}
assert all(folder.is_dir() for folder in KEPT.values())


def needs(pattern: str) -> pytest.MarkDecorator:
    """Skip a test where real files are not there; where SGPA_DATA names their folder, let it fail."""
    absent = not NAMED and not any(DATA.glob(pattern))
    return pytest.mark.skipif(absent, reason=f"no {pattern} in {DATA} (set SGPA_DATA)")
