"""From the numbers of an audit to advice in words.

A difference is clear from two standard errors on; one of NLL also has to be one per cent of the model's own.
Among methods without a clear difference, the cheaper one is used. SGPA is recommended where it is clearly
better than everything cheaper, and only for that.
"""

from collections.abc import Mapping, Sequence
from typing import Any

CLEAR = 2.0  # standard errors
LEAST = 0.01  # of the model's NLL
USEFUL = 0.6  # mean AUROC below which no score is worth using
FEW = 200  # test rows, with fewer numbers are rough

PLAIN = "plain"
NAMES = {  # cheapest first
    PLAIN: "Model as it is",
    "temperature": "Temperature scaling",
    "vector": "Vector scaling",
    "matrix": "Structured matrix scaling",
    "laplace": "Last-layer Laplace",
    "sgpa": "SGPA, attached",
    "dropout": "MC dropout + temperature",
}
USED = {"sgpa": "SGPA (sgpa.attach)"}  # other names in advice
DETECTORS = {
    "entropy": "Entropy",
    "energy": "Energy",
    "mahalanobis": "Mahalanobis distance at the output",
    "mahalanobis_layers": "Mahalanobis distance in all layers",
    "knn": "Distance to the 20th neighbour",
    "novelty": "SGPA's novelty",
}


def recommend(audit: Mapping[str, Any]) -> list[str]:
    """Sentences: what to do about the probabilities, what about unfamiliar inputs, whether SGPA is worth it.

    Args:
        audit: `Audit.as_dict()`.

    Returns:
        Two to four sentences.
    """
    chosen = best_calibrator(audit)
    detector, useful = best_detector(audit)
    sentences = [_calibration(audit, chosen), _detection(audit, detector, useful)]
    if "sgpa" not in audit["methods"]:
        sentences.append(f"SGPA was not tried: {audit['skipped'][NAMES['sgpa']]}.")
    elif chosen == "sgpa" or (useful and detector == "novelty"):
        time = audit["methods"]["sgpa"]["cost"]["time"]
        sentences.append(f"A prediction with SGPA takes {time:.2f} times one plain pass.")
    else:
        sentences.append("SGPA is not worth attaching to this model for these rows.")
    if audit["data"]["test"] < FEW:
        sentences.append(f"With {audit['data']['test']} test rows, small differences cannot be seen.")
    return sentences


def best_calibrator(audit: Mapping[str, Any]) -> str:
    """The cheapest method that no other beats clearly in NLL, of those that clearly beat the model itself.

    Methods that clearly lose accuracy are left out. `plain` where no method is clearly better.
    """
    methods: Mapping[str, Any] = audit["methods"]
    least = LEAST * methods[PLAIN]["scores"]["nll"]["value"]
    better = [
        name
        for name in NAMES
        if name in methods
        and name != PLAIN
        and _below(methods[name]["change"]["nll"], least)
        and not _below(methods[name]["change"]["accuracy"])
    ]
    for name in better:
        if not any(_below(audit["nll_differences"][other][name], least) for other in better if other != name):
            return name
    return min(better, key=lambda name: methods[name]["scores"]["nll"]["value"], default=PLAIN)


def best_detector(audit: Mapping[str, Any]) -> tuple[str, bool]:
    """The detector to use, and whether it is useful at all.

    Novelty where its mean AUROC is clearly above that of every other detector, otherwise the best other one.
    """
    mean, ahead = audit["detection"]["mean"], audit["detection"]["novelty_ahead"]
    if "novelty" in mean and all(each["value"] > CLEAR * each["error"] for each in ahead.values()):
        name = "novelty"
    else:
        name = max((other for other in mean if other != "novelty"), key=lambda other: mean[other]["value"])
    return name, mean[name]["value"] - CLEAR * mean[name]["error"] > USEFUL


def _calibration(audit: Mapping[str, Any], chosen: str) -> str:
    methods = audit["methods"]
    before = methods[PLAIN]["scores"]
    if chosen == PLAIN:
        return (
            f"Keep the probabilities as they are: no method lowers the NLL of {_number(before['nll'])} by "
            "more than two standard errors and one per cent."
        )
    change, after = methods[chosen]["change"]["nll"], methods[chosen]["scores"]
    text = (
        f"Use {USED.get(chosen, _lower(NAMES[chosen]))}: it lowers the NLL by {_number(change, -1)} to "
        f"{after['nll']['value']:.3f}, and the ECE is {_number(after['ece'])} instead of "
        f"{_number(before['ece'])}."
    )
    accuracy = methods[chosen]["change"]["accuracy"]
    if accuracy["value"] > CLEAR * accuracy["error"]:
        text += f" It also raises the accuracy by {100 * accuracy['value']:.1f} points."
    level = [
        NAMES[name]
        for name in NAMES
        if name in methods
        and name not in (PLAIN, chosen)
        and list(NAMES).index(name) > list(NAMES).index(chosen)
        and methods[name]["scores"]["nll"]["value"] < after["nll"]["value"]
        and not _below(audit["nll_differences"][name][chosen], LEAST * before["nll"]["value"])
    ]
    if level:
        text += f" {_listed(level)} {'has' if len(level) == 1 else 'have'} a lower NLL, but not clearly."
    return text


def _detection(audit: Mapping[str, Any], chosen: str, useful: bool) -> str:
    mean, ahead = audit["detection"]["mean"], audit["detection"]["novelty_ahead"]
    others = sorted(ahead, key=lambda name: -mean[name]["value"])
    if not useful:
        return (
            f"No score recognises the perturbed rows well: the best, {_lower(DETECTORS[chosen])}, has a mean "
            f"AUROC of {_number(mean[chosen])}, where 0.5 is chance level."
        )
    if chosen == "novelty":
        best = others[0]
        return (
            "Attach SGPA if you need to recognise unfamiliar inputs: the mean AUROC of its novelty is "
            f"{_number(mean['novelty'])}, that of the best other score, {_lower(DETECTORS[best])}, "
            f"{_number(mean[best])} (difference {_number(ahead[best])})."
        )
    text = (
        f"To recognise unfamiliar inputs, use {_lower(DETECTORS[chosen])}: its mean AUROC is "
        f"{_number(mean[chosen])}"
    )
    if "novelty" not in mean:
        return f"{text}."
    beside = "clearly less" if _below(ahead[chosen]) else "no clear difference"
    return f"{text}; SGPA's novelty has {_number(mean['novelty'])}, {beside}."


def _below(estimate: Mapping[str, float], least: float = 0.0) -> bool:
    """Whether a difference is clearly negative, and at least so large."""
    return estimate["value"] < -max(CLEAR * estimate["error"], least)


def _number(estimate: Mapping[str, float], sign: int = 1) -> str:
    return f"{sign * estimate['value']:.3f} ± {estimate['error']:.3f}"


def _lower(name: str) -> str:
    """A name inside a sentence; abbreviations and names of people stay."""
    return name if name.startswith(("SGPA", "MC ", "Mahalanobis")) else name[0].lower() + name[1:]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {_lower(names[-1])}"
