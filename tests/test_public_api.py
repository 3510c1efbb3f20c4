"""What `import sgpa` offers: every public name exists, is documented and has a type."""

import inspect
import subprocess
import sys

import pytest

import sgpa

OUTSIDE = """
import torch
import sgpa
from sgpa import ModelConfig, OptimConfig, PatchConfig, Sgpa, SgpaConfig

layer = sgpa.OrthogonalSgpa(8, 2, sgpa.ArdRbfKernel(2, 4), num_global=3)
value: torch.Tensor = layer(torch.randn(1, 2, 8)).value
method = Sgpa(attention=SgpaConfig(num_global=4), initial_variance_scale=0.1)
config = ModelConfig(embedding=PatchConfig(image_size=8, channels=1), depth=1, width=8, outputs=2)
reveal_type(sgpa.fit)
wrong: int = SgpaConfig()
sgpa.OrthogonalSgpa("8", 2, sgpa.ArdRbfKernel(2, 4))
"""
SETTINGS = """
[mypy]
strict = True
[mypy-torch.*,numpy.*,scipy.*,transformers.*]
follow_imports = skip
follow_imports_for_stubs = True
"""  # reading the types of torch takes ten seconds; `make lint` does it


@pytest.mark.parametrize("name", sgpa.__all__)
def test_every_public_name_exists_and_is_documented(name):
    assert name in dir(sgpa)
    assert inspect.getdoc(getattr(sgpa, name))


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'Fit'"):
        _ = sgpa.Fit


@pytest.mark.slow
def test_types_are_visible_from_outside(tmp_path):
    (tmp_path / "use.py").write_text(OUTSIDE)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "use.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in checked.stdout.splitlines() if "error:" in line]
    assert len(errors) == 2, checked.stdout + checked.stderr
    assert "use.py:11" in errors[0]
    assert "SgpaConfig" in errors[0]
    assert 'use.py:12: error: Argument 1 to "OrthogonalSgpa" has incompatible type "str"' in errors[1]
    assert 'Revealed type is "def (' in checked.stdout
