"""Predictions shown in notebooks."""

import torch

from sgpa.core.types import Classification, Regression


def test_class_probabilities_are_a_table_with_a_bar():
    p = Classification(torch.tensor([[0.25, 0.75]]).expand(25, 2), torch.full((25,), 0.5))
    html = p._repr_html_()
    assert "<td>0</td><td>1</td><td>0.750</td><td><svg" in html
    assert "<td>0.562</td><td>0.062</td>" in html
    assert html.count("<tr>") == 21
    assert html.endswith("<p>and 5 more</p>")


def test_values_are_a_table_with_intervals():
    residuals = torch.tensor([1.0, 2.0, 3.0])
    html = Regression(torch.tensor([[1.0], [3.0]]), torch.tensor(0.5), residuals)._repr_html_()
    # mean 2, variance 1 + 2 b^2 = 1.5, the largest residual is 3 deviations
    assert "<td>0</td><td>2</td><td>1.225</td><td>-1.674</td><td>5.674</td>" in html
