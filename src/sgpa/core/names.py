"""Names of methods and recipes: ids as files have them, titles as people read them. Imports nothing heavy."""

from dataclasses import dataclass

from sgpa.core.errors import ConfigError, nearest


@dataclass(frozen=True)
class MethodName:
    """What a method is called. `aliases` are accepted on the command line; results hold the id."""

    id: str
    title: str
    description: str
    aliases: tuple[str, ...] = ()
    ensemble: bool = False


METHOD_NAMES: dict[str, MethodName] = {
    name.id: name
    for name in (
        MethodName(
            "mle", "MLE", "the point estimate every other method is compared with", ("maximum-likelihood",)
        ),
        MethodName(
            "ts",
            "Temperature scaling",
            "divides the outputs by a temperature fitted on held-out rows",
            ("temperature", "temperature-scaling"),
        ),
        MethodName(
            "vs",
            "Vector scaling",
            "scales and shifts every class's output, fitted on held-out rows",
            ("vector",),
        ),
        MethodName(
            "ms",
            "Matrix scaling",
            "an affine map of the outputs, fitted on held-out rows and shrunk towards a temperature",
            ("matrix",),
        ),
        MethodName("mfvi", "MFVI", "a Gaussian over every weight, trained by its ELBO", ("mean-field",)),
        MethodName(
            "mcd",
            "MC dropout",
            "keeps dropout on when predicting and averages ten passes",
            ("mc-dropout", "dropout"),
        ),
        MethodName(
            "kflla",
            "KFAC Laplace",
            "a Laplace approximation of the last layer's posterior",
            ("laplace", "kfac-laplace"),
        ),
        MethodName(
            "posthoc",
            "Attached GP",
            "a sparse GP attached to the attention of the trained MLE, labels unchanged",
            ("attached-gp", "attach"),
        ),
        MethodName("sngp", "SNGP", "a Gaussian process as last layer over distance-preserving features"),
        MethodName(
            "sgpa",
            "SGPA",
            "every attention layer a sparse Gaussian process, trained by the ELBO",
            ("sparse-gp",),
        ),
        MethodName(
            "sgpah",
            "SGPA + GP head",
            "SGPA whose confidence also falls with the variance of a GP over what its head reads",
            ("gp-head",),
        ),
        MethodName(
            "de",
            "Deep ensemble",
            "an average of models trained from different seeds (three in the recipes digits and zinc)",
            ("ensemble", "deep-ensemble"),
            ensemble=True,
        ),
        MethodName(
            "sgpae",
            "SGPA ensemble",
            "an average of SGPA models trained from different seeds (three in the recipes digits and zinc)",
            ("sgpa-ensemble",),
            ensemble=True,
        ),
    )
}
METHOD_ALIASES = {alias: name.id for name in METHOD_NAMES.values() for alias in name.aliases}

RECIPE_NAMES = (
    "cifar10",
    "cifar10-augmented",
    "cifar100",
    "cifar100-augmented",
    "imdb",
    "cola",
    "zinc",
    "digits",
)


def method_id(name: str) -> str:
    """The id of a method that was named by its id or by an alias.

    >>> method_id("laplace")
    'kflla'
    """
    word = name.strip().lower()
    if word in METHOD_NAMES:
        return word
    if word in METHOD_ALIASES:
        return METHOD_ALIASES[word]
    close = nearest(word, [*METHOD_NAMES, *METHOD_ALIASES])
    raise ConfigError(f"unknown method {name!r}{close}")
