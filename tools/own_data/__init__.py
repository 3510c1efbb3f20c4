"""Train on few rows with the library's defaults, and measure the result beside simple baselines.

Each kind of data is a module with

- `measure(rows, seed, data_dir) -> dict[str, list[float]]`: method -> its scores on test rows, then its CPU
  seconds; the methods of the library come first. It may take `device` as well.
- `COLUMNS`: the names of the scores, with an arrow that says which way is better: "accuracy ↑", "NLL ↓".
- `RECIPE`: what was trained and tested, in one or two sentences, for the page.
- `FIRST`: the method whose scores are judged, where it is not the first (optional).
- `TARGETS`: rows -> score name -> the value to reach (optional).
"""
