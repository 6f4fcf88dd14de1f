"""Configurations, checkpoints, networks and sites that are more than they seem."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from contextual_dropout_lab.store.networks import FILE
from tests.archives import Reserve, laughing, packed_again, saved, slow_key, two_faced
from tests.reliability.data_lies import Lies
from tests.reliability.mutations import in_safetensors, in_zip
from tests.reliability.run_loaders import CONFIG, network_file, sites_file

DEEP = {"side": 32, "patch": 4, "hidden": 8, "layers": 10**9, "heads": 2}


def stretched() -> bytes:
    """A checkpoint whose tensor of 1,000 numbers says that it has a billion."""
    content, pack = in_zip(saved({"digest": torch.arange(1000.0)}), "archive/data.pkl")
    return pack(content.replace(b"M\xe8\x03", b"J\x00\xca\x9a\x3b"))


def described(file: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A file of a network or of sites with something else written beside its tensors."""
    header, pack = in_safetensors(file)
    parsed = json.loads(header)
    metadata = {key: json.loads(value) for key, value in parsed["__metadata__"].items()}
    change(metadata)
    parsed["__metadata__"] = {key: json.dumps(value) for key, value in metadata.items()}
    return pack(json.dumps(parsed).encode())


def network(**changes: Any) -> Callable[[], dict[str, bytes]]:
    def change(metadata: dict[str, Any]) -> None:
        for name, value in changes.items():
            metadata[name] = metadata[name] | value if name == "config" else value

    return lambda: {FILE: described(network_file(), change)}


def sites(**options: Any) -> Callable[[], dict[str, bytes]]:
    def change(metadata: dict[str, Any]) -> None:
        for site in metadata["contextual_dropout"]["sites"].values():
            site.update(options)

    return lambda: {"f": described(sites_file(), change)}


def yaml(text: str) -> Callable[[], dict[str, bytes]]:
    return lambda: {"f.yaml": text.encode()}


def _laughs() -> str:
    lines = [f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    rest = "base: {}, methods: {mc: {}}, presets: {quick: {seeds: {noisy: 1}}}"
    return f"{{settings: {{noisy: {{options: {{a: &a0 [x, x], {', '.join(lines)}}}}}}}, {rest}}}"


RECORD = f"records/{CONFIG.name}.json"
QUICK: Lies = {
    "a configuration of 60 billion values": ("YAML", yaml(_laughs())),
    "a configuration that contains itself": ("YAML", yaml("base: &a {options: *a}")),
    "a configuration of 10,000 brackets": ("YAML", yaml("[" * 10_000)),
    "a configuration of 10 MB": ("YAML", yaml("a: [1, 2, 3]\n" * 800_000)),
    "a record of a million brackets": ("record", lambda: {RECORD: b"[" * 10**6}),
    "a record with a number of 10,000 digits": ("record", lambda: {RECORD: b"9" * 10_000}),
    "a checkpoint that asks for 1 GB": ("checkpoint", lambda: {"f": saved({"digest": Reserve()})}),
    "a checkpoint whose key takes hours to hash": ("checkpoint", lambda: {"f": slow_key()}),
    "a checkpoint that unpacks to 400 MB": ("checkpoint", lambda: {"f": packed_again(saved(torch.zeros(10**8)))}),
    "a checkpoint of a billion numbers": ("checkpoint", lambda: {"f": stretched()}),
    "a checkpoint in which torch would find 400 MB": (
        "checkpoint",
        lambda: {"f": two_faced(shown={"a": torch.zeros(1)}, hidden={"digest": torch.zeros(10**8)})},
    ),
    "a checkpoint of a million million values": ("checkpoint", lambda: {"f": saved({"digest": laughing()})}),
    "weights in which torch would find 400 MB": (
        "weights",
        lambda: {"f.pth": two_faced(shown={"a": torch.zeros(1)}, hidden={"a": torch.zeros(10**8)})},
    ),
    "weights that ask for 1 GB": ("weights", lambda: {"f.pth": saved(Reserve())}),
    "weights of before 2020 that ask for 1 GB": (
        "weights",
        lambda: {"f.pt": saved(Reserve(), _use_new_zipfile_serialization=False)},
    ),
    "weights that unpack to 400 MB": ("weights", lambda: {"f.pth": packed_again(saved(torch.zeros(10**8)))}),
    "a safetensors header of 8 EB": ("weights", lambda: {"f.safetensors": (2**63).to_bytes(8, "little") + b"{}"}),
    "a network of 2 GB": ("network", network(config={"hidden": [20_000, 20_000]})),
    "a network of 3,000 layers": ("network", network(config={"hidden": [4] * 3000})),
    "a network of a billion blocks": (
        "network",
        network(config={"network": "vit", "network_options": DEEP}, shape=[3, 32, 32]),
    ),
    "a network for inputs of 40 GB": ("network", network(config={"network": "resnet18"}, shape=[3, 60_000, 60_000])),
    "sites of 5 GB": ("sites", sites(features=100_000)),
    "sites beyond all addresses": ("sites", sites(features=10**12)),
}
