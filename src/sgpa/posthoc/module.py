"""The deterministic prediction as a plain module, for `torch.export`."""

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from sgpa.posthoc.answers import ClassAnswer
from sgpa.posthoc.calls import named_arguments

if TYPE_CHECKING:
    from sgpa.posthoc.attached import AttachedGp


class PredictionModule(nn.Module):
    """Takes the model's own arguments, returns tensors; made by `AttachedGp.as_module`.

    That the weights are those that the GPs were fitted to is checked when it is made, not in traced passes.
    """

    def __init__(self, gp: "AttachedGp", model: nn.Module) -> None:
        super().__init__()
        self.training = False  # its passes are in evaluation mode, whatever mode the model is in
        self.model = model
        self._gp = gp

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of what `forward` returns."""
        classes = self._gp._ready("as_module").classes
        return ("probabilities", "novelty") if classes else ("mean", "variance", "novelty")

    def forward(self, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        """Probabilities [..., C] and novelty [...]; of a regressor mean, variance and novelty [...]."""
        if args and options:
            options = named_arguments(self.model, args) | options
        answer = self._gp.predict(options if options else (args, None))
        if isinstance(answer, ClassAnswer):
            return answer.probabilities, answer.novelty
        return answer.mean, answer.variance, answer.novelty
