"""The table of docs/compatibility.md, measured again with ``python -m tests.compatibility.table``.

It needs the packages of the networks beside ours. Some of them ask for torchvision, which must not be installed here
(see CONTRIBUTING.md) and which no network below needs: hence without their dependencies, in a folder of its own::

    pip install --no-deps --target FOLDER monai torch_geometric xxhash pytorch-forecasting scikit-base \
        rtdl_revisiting_models rtdl_num_embeddings tabm x-transformers einx frozendict loguru perceiver-pytorch \
        tab-transformer-pytorch x-mlps-pytorch discrete-continuous-embed-readout hyper-connections \
        torch-einops-utils beartype conformer linear-attention-transformer local-attention linformer \
        axial-positional-embedding product-key-memory colt5-attention pytorch-tcn efficientnet-pytorch \
        dynamic-network-architectures einops
    PYTHONPATH=FOLDER python -m tests.compatibility.table

Networks whose package cannot be imported are named as not run. Afterwards ``python -m tests.docs.measured`` writes the
table into the page.
"""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import contextual_dropout as cd
from contextual_dropout_lab.store.files import write_json
from contextual_dropout_lab.store.provenance import provenance
from tests.compatibility import hugging_face, packages
from tests.compatibility.checks import CHECKS, converted, examine
from tests.compatibility.networks import Network

__all__ = ["RECORD", "measure", "table"]

RECORD = Path(__file__).parents[2] / "experiments" / "compatibility" / "networks.json"
MARKS = {True: "yes", False: "**no**", None: "—"}


def measure(network: Network) -> dict[str, Any]:
    """What one network showed, as plain values."""
    row: dict[str, Any] = {"network": network.name, "package": network.package}
    try:
        network.run(network.plain(), network.example())
    except ModuleNotFoundError as error:
        return row | {"missing": str(error)}
    row["version"] = metadata.version(network.package)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = converted(network)
    except Exception as error:
        return row | {"refused": f"{type(error).__name__}: {error}"}
    row |= {"sites": len(cd.sites(model)), "left": cd.conversion_of(model).left}
    outcomes = {name: examine(network, check) for name, check in CHECKS.items()}
    return row | {"checks": {name: {"holds": end.holds, "detail": end.detail} for name, end in outcomes.items()}}


def table() -> Iterator[str]:
    """The lines of the table in Markdown, what did not hold below it with its reason, and what all was run with."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    rows = [row for row in found["networks"] if "missing" not in row]
    head = ["network", "package", "sites", *CHECKS]
    yield from (f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *map(_cells, rows)))
    for title, lines in (("What does not hold", _reasons(rows)), ("Dropout that was left as it was", _left(rows))):
        if lines:
            yield from ("", f"{title}:", "", *(f"- {line}" for line in lines))
    missing = sorted({row["package"] for row in found["networks"] if "missing" in row})
    if missing:
        yield from ("", f"Not run, since they were not installed: {', '.join(missing)}.")
    origin = found["provenance"]
    changed = " with uncommitted changes" if origin["uncommitted_changes"] else ""
    versions = f"torch {origin['versions']['torch']}, Python {origin['python']}"
    yield from ("", f"{len(rows)} networks, {origin['time'][:10]}, `{origin['commit'][:7]}`{changed}, {versions}.")


def _cells(row: dict[str, Any]) -> list[str]:
    name = [row["network"], f"{row['package']} {row['version']}"]
    if "refused" in row:
        return [*name, "refused", *[MARKS[None]] * len(CHECKS)]
    checks = (row["checks"][check] for check in CHECKS)
    return [*name, str(row["sites"]), *(_cell(check["holds"], check["detail"]) for check in checks)]


def _cell(holds: bool | None, detail: str) -> str:
    return detail if holds and detail else MARKS[holds]


def _reasons(rows: list[dict[str, Any]]) -> list[str]:
    """Each check that failed, and each conversion that was refused, with its message."""
    lines = []
    for row in rows:
        where = f"{row['network']} ({row['package']})"
        if "refused" in row:
            lines.append(f"{where}, conversion: {_short(row['refused'])}")
        failed = {name: check for name, check in row.get("checks", {}).items() if check["holds"] is False}
        lines += [f"{where}, {name}: {_short(check['detail'])}" for name, check in failed.items()]
    return lines


def _left(rows: list[dict[str, Any]]) -> list[str]:
    """What conversions left alone, by the reasons that they gave."""
    lines = []
    for row in rows:
        reasons = Counter(re.split(r"[;:]", reason)[0] for reason in row.get("left", {}).values())
        if reasons:
            counted = "; ".join(f"{reason} ({count})" if count > 1 else reason for reason, count in reasons.items())
            lines.append(f"{row['network']} ({row['package']}): {counted}")
    return lines


def _short(message: str) -> str:
    """A message on one line, safe in Markdown."""
    text = " ".join(message.removeprefix("AssertionError: ").split())
    text = text if len(text) <= 300 else f"{text[:297]}..."
    return re.sub(r"([_*<>|`])", r"\\\1", text)


def main() -> None:
    """Measure all networks and write the record."""
    rows = []
    for network in (*hugging_face.NETWORKS, *packages.NETWORKS):
        rows.append(measure(network))
        failed = [name for name, check in rows[-1].get("checks", {}).items() if check["holds"] is False]
        print(f"{network.package}, {network}: {rows[-1].get('missing') or rows[-1].get('refused') or failed or 'all'}")
    where = {key: provenance()[key] for key in ("commit", "uncommitted_changes", "versions", "python", "time")}
    write_json(RECORD, {"networks": rows, "provenance": where})


if __name__ == "__main__":
    main()
