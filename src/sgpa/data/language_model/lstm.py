"""One LSTM layer with the projection and the clipping of the published ELMo models."""

import torch
from torch import Tensor, nn


class ClippedLstm(nn.Module):
    """An LSTM layer; optionally outputs are projected, and cell and output are clipped to +-limit.

    c_t = clip(sigmoid(f) c_(t-1) + sigmoid(i) tanh(g)), h_t = clip(W_r (sigmoid(o) tanh(c_t))). On a GPU and
    without clipping torch's fused LSTM runs; otherwise a loop over the words, which is as fast on a CPU.

    Args:
        width: Width of inputs and outputs.
        cell: Width of the cell; where it exceeds `width`, outputs are projected.
        cell_clip: Largest absolute value of the cell, or None.
        output_clip: Largest absolute value of projected outputs, or None.
    """

    def __init__(
        self, width: int, cell: int, cell_clip: float | None = None, output_clip: float | None = None
    ) -> None:
        super().__init__()
        self.cell_clip, self.output_clip = cell_clip, output_clip
        self.lstm = nn.LSTM(width, cell, batch_first=True, proj_size=width if cell > width else 0)
        with torch.no_grad():
            self.weights["bias_ih_l0"][cell : 2 * cell] += 1  # the forget gate starts open

    @property
    def weights(self) -> dict[str, nn.Parameter]:
        """The LSTM's weights by torch's names; gates are in the order i, f, g, o."""
        return dict(self.lstm.named_parameters())

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, width] -> [B, T, width], from left to right."""
        if x.is_cuda and self.cell_clip is None and self.output_clip is None:
            return self.lstm(x)[0]
        return self.stepwise(x)

    def stepwise(self, x: Tensor) -> Tensor:
        """The same computation one word at a time."""
        w = self.weights
        bias = w["bias_ih_l0"] + w["bias_hh_l0"]
        inputs = nn.functional.linear(x, w["weight_ih_l0"], bias)  # [B, T, 4 cell]
        c = x.new_zeros(len(x), self.lstm.hidden_size)
        h = x.new_zeros(len(x), self.lstm.proj_size or self.lstm.hidden_size)
        outputs = []
        for gates in inputs.unbind(1):
            i, f, g, o = (gates + h @ w["weight_hh_l0"].mT).chunk(4, -1)  # [B, cell] each
            c = _clip(torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g), self.cell_clip)
            h = torch.sigmoid(o) * torch.tanh(c)
            if self.lstm.proj_size:
                h = _clip(h @ w["weight_hr_l0"].mT, self.output_clip)
            outputs.append(h)
        return torch.stack(outputs, 1)


def _clip(x: Tensor, limit: float | None) -> Tensor:
    return x if limit is None else x.clamp(-limit, limit)
