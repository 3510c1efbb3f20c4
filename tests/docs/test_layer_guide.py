"""The Python code of the guide to the layer runs from top to bottom."""

import re

from support.paths import ROOT

PAGE = ROOT / "docs" / "guides" / "layer.md"


def test_code_runs():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.S)
    assert len(blocks) == 4
    exec(compile("\n".join(blocks), str(PAGE), "exec"), {})
