"""Definitions of the terms that a page uses."""

from collections.abc import Iterable

# term, the metrics on a page with that term (none: every page), definition
ENTRIES = (
    (
        "NLL",
        ("nll",),
        "Negative log-likelihood of the correct answer, averaged over inputs. Confident mistakes cost most.",
    ),
    (
        "ECE",
        ("ece",),
        "Expected calibration error: the mean gap between confidence and accuracy over 15 confidence bins.",
    ),
    (
        "MCE",
        ("mce",),
        "Maximum calibration error: the largest gap of any bin. A bin of few answers can set it.",
    ),
    ("MCE, bins ≥ 20", ("mce_20",), "The largest gap of the bins with at least 20 answers."),
    (
        "All-class MCE",
        ("mce_all_classes",),
        "The largest gap over 10 bins of the probabilities of all classes, not only of the predicted one.",
    ),
    (
        "Brier score",
        ("brier",),
        "Squared distance between the probabilities and the correct answer: 0 is perfect, 2 the worst.",
    ),
    (
        "AURC",
        ("aurc",),
        "Area under the risk-coverage curve: the error rate of the most certain answers, averaged over the "
        "share that is answered.",
    ),
    (
        "Error AUROC",
        ("error_auroc",),
        "The probability that a wrong answer has a higher entropy than a correct one: 0.5 is chance level.",
    ),
    (
        "Error FPR at 95 % TPR",
        ("error_fpr_at_95_tpr",),
        "The share of correct answers that is rejected when a threshold rejects 95 % of the wrong ones.",
    ),
    (
        "MCC",
        ("mcc",),
        "Matthews correlation of answer and label, times 100: 0 is chance level for any share of classes.",
    ),
    (
        "MAE, RMSE",
        ("mae", "rmse"),
        "Mean absolute error, and root of the mean squared error, of the predicted value.",
    ),
    (
        "Intervals",
        ("coverage_90",),
        "A 90 % interval should hold 90 % of the true values. Its width is chosen on held-out rows.",
    ),
    (
        "Entropy",
        ("auroc", "aurc"),
        "Uncertainty of a prediction: 0 if one class has probability 1, log(classes) if all are equal.",
    ),
    (
        "Mutual information",
        ("accuracy",),
        "The part of the entropy that comes from uncertainty about the model; more data would reduce it.",
    ),
    (
        "AUROC",
        ("auroc",),
        "The probability that an OOD input has a higher entropy than a test input: 0.5 is chance level.",
    ),
    (
        "AUPR",
        ("aupr",),
        "Area under the precision-recall curve with OOD inputs as positives; chance level is their share.",
    ),
    (
        "FPR at 95 % TPR",
        ("fpr_at_95_tpr",),
        "The share of test inputs that is rejected when the threshold rejects 95 % of the OOD inputs.",
    ),
    (
        "Average rank",
        ("rank",),
        "1 for the best method of a column, 2 for the next, averaged over columns; lower is better.",
    ),
    (
        "*",
        (),
        "A difference from MLE with p < 0.05 in a paired t-test over shared seeds, not corrected for the "
        "number of comparisons: about one in 20 differences that are chance is marked.",
    ),
    (
        "±",
        (),
        "One standard error of the mean: over random seeds, or over test rows where there is one seed.",
    ),
)


def glossary(metrics: Iterable[str]) -> list[tuple[str, str]]:
    """Term and definition, for a page with these metrics."""
    shown = set(metrics)
    return [(term, meaning) for term, names, meaning in ENTRIES if not names or shown & set(names)]
