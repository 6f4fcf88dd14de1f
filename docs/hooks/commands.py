"""The reference of the command ``contextual-dropout``, made of the application itself: api/commands.md."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any

import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from contextual_dropout_lab.cli.app import app


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    files.append(File.generated(config, "api/commands.md", content="\n".join(page())))
    return files


def page() -> Iterator[str]:
    """Its lines: what the program says of itself, then each command with its arguments and options."""
    program = typer.main.get_command(app)
    yield from ("# Commands", "", program.help or "", "", "`--help` after any command prints what stands here.", "")
    for name, command in program.commands.items():  # type: ignore[attr-defined]
        arguments = [_usage(each) for each in command.params if each.param_type_name == "argument"]
        yield from (f"## {name}", "", command.help or "", "", "```")
        yield " ".join(["contextual-dropout", name, *arguments, "[OPTIONS]"])
        yield from ("```", "", "| | | default |", "|---|---|---|")
        yield from (_row(each) for each in command.params)
        yield ""


def _usage(argument: Any) -> str:
    name = argument.name.upper() + ("…" if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _row(parameter: Any) -> str:
    names = [parameter.name.upper()] if parameter.param_type_name == "argument" else [*parameter.opts]
    default = "" if parameter.default is None or parameter.required else f"`{parameter.default}`"
    text = html.escape(parameter.help or "", quote=False).replace("|", r"\|")
    return f"| {', '.join(f'`{name}`' for name in names)} | {text} | {default} |"
