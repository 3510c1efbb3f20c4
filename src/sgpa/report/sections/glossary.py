"""Words of the page explained, those that it uses."""

from collections.abc import Iterable

# word, the metrics that make it appear (none: always), what it means
ENTRIES = (
    (
        "NLL",
        ("nll",),
        "How surprised the model is by the right answer, on average; being sure and wrong costs most.",
    ),
    (
        "ECE",
        ("ece",),
        "The average gap between stated confidence and how often it comes true, over 15 confidence bins.",
    ),
    ("MCE", ("mce",), "The largest such gap of any bin; one sparse bin can decide it."),
    (
        "All-class MCE",
        ("mce_all_classes",),
        "The largest gap of any of ten bins when every class of every answer counts; no bin is sparse.",
    ),
    (
        "Brier score",
        ("brier",),
        "The squared distance between the probabilities and the answer: 0 is perfect, 2 the worst.",
    ),
    (
        "AURC",
        ("aurc",),
        "The share of wrong answers among those kept when the least certain are set aside, on average.",
    ),
    (
        "MCC",
        ("mcc",),
        "Matthews correlation of answer and truth, times 100: 0 is guessing, whatever the share of classes.",
    ),
    (
        "MAE, RMSE",
        ("mae", "rmse"),
        "Mean absolute error, and root of the mean squared error, of the predicted number.",
    ),
    (
        "Entropy",
        ("auroc", "aurc"),
        "How spread out a prediction is: 0 when one class gets everything, log(classes) when all are equal.",
    ),
    (
        "Mutual information",
        ("accuracy",),
        "The part of the entropy that comes from not knowing the model; more data would shrink it.",
    ),
    (
        "AUROC",
        ("auroc",),
        "The chance that an unfamiliar input gets a higher entropy than a familiar one: 0.5 is guessing.",
    ),
    (
        "AUPR",
        ("aupr",),
        "Precision averaged over recall with unfamiliar inputs as positives; guessing scores their share.",
    ),
    (
        "Average rank",
        ("rank",),
        "1 for the best method of a column, 2 for the next, averaged over columns: lower is better.",
    ),
    (
        "*",
        (),
        "Marks a difference from MLE that a paired t-test over shared seeds finds at p < 0.05. No correction "
        "is made for the number of comparisons: of 20 differences that are chance, about one carries a mark.",
    ),
    (
        "±",
        (),
        "One standard error of the mean over seeds: how far the mean would move with other random seeds.",
    ),
)


def glossary(metrics: Iterable[str]) -> list[tuple[str, str]]:
    """Word and meaning of what a page with these metrics shows."""
    shown = set(metrics)
    return [(word, meaning) for word, names, meaning in ENTRIES if not names or shown & set(names)]
