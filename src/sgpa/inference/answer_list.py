"""Answers in Python: a list whose rows have attributes, shown as a table in notebooks."""

from collections.abc import Iterable
from typing import Any

from sgpa.core.html import SHOWN, html_bar, html_table

TEXT = 60  # characters of a text in a table
RED = "#b03030"
HIDDEN = ("mutual_information", "model_deviation", "data_deviation", "row")


class AnswerRow(dict[str, Any]):
    """One answer: a dict whose entries are attributes too; `novelty` is None where it was not measured.

    >>> answer = AnswerRow(label="cat", trust=False)
    >>> answer.trust, answer.novelty
    (False, None)
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            if name == "novelty":
                return None
            raise AttributeError(f"the answer has no {name!r}; it has {', '.join(self)}") from None


class AnswerList(list[AnswerRow]):
    """Answers, one per input."""

    def __init__(self, answers: Iterable[dict[str, Any]]) -> None:
        super().__init__(AnswerRow(answer) for answer in answers)

    def _repr_html_(self) -> str:
        """The first answers; a bar shows the probability, red where the answer is not trusted."""
        if not self:
            return "<p>no answers</p>"
        columns = [name for name in self[0] if name not in HIDDEN]
        bar = "probability" in columns
        rows = []
        for answer in self:
            cells = [_cell(answer.get(name)) for name in columns]
            colour = {} if answer.get("trust", True) else {"colour": RED}
            rows.append([*cells, *([html_bar(float(answer["probability"]), **colour)] if bar else [])])
        return html_table([*columns, *([""] if bar else [])], rows, SHOWN)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    text = "" if value is None else str(value)
    return text if len(text) <= TEXT else text[: TEXT - 3] + "..."
