"""An experiment as frozen data: all settings of a run."""

import math
from dataclasses import dataclass, field, replace
from functools import partial

from sgpa.core.arguments import checked
from sgpa.core.config import derived
from sgpa.core.errors import check_fields
from sgpa.experiments.tasks import TASKS, EvaluationConfig, TaskConfig
from sgpa.methods import CATALOGUE, KfacLaplace, McDropout, Mfvi, PosthocGp, Sgpa, Sngp, TemperatureScaling
from sgpa.methods.kinds import KINDS as METHOD_KINDS
from sgpa.models import DotProductConfig, KernelAttentionConfig, KernelConfig, ModelConfig
from sgpa.training.optim import OptimConfig

ATTENTIONS = ("kernel", "sdp")
MAX_RUNS = 1000  # seeds, ensembles, members of one
_BY_PLAN = {"attention": "choose the attention of the plan (--attention) instead"}
_BASE = derived({"base": "it is the recipe's maximum-likelihood model"})
_MODEL = derived({**_BY_PLAN, "weights": "the method decides it", "head": "the method decides it"})
_SGPA = derived({"attention.kernel": "set kernel.name and kernel.preset instead"})


@checked
@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A task, a Transformer for it, and how each method is trained and tested.

    All methods train with `optim` except SGPA, which has two stages: maximum likelihood with `stage1` (if it
    equals `optim`, MLE's own training is used), then the ELBO with `stage2`, starting from those weights,
    with the dropout rate `stage2_dropout` if given. With `stage2_for_all` the point methods have a second
    stage too; MC dropout keeps its own rate. `kernel` is the base kernel of kernel attention and of SGPA.
    `methods` are those that a benchmark compares. There are `ensembles` ensembles of `ensemble` members each;
    With `refit_scale` the scale of a regression's likelihood is refitted on held-out rows after training.
    `max_error` is that of the rule of trust; by default it follows from the held-out rows.
    `ensemble_dropout` leaves dropout on when members of an SGPA ensemble predict, `ensemble_temperature` fits
    a temperature for the average of any ensemble on validation rows.

    Fields whose metadata are `derived` are decided by the plan of a method and cannot be set.
    """

    name: str = field(metadata=derived({"": "choose another recipe instead"}))
    task: TaskConfig
    model: ModelConfig = field(metadata=_MODEL)
    kernel: KernelConfig = field(default_factory=KernelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    stage1: OptimConfig = field(default_factory=OptimConfig)
    stage2: OptimConfig = field(default_factory=OptimConfig)
    stage2_dropout: float | None = None
    stage2_for_all: bool = False
    ts: TemperatureScaling = field(default_factory=TemperatureScaling, metadata=_BASE)
    mfvi: Mfvi = field(default_factory=Mfvi, metadata=derived(_BY_PLAN))
    mcd: McDropout = field(default_factory=McDropout, metadata=_BASE)
    kflla: KfacLaplace = field(default_factory=partial(KfacLaplace, prior="validation"), metadata=_BASE)
    posthoc: PosthocGp = field(default_factory=PosthocGp, metadata=_BASE)
    sngp: Sngp = field(default_factory=Sngp, metadata=derived(_BY_PLAN))
    sgpa: Sgpa = field(default_factory=Sgpa, metadata=_SGPA)
    ensemble: int = 5
    ensembles: int = 1
    ensemble_dropout: bool = False
    ensemble_temperature: bool = False
    refit_scale: bool = False
    max_error: float | None = None
    seeds: int = 5
    methods: tuple[str, ...] = tuple(CATALOGUE)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        object.__setattr__(self, "methods", tuple(self.methods))
        check_fields(
            f"recipe {self.name}",
            [
                (
                    "stage2_dropout",
                    self.stage2_dropout,
                    0 <= (self.stage2_dropout or 0) < 1,
                    "0 or more, below 1",
                ),
                *(
                    (name, getattr(self, name), 1 <= getattr(self, name) <= MAX_RUNS, f"1 to {MAX_RUNS}")
                    for name in ("ensemble", "ensembles", "seeds")
                ),
                (
                    "max_error",
                    self.max_error,
                    self.max_error is None or 0 < self.max_error < (math.inf if self._values else 1),
                    "above 0" if self._values else "between 0 and 1",
                ),
                ("methods", self.methods, set(self.methods) <= set(CATALOGUE), ", ".join(CATALOGUE)),
            ],
        )

    @property
    def _values(self) -> bool:
        return self.model.likelihood != "categorical"

    def attention(self, name: str) -> KernelAttentionConfig | DotProductConfig:
        """The point attention of that name."""
        check_fields("plan", [("attention", name, name in ATTENTIONS, ", ".join(ATTENTIONS))])
        return DotProductConfig() if name == "sdp" else KernelAttentionConfig(kernel=self.kernel)

    def scaled(self, factor: float) -> "Recipe":
        """The same recipe with all numbers of epochs multiplied by `factor`."""

        def times(optim: OptimConfig) -> OptimConfig:
            epochs = max(1, round(factor * optim.epochs))
            return replace(optim, epochs=epochs, warmup=min(optim.warmup, epochs - 1))

        return replace(self, optim=times(self.optim), stage1=times(self.stage1), stage2=times(self.stage2))


KINDS: dict[str, type] = {
    kind.__name__: kind for kind in (Recipe, OptimConfig, EvaluationConfig, *TASKS)
} | METHOD_KINDS  # every class that recipe.json may hold
