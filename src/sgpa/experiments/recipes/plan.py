"""The plan of a method in a recipe: which stages train it, and which method predicts."""

from dataclasses import replace

from sgpa.core.errors import ConfigError, nearest
from sgpa.experiments.recipes.schema import Recipe
from sgpa.methods import CATALOGUE, Ensemble, GpHead, MatrixScaling, Method, Mle, VectorScaling
from sgpa.methods.mc_dropout import check_dropout
from sgpa.training.plan import Plan, Stage

SPARSE = ("sgpa", "sgpah", "sgpae")  # methods that need a kernel


def plan(recipe: Recipe, method: str, attention: str = "kernel") -> Plan:
    """The plan of a method of the catalogue, with the recipe's settings."""
    if method not in CATALOGUE:
        raise ConfigError(f"unknown method {method!r}{nearest(method, CATALOGUE)}")
    kind = recipe.attention(attention)
    if method in SPARSE and attention != "kernel":
        raise ConfigError(f"{method}: a Gaussian process needs a kernel; use attention kernel")
    if recipe.model.likelihood != "categorical" and not CATALOGUE[method].regression:
        raise ConfigError(f"{method} predicts classes, and {recipe.name} asks for numbers")
    if isinstance(CATALOGUE[method], Ensemble) and getattr(recipe.task, "per_seed", False):
        raise ConfigError(
            f"{method}: every seed of {recipe.name} has a split of its own, so the members of an ensemble "
            "would train on each other's held-out rows, to which its temperature and trust limit are fitted "
            "(allowed: single models, or one split for all seeds)"
        )
    point = Mle(attention=kind)
    mcd = replace(recipe.mcd, base=point)
    if method == "mcd":
        check_dropout(recipe.model.dropout)
    shared = recipe.model.dropout and not recipe.stage2_for_all  # MC dropout uses MLE's training
    mle = Stage("mle", point, recipe.optim, extra_selectors=(mcd,) if shared else ())
    sgpa = replace(recipe.sgpa, attention=replace(recipe.sgpa.attention, kernel=recipe.kernel))
    warm = mle if recipe.stage1 == recipe.optim else Stage("warm", point, recipe.stage1)
    sparse = (warm, Stage("sgpa", sgpa, recipe.stage2, dropout=recipe.stage2_dropout))

    def with_stage2(second: Stage) -> tuple[Stage, ...]:
        return (mle, second) if recipe.stage2_for_all else (mle,)

    points = with_stage2(Stage("mle-after", point, recipe.stage2, dropout=recipe.stage2_dropout))
    size = recipe.ensemble
    plans: dict[str, tuple[Method, tuple[Stage, ...]]] = {
        "mle": (point, points),
        "mcd": (mcd, with_stage2(Stage("mcd-after", mcd, recipe.stage2))),
        "ts": (replace(recipe.ts, base=point), points),
        "vs": (VectorScaling(base=point), points),
        "ms": (MatrixScaling(base=point), points),
        "kflla": (replace(recipe.kflla, base=point), points),
        "posthoc": (replace(recipe.posthoc, base=point), points),
        "de": (
            Ensemble(id="de", base=point, size=size, fit_temperature=recipe.ensemble_temperature),
            points,
        ),
        "sgpa": (sgpa, sparse),
        "sgpah": (GpHead(base=sgpa), sparse),
        "sgpae": (
            Ensemble(
                id="sgpae",
                base=replace(sgpa, dropout_at_prediction=recipe.ensemble_dropout),
                size=size,
                fit_temperature=recipe.ensemble_temperature,
            ),
            sparse,
        ),
    }
    if method in plans:
        return Plan(plans[method][0], attention, plans[method][1])
    single_stage: dict[str, Method] = {
        "mfvi": replace(recipe.mfvi, attention=kind),
        "sngp": replace(recipe.sngp, attention=kind),
    }
    return Plan(single_stage[method], attention, (Stage(method, single_stage[method], recipe.optim),))


def plans(recipe: Recipe, methods: tuple[str, ...] = (), attentions: tuple[str, ...] = ()) -> list[Plan]:
    """The plans of several methods and attentions; by default the recipe's methods with kernel attention."""
    return [
        plan(recipe, method, attention)
        for attention in attentions or ("kernel",)
        for method in methods or recipe.methods
        if attention == "kernel" or method not in SPARSE
    ]
