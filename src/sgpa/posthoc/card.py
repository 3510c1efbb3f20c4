"""The model card of an adapter: what it is, what it was fitted to, how it is used."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgpa.posthoc.adapter import Adapter

FILE, START = "README.md", "---\nlibrary_name: sgpa\n"
TEXT = """---
library_name: sgpa
tags:
- uncertainty
- gaussian-process
- out-of-distribution-detection
---

# Gaussian processes for a {model_type}

Calibrated confidence and novelty for one trained model, whose weights are not part of this folder. Labels of
classes stay the model's own.

```python
import sgpa

gp = sgpa.attach(model, "{name}")  # the {model_type} with weights {model}
answer = gp.predict(batch)
answer.probabilities, answer.novelty
```

| | |
|---|---|
| model | {model_type}, fingerprint of its weights {model} |
| attention modules | {layers}: {modules} |
| inducing queries of a head | {points} |
| {scale} | {tau:.3g} |
| σ of the layers | {sigma} |
| held-out rows | {rows:,} |

Held-out rows chose the numbers above and are the standard of novelty: an input with novelty 0.99 looks less
familiar than 99 % of them. Other populations need `calibrate` with rows of their own.
"""


def is_free(file: Path) -> bool:
    """Whether a card may be written: there is none, or that of an adapter."""
    return not file.exists() or file.read_text(encoding="utf-8", errors="replace").startswith(START)


def model_card(adapter: "Adapter", name: str) -> str:
    """Markdown with the metadata that the Hugging Face hub reads.

    Args:
        adapter: fitted and calibrated.
        name: what `attach` is to be called with: a folder, or `owner/name`.
    """
    modules = adapter.modules
    shown = ", ".join(
        f"`{module}`" for module in (modules if len(modules) <= 2 else (modules[0], modules[-1]))
    )
    return TEXT.format(
        model_type=adapter.model_type,
        model=adapter.model,
        name=name,
        layers=len(modules),
        modules=shown if len(modules) <= 2 else shown.replace(", ", " to "),
        points=adapter.gps[0].Z.shape[1],
        scale="temperature τ" if adapter.classes else "deviation τ of the data",
        tau=float(adapter.scales.data) ** 0.5,
        sigma=", ".join(f"{x:.2g}" for x in adapter.scales.layers.sqrt().tolist()),
        rows=len(adapter.novelty.held_out),
    )
