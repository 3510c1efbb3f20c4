"""The code in the guide for extensions runs as printed."""

import re

import pytest

from support.paths import ROOT

BLOCKS = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "guides" / "extend.md").read_text(encoding="utf-8"), flags=re.S
)


@pytest.mark.slow
@pytest.mark.usefixtures("no_pdf")
def test_code_blocks_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "contributing"}
    for block in BLOCKS:
        exec(compile(block, "extend.md", "exec"), namespace)
    assert not namespace["outcome"].failures
    methods = {record["method"] for record in namespace["outcome"].results["records"]}
    assert methods == {"mle", "smoothed"}
    report, shape = capsys.readouterr().out.splitlines()
    assert (tmp_path / report).exists()
    assert shape == "torch.Size([2, 10, 64])"
