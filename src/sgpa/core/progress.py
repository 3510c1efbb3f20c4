"""What every progress bar shows, and how often plain lines replace it."""

from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_SECONDS = 30.0  # between two lines about the same work, if the output is not a terminal


def progress_columns(width: int) -> tuple[ProgressColumn, ...]:
    """Description of so many characters, bar, share, time spent, time left and the field `note`."""
    return (
        TextColumn(f"{{task.description:<{width}}}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
