"""The tables of measured figures in README.md and docs/, made of the tracked records and benchmarks.

Each stands between ``<!-- measured: NAME -->`` and ``<!-- /measured -->``. After runs or benchmarks have been added,
``python -m tests.docs.measured`` writes them anew; a test holds that they are up to date.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from contextual_dropout_lab.report.paper import RESNET18_COST, RESULTS
from tests.compatibility import table as compatibility

ROOT = Path(__file__).parents[2]
PAGES = (
    *("README.md", "docs/compatibility.md", "docs/converting.md", "docs/estimators.md", "docs/index.md"),
    *("docs/measured.md", "docs/predicting.md", "docs/reproducing.md"),
)
BLOCK = re.compile(r"(<!-- measured: (.+?) -->\n)(.*?)(<!-- /measured -->)", re.DOTALL)
NONE = "—"

#: The estimators of docs/measured.md: pseudo passes, whether unbiased, and their names in the benchmarks.
ESTIMATORS = {
    "`reparameterized` (Gaussian sites; `auto`)": ("0, one more sweep", "yes", "gaussian, reparameterized"),
    "`truncated-reparameterized` (Gaussian)": ("0", "no²", "gaussian, truncated"),
    "`sequential-arm`, `-disarm` (Bernoulli, Algorithm 1; `auto` up to 4 draws)": (
        "one per site",
        "yes",
        "bernoulli, sequential-arm",
    ),
    "`sampled-arm`, `-disarm` (Bernoulli; `auto` beyond)": ("k of L", "yes", "bernoulli, sampled-arm (k=1)"),
    "`independent-arm`, `-disarm` (Bernoulli, Algorithm 2)": ("1", "**no**", "bernoulli, independent-arm"),
    "`straight-through` (Bernoulli)": ("0", "no³", "bernoulli, straight-through"),
    "`concrete` (Bernoulli)": ("0, one more sweep", "no", "bernoulli, concrete"),
}
#: The rows of the tables of noisy MNIST: all methods of the experiment, in words.
METHODS = {
    "mc-bernoulli": "MC dropout, 0.2",
    "mc-gaussian": "Gaussian dropout, 0.2",
    "mc-bernoulli-tuned": "MC dropout, rate tuned on validation (.02)",
    "concrete": "concrete dropout",
    "bayes-by-backprop": "Bayes by Backprop, KL weight .1",
    "gating": "contextual gating (nothing sampled)",
    "gating-dropout": "contextual gating, then dropout",
    "gating-dropout-tuned": "the same, rate tuned on validation (.02)",
    "learnable-bernoulli": "a learned rate per unit, without context",
    "contextual-gaussian": "contextual Gaussian dropout",
    "contextual-bernoulli-arm": "contextual Bernoulli dropout, ARM (`auto`)",
    "contextual-bernoulli": "**contextual Bernoulli dropout, `straight-through`**",
}
OURS, ARM = "contextual-bernoulli", "contextual-bernoulli-arm"
#: What the context of our network is worth: the one test that was run with and without it.
PAIR = {"contextual": "the same, one draw of the noise", "frozen": "that draw, context frozen at each unit's mean"}

#: The rows of the opening table: the name in the record, and which of its scores.
OPENING = {
    "`nn.Dropout`, the same layers": ("plain", ""),
    "`nn.Dropout`, wider": ("plain, wider", ""),
    "`nn.Dropout`, one more layer": ("plain, deeper", ""),
    "gates, then `nn.Dropout`": ("gates", ""),
    "**contextual dropout**": ("contextual", ""),
    "the same, context frozen": ("contextual", "frozen_"),
}
PLACES = ("first", "second", "third", "fourth", "last")
OURS_IN_WORDS = "**contextual dropout**"
COLUMNS = ("size", "accuracy", "log-likelihood")
OPENING_DATA = {"sensors": "sensors", "digits": "noisy digits"}
#: Clean MNIST: methods in words, with the paper's accuracy where it has one.
CLEAN = {
    "contextual-bernoulli": ("contextual Bernoulli dropout, `straight-through`", "99.08 (with ARM)"),
    "mc-bernoulli": ("MC dropout, 0.2", "98.62"),
    "gating": ("contextual gating (nothing sampled)", NONE),
}
#: What prediction was timed on.
PREDICTED = {
    "mlp": "MLP",
    "cnn, late sites": "CNN, sites in its head",
    "cnn, a site at every conv": "CNN, a site at every convolution",
}

#: The networks of the cost table, with the batches that were timed.
NETWORKS = {"resnet18": "ResNet-18, 224 pixels, batch 16", "wrn-28-10": "WRN-28-10, 32 pixels, batch 8"}

#: Sites on attention weights, by their names.
ATTENTION = re.compile(r"(^|\.)(attention|guided)\.dropout\b")
ATTENTION_FIGURES = ["seeds", "accuracy", "PAvPU(.05)", "log-likelihood", "sd over samples¹"]
ATTENTION_NETWORKS = {"easy-vqa-cpu": "easy-VQA, MCAN", "vit-cpu": "Fashion-MNIST, ViT"}
ATTENTION_METHODS = {
    "mc-bernoulli": "MC",
    "mc-gaussian": "Gaussian",
    "concrete": "concrete",
    "contextual-bernoulli": "contextual Bernoulli, sampled ARM",
    "contextual-bernoulli-constant": "the same, the paper's constant context",
    "contextual-bernoulli-independent": "constant context, independent ARM, as in the paper",
    "contextual-gaussian": "contextual Gaussian",
}

Figures = dict[str, float | None]


def records(method: str, setting: str = "mnist/noisy") -> list[dict[str, Any]]:
    """Of a method, one for each seed."""
    paths = sorted((ROOT / "experiments/results" / setting / method).glob("seed-*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def figures(record: dict[str, Any]) -> Figures:
    """What a run measured on noisy test images; None where a network without samples has no such figure."""
    test = record["test"]["noise-1"]
    found = {name: test.get(name) for name in ("accuracy", "log_likelihood", "aurc_p_value", "aurc_entropy")}
    found |= {name: test[name] for name in ("calibration_error", "brier")}
    counts = test["pavpu"].get("0.05")
    if counts is None:
        return found | dict.fromkeys(("pavpu", "certain", "right", "flagged"))
    right = counts["accurate_certain"], counts["accurate_uncertain"]
    wrong = counts["inaccurate_certain"], counts["inaccurate_uncertain"]
    certain = right[0] + wrong[0]
    found |= {"pavpu": counts["value"], "certain": 100 * certain / (sum(right) + sum(wrong))}
    return found | {"right": 100 * right[0] / certain, "flagged": 100 * wrong[1] / sum(wrong)}


def values(method: str, name: str) -> list[float]:
    """A figure of every seed that has it."""
    return [value for record in records(method) if (value := figures(record)[name]) is not None]


def shown(numbers: list[float], decimals: int) -> str:
    """Mean, and standard deviation where there are several: 88.53 ± 0.10; what is below 1 and no percentage: .344."""
    if not numbers:
        return NONE
    parts = [statistics.mean(numbers), *([statistics.stdev(numbers)] if len(numbers) > 1 else [])]
    texts = [f"{part:.{decimals}f}" for part in parts]
    return " ± ".join(re.sub(r"^(-?)0\.", r"\1.", text) if decimals > 2 else text for text in texts)


def table(head: list[str], body: list[list[str]]) -> Iterator[str]:
    """The lines of a table in Markdown."""
    yield from (f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def opening() -> Iterator[str]:
    """What the opening example gives, beside plain networks of its size; who is best is read off the record."""
    found = benchmark("opening")
    scores = {name: f"{value:.0f}%" for name, value in found["example"].items()}
    yield (
        f"On the 400 examples that it was not trained on, this network is right in {scores['right']}: in "
        f"{scores['right_of_certain']} of the {scores['certain']} that it\ncalls certain and in "
        f"{scores['right_of_others']} of the rest. A plain network with one more layer and as many "
        f"parameters is right\nin {scores['deeper']}. The methods at equal size, tuned alike (test scores over "
        f"{len(found['data']['sensors']['plain']['seeds'])} seeds, each with a problem of its own):"
    )
    yield ""
    body = []
    for words, (method, kind) in OPENING.items():
        cells = []
        for name in OPENING_DATA:
            row = found["data"][name][method]
            accuracy, likelihood = (
                [seed[f"{kind}{score}"] for seed in row["seeds"]] for score in ("accuracy", "log_likelihood")
            )
            cells += [f"{row['parameters']:,}", shown(accuracy, 1), shown(likelihood, 3)]
        body.append([words, *cells])
    head = [f"{words}: {name}" if name == COLUMNS[0] else name for words in OPENING_DATA.values() for name in COLUMNS]
    yield from table(["", *head], body)
    yield ""
    yield opening_verdict(found["data"])


def opening_verdict(data: dict[str, Any]) -> str:
    """Who has the best log-likelihood on each data set, where contextual dropout stands, and what its context does."""
    texts = []
    for name in OPENING_DATA:
        runs = {
            words: [seed["log_likelihood"] for seed in data[name][method]["seeds"]]
            for words, (method, kind) in OPENING.items()
            if not kind
        }
        means = {words: statistics.mean(found) for words, found in runs.items()}
        ranked = sorted(means, key=means.__getitem__, reverse=True)
        place = ranked.index(OURS_IN_WORDS)
        spread = min(statistics.stdev(found) for found in runs.values())
        if max(means.values()) - min(means.values()) < spread:
            text = "the methods differ by less than the seeds of any of them"
        elif place == 0:
            text = "contextual dropout has the best log-likelihood"
        else:
            text = f"{ranked[0]} has the best log-likelihood; contextual dropout is {PLACES[place]} of {len(ranked)}"
        ours = data[name]["contextual"]["seeds"]
        cost = statistics.mean(seed["accuracy"] - seed["frozen_accuracy"] for seed in ours)
        texts.append(f"On the {name} {text}. Freezing its context costs {cost:.1f} points.")
    return "\n".join(texts)


def opening_settings() -> Iterator[str]:
    """What validation chose for each method of the opening table."""
    found = benchmark("opening")["data"]
    body = []
    for words, (method, kind) in OPENING.items():
        if kind:
            continue
        cells = []
        for name in OPENING_DATA:
            chosen = found[name][method]["chosen"]
            weight = NONE if chosen["kl_weight"] is None else f"{chosen['kl_weight']:g}"
            cells += [f"{chosen['p']:g}", weight, str(chosen["steps"])]
        body.append([words, *cells])
    yield from table(["", *("sensors: rate", "KL weight", "steps"), *("digits: rate", "KL weight", "steps")], body)


def clean_mnist() -> Iterator[str]:
    """Accuracy and log-likelihood without noise, beside the paper's accuracy."""
    body = []
    for method, (words, paper) in CLEAN.items():
        tests = [record["test"]["noise-0"] for record in records(method, "mnist/original")]
        accuracy, likelihood = ([test[name] for test in tests] for name in ("accuracy", "log_likelihood"))
        body.append([words, str(len(tests)), shown(accuracy, 2), shown(likelihood, 3), paper])
    yield from table(["clean MNIST", "seeds", "accuracy", "log-likelihood", "paper: accuracy"], body)


def prediction() -> Iterator[str]:
    """The time of 20 samples relative to 20 plain passes."""
    ratios = benchmark("prediction")["ratios"]
    body = [
        [words, *(f"{ratios[f'{name}, B={size}']['cd.predict, contextual']:.2f}" for size in (1, 128))]
        for name, words in PREDICTED.items()
    ]
    yield from table(["network", "one example", "128 examples"], body)


def noisy_mnist() -> Iterator[str]:
    """Accuracy, PAvPU and log-likelihood beside the paper's; what freezing the context costs; what is missing."""
    body = []
    for method in filter(records, METHODS):
        ours = [shown(values(method, name), n) for name, n in {"accuracy": 2, "pavpu": 2, "log_likelihood": 3}.items()]
        # The paper's contextual dropout is trained with ARM.
        paper = {} if method == OURS else RESULTS["noisy"].get(OURS if method == ARM else method, {})
        printed = ", ".join(f"{paper[name].value:.2f}" for name in ("accuracy", "pavpu-0.05") if name in paper)
        body.append([METHODS[method], str(len(records(method))), *ours, printed or NONE])
    runs = [record["contextuality"] for record in records(OURS)]
    for kind, words in PAIR.items():
        accuracy, log_likelihood = ([run[name][kind] for run in runs] for name in ("accuracy", "log_likelihood"))
        body.append([words, str(len(runs)), shown(accuracy, 2), NONE, shown(log_likelihood, 3), NONE])
    yield from table(["", "seeds", "accuracy", "PAvPU(.05)", "log-likelihood", "paper: accuracy, PAvPU(.05)"], body)
    missing = [words for method, words in METHODS.items() if not records(method)]
    if missing:
        yield from ("", f"Not run yet: {'; '.join(missing)}.")


def certain() -> Iterator[str]:
    """What "certain" is worth at .05, and how well two scores rank the errors."""
    columns = {"certain": 1, "right": 2, "flagged": 1, "aurc_p_value": 4, "aurc_entropy": 4, "calibration_error": 2}
    body = [
        [METHODS[method], *(shown(values(method, name), decimals) for name, decimals in columns.items())]
        for method in filter(records, METHODS)
    ]
    head = ["noisy MNIST, %", "called certain", "right of these", "errors flagged", "AURC by p", "by entropy"]
    yield from table([*head, "calibration error"], body)
    passed = {method: 100 - statistics.mean(values(method, "flagged")) for method in (OURS, "mc-bernoulli")}
    yield ""
    yield (
        f"At p < .05, {passed[OURS]:.0f}% of the errors of contextual dropout with straight-through masks are called "
        f"certain all the same\n(of MC dropout at 0.2: {passed['mc-bernoulli']:.0f}%)."
    )


def benchmark(name: str) -> dict[str, Any]:
    """What was written down by ``make benchmark``."""
    found: dict[str, Any] = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text(encoding="utf-8"))
    return found


def convolutional() -> Iterator[str]:
    """What sites cost on the paper's convolutional networks, beside what the paper says."""
    found = benchmark("convolutional")
    body = []
    for network, words in NETWORKS.items():
        for variant, row in found["costs"][network].items():
            cells = [f"{row['parameters'] / 1e6:.2f}M", *(f"{row[name]:.2f}" for name in ("seconds", "step", "memory"))]
            paper = NONE
            if network == "resnet18" and variant in RESNET18_COST:
                size, seconds = RESNET18_COST[variant]
                paper = f"{size / 1e6:.2f}M, {seconds / RESNET18_COST['plain'][1]:.2f}"
            body.append([words, variant, *cells, paper])
    head = [
        "network",
        "variant",
        "parameters",
        "seconds a step",
        "relative",
        "peak memory, relative",
        "paper: parameters, relative",
    ]
    yield from table(head, body)
    step, passes = found["sequential"]["step"], found["sequential"]["pseudo_passes"]
    yield ""
    yield (
        f"A step with sequential ARM on WRN-28-10 takes {step:.2f} of one that runs its 12 pseudo passes naively, from "
        f"the first layer on; these\npasses alone take {passes:.2f}."
    )


def attention() -> Iterator[str]:
    """What the sites of MCAN cost, beside the paper's sizes."""
    body = []
    for variant, row in benchmark("attention")["steps"].items():
        paper = "58M" if variant == "plain" else "61M"
        sizes = f"{row['sites']:.0f}", f"{row['parameters'] / 1e6:.2f}M"
        body.append([variant, *sizes, paper, f"{row['step']:.2f}"])
    yield from table(["variant", "sites", "parameters", "paper", "step, relative"], body)


def attention_row(method: str, setting: str) -> list[str]:
    """Accuracy, PAvPU, log-likelihood, and how far keep probabilities of attention sites vary over samples."""
    found = records(method, setting)
    tests = [next(iter(record["test"].values())) for record in found]
    vary = [
        statistics.mean(site["sd_over_samples"] for name, site in sites.items() if ATTENTION.search(name))
        for record in found
        if (sites := record.get("contextuality", {}).get("sites"))
    ]
    return [
        str(len(found)),
        shown([test["accuracy"] for test in tests], 2),
        shown([test["pavpu"]["0.05"]["value"] for test in tests], 2),
        shown([test["log_likelihood"] for test in tests], 3),
        shown(vary, 4),
    ]


def contexts() -> Iterator[str]:
    """What a site on attention weights reads, on a validation split."""
    names = ("entropy", "queries", "scores", "weights")
    body = [[f'`"{name}"`', *attention_row(name, "easy-vqa-contexts/noisy")] for name in names]
    yield from table(["context", *ATTENTION_FIGURES], body)


def attention_runs() -> Iterator[str]:
    """The methods on networks with attention."""
    body = [
        [f"{network}, {setting}", words, *attention_row(method, f"{name}/{setting}")]
        for name, network in ATTENTION_NETWORKS.items()
        for setting in ("noisy", "original")
        for method, words in ATTENTION_METHODS.items()
    ]
    yield from table(["", "dropout", *ATTENTION_FIGURES], body)


def errors() -> Iterator[str]:
    """The estimators against enumeration."""
    body = [
        [name, f"{row['bias']:.2f} ({row['floor']:.2f})", f"{row['sd']:.2f}", f"{row['rmse']:.2f}"]
        for name, row in benchmark("variance")["errors"].items()
    ]
    yield from table(["estimator", "bias (if there were none)", "standard deviation", "root mean squared error"], body)


def variance() -> Iterator[str]:
    """The variance of the estimators on the paper's MLP."""
    rows = benchmark("variance")["relative_variance"].items()
    body = [[name, *(f"{value:.2f}" if value >= 0.1 else f"{value:.1g}" for value in row)] for name, row in rows]
    yield from table(["estimator", "site 1 (784)", "site 2 (300)", "site 3 (100)"], body)


def ratios() -> tuple[dict[str, float], dict[str, float]]:
    """What a training step costs on the MLP and on the CNN, by the same names."""
    measured = benchmark("core")["ratios"]
    mlp = {name.replace("sampled-arm", "sampled-arm (k=1)"): value for name, value in measured["mlp"].items()}
    return mlp, measured["cnn"]


def time() -> Iterator[str]:
    """What was timed, and what was not."""
    mlp, cnn = ratios()
    body = [[name, *(f"{each[name]:.2f}" if name in each else NONE for each in (mlp, cnn))] for name in mlp]
    yield from table(["estimator", "MLP", "CNN"], body)
    missing = [name for _, _, name in ESTIMATORS.values() if name not in mlp]
    if missing:
        yield from ("", f"Not timed yet: {'; '.join(missing)}.")


def estimators() -> Iterator[str]:
    """Passes, bias and cost of all estimators but REINFORCE."""
    body = [
        [words, passes, unbiased, *(f"{each[name]:.2f}" if name in each else "not timed yet" for each in ratios())]
        for words, (passes, unbiased, name) in ESTIMATORS.items()
    ]
    yield from table(["estimator", "pseudo passes", "unbiased", "training step¹: MLP", "CNN, 12 sites"], body)


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "opening": opening,
    "opening settings": opening_settings,
    "clean MNIST": clean_mnist,
    "prediction": prediction,
    "noisy MNIST": noisy_mnist,
    "certain": certain,
    "attention": attention,
    "attention contexts": contexts,
    "attention runs": attention_runs,
    "convolutional": convolutional,
    "networks": compatibility.table,
    "errors": errors,
    "variance": variance,
    "time": time,
    "estimators": estimators,
}


def written(text: str) -> str:
    """A page with its tables as they should be."""
    return BLOCK.sub(lambda block: "\n".join([block[1], *TABLES[block[2]](), "", block[4]]), text)


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
