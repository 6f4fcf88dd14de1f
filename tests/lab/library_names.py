"""What the lab imports of the library, and which of it is not public: ``python -m tests.lab.library_names``."""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from pathlib import Path
from types import ModuleType

LAB = Path(__file__).parents[2] / "src/contextual_dropout_lab"
#: Modules whose ``__all__`` is the public interface.
PUBLIC = (
    *("contextual_dropout", "contextual_dropout.baselines", "contextual_dropout.metrics"),
    *("contextual_dropout.significance", "contextual_dropout.training.estimators"),
    "contextual_dropout.training.schedules",
)


def imported() -> dict[tuple[str, str], list[str]]:
    """The files of the lab by what they import of the library: ``{(module, name): files}``."""
    found = defaultdict(list)
    for path in sorted(LAB.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "contextual_dropout":
                for alias in node.names:
                    found[str(node.module), alias.name].append(path.relative_to(LAB).as_posix())
    return found


def public_name(module: str, name: str) -> str | None:
    """How a user would write it; None of what is not public."""
    value = getattr(importlib.import_module(module), name)
    for place in PUBLIC:
        home = importlib.import_module(place)
        if value is home or any(value is getattr(home, each) for each in home.__all__):
            return place if isinstance(value, ModuleType) else f"{place}.{name}"
    return None


def not_public() -> dict[str, list[str]]:
    """The files of the lab by what they import and is not public."""
    names = {f"{module}.{name}": (files, public_name(module, name)) for (module, name), files in imported().items()}
    return {name: files for name, (files, public) in sorted(names.items()) if public is None}


if __name__ == "__main__":
    for full_name, users in not_public().items():
        print(f"{full_name}: {', '.join(users)}")
