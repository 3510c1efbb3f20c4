"""Progress bars keep the bar and the times whole on a narrow terminal."""

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from sgpa.core.progress import progress_columns


@pytest.mark.parametrize("width", [80, 100, 140])
def test_only_the_note_is_cut(width):
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    bar = Progress(*progress_columns(18), console=console)
    bar.add_task(
        "sgpa, seed 0", total=320, completed=47, note="epoch 47/320  nll 0.041  KL_g 731  KL_a 719.8"
    )
    console.print(bar.get_renderable())
    line = file.getvalue().splitlines()[0]
    assert "sgpa, seed 0" in line
    assert "15 %" in line
    assert line.count("0:00:00") == 1  # time spent
    assert "-:--:--" in line  # time left is not known yet
    assert "epoch 47/320" in line or width == 80
    assert ("KL_a 719.8" in line) == (width == 140)
    assert len(file.getvalue().splitlines()) == 1
