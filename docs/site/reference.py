"""The pages of docs/reference that say what the code says: every command with its options, every setting.

`python -m docs.site.reference` writes them anew; a test compares them with the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer
import yaml
from pydantic.fields import FieldInfo

from docs.site.cheatsheet import cheatsheet
from docs.site.tables import WRITTEN, table
from regard.commands.app import COMMANDS, app
from regard.config import Config, Section
from regard.inputs import INPUTS
from regard.outputs import OUTPUTS
from regard.runs.settings import kinds_of, settings_of

FOLDER = Path(__file__).parents[1] / "reference"
# ---- commands -----------------------------------------------------------------------------------------------------


def commands() -> str:
    """Return the page of all commands, from their signatures."""
    known: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    listed = table(
        ("command", "does"),
        ((f"[`{name}`](#regard-{name})", short.rstrip(".")) for name, (_, short) in COMMANDS.items()),
    )
    head = (
        f"# Commands\n\n{WRITTEN}\n"
        "Results go to standard output, the log and progress to standard error. The exit code is 0 if all went well,\n"
        "1 for a failure and 2 for a wrong command line. `regard COMMAND --help` prints what stands here.\n\n"
    )
    return head + listed + "".join(command(name, known[name]) for name in COMMANDS)


def command(name: str, known: Any) -> str:
    """Return the section of a command: what it does, an example, its arguments and options."""
    text, _, example = known.help.partition("Example: ")
    arguments = [p for p in known.params if p.param_type_name == "argument"]
    options = [p for p in known.params if p.param_type_name == "option" and not p.hidden]
    usage = " ".join(
        ["regard", name, *(a.metavar or a.name.upper() for a in arguments), *["[OPTIONS]"] * bool(options)]
    )
    parts = [f"\n## regard {name}\n\n{' '.join(text.split())}\n", f"```text\n{usage}\n```\n"]
    if example:
        parts.append(f"```console\n$ {example.strip()}\n```\n")
    rows = [(f"`{a.metavar or a.name.upper()}`", "", a.help or "") for a in arguments]
    kinds = get_type_hints(COMMANDS[name][0])
    rows += [(names(o, kinds[o.name]), default(o), o.help or "") for o in options]
    return "\n".join([*parts, table(("argument or option", "default", "meaning"), rows)])


def names(option: Any, kind: Any) -> str:
    """Return an option as it is written, with its value."""
    written = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return written
    value = option.metavar or {int: "INTEGER", float: "NUMBER"}.get(flat(kind)[0], "TEXT")
    return f"{written} `{value}`{', repeatable' if option.multiple else ''}"


def default(option: Any) -> str:
    return "" if option.default in (None, False, (), []) else f"`{option.default}`"


# ---- settings -----------------------------------------------------------------------------------------------------

Use = dict[tuple[str, str, type[Section]], set[tuple[str, str]]]  # section, kind, class → tasks and inputs


def uses() -> Use:
    """Return all sections of settings, with the tasks and inputs that have them."""
    found: Use = {}
    for task, output in OUTPUTS.items():
        for source, input in INPUTS.items():
            if output.needs - input.offers:
                continue
            whole = settings_of(task, source, "reference")
            for section in order(whole, source):
                for kind, known in classes(whole, section):
                    found.setdefault((section, kind, known), set()).add((task, source))
    return found


def order(whole: type[Config], source: str) -> list[str]:
    """Return the sections in the order in which they are written."""
    first = ["data", source]
    return [*first, *(name for name in whole.model_fields if name not in ("task", "input", *first))]


def classes(whole: type[Config], section: str) -> Iterator[tuple[str, type[Section]]]:
    """Yield (kind, class) of a section; a section without kinds has one class."""
    annotation = whole.model_fields[section].annotation
    if section in ("model", "encoder"):
        yield from kinds_of(whole, section).items()
    elif isinstance(annotation, type) and issubclass(annotation, Section):
        yield "", annotation


TITLES = {
    "data": "The files of a run.",
    "training": "How the weights are found.",
    "model": "The network. `model.kind` chooses it and brings the settings of that kind.",
    "encoder": "What reads the source, if not the model's own encoder: `encoder.kind` is one of the kinds below.",
    "output": "What comes out.",
    "decoding": "How answers are searched for, or drawn.",
    "tokens": "Texts as an input.",
    "patches": "Images as an input.",
    "frames": "Recordings as an input.",
    "nodes": "Graphs as an input.",
    "clips": "Clips as an input.",
    "hiding": "What `fill` hides in training.",
    "loss": "The terms of the loss of `imagine`.",
}


def settings() -> str:
    """Return the page of all settings, section by section."""
    known = uses()
    sections = sorted({section for section, _, _ in known}, key=lambda name: [*TITLES, name].index(name))
    listed = "\n".join(f"- [`{name}`](#{name}): {TITLES.get(name, '')}".rstrip(": ") for name in sections)
    head = (
        f"# Settings\n\n{WRITTEN}\n"
        "`regard train` chooses settings from the data, says why in its log, and writes all of them into\n"
        "`config.yaml` of the run. `--set section.name=value` changes any of them. The defaults below count where\n"
        "nothing was chosen.\n"
        f"`task` is one of {', '.join(f'`{name}`' for name in OUTPUTS)}; `input` is one of "
        f"{', '.join(f'`{name}`' for name in INPUTS)}.\n\n{listed}\n"
    )
    return head + "".join(section_of(name, known) for name in sections)


def section_of(name: str, known: Use) -> str:
    """Return a section of the page: a table for each class of settings, or what differs from the first."""
    parts = [f"\n## {name}\n\n{TITLES.get(name, '')}".rstrip() + "\n"]
    mine = [(kind, each) for section, kind, each in known if section == name]
    first = rows_of(name, mine[0][1])
    for kind, each in mine:
        if name == "encoder" and ("model", kind, each) in known:
            parts.append(f"- `{kind}`: the settings of [{kind}](#{anchor(title('model', kind, each, known))}) above")
            continue
        rows = rows_of(name, each)
        other = [row for row in rows if row not in first]
        differs = not kind and each is not mine[0][1] and len(other) < len(rows) / 2
        if len(mine) > 1:
            parts.append(f"\n### {title(name, kind, each, known)}\n")
            parts.append(
                " ".join([about(each), whom(known[name, kind, each]), "Other than above:" * differs]).strip() + "\n"
            )
        parts.append(table(("setting", "default", "values", "meaning"), other if differs else rows))
    return "\n".join(parts).rstrip("\n") + "\n"


def rows_of(section: str, each: type[Section]) -> list[list[str]]:
    return [row(f"{section}.{key}", field) for key, field in each.model_fields.items()]


def title(section: str, kind: str, each: type[Section], known: Use) -> str:
    """Return the heading of a class of settings: its kind, and its tasks where another class has that kind too."""
    twins = [other for name, other, _ in known if (name, other) == (section, kind)]
    tasks = ", ".join(task for task in OUTPUTS if any(task == t for t, _ in known[section, kind, each]))
    return " ".join([kind or section, f"({tasks})" * (len(twins) > 1)]).strip()


def anchor(heading: str) -> str:
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def about(each: type[Section]) -> str:
    """Return the first sentence of a class's own docstring."""
    text = " ".join((each.__dict__.get("__doc__") or "").split())
    return f"{text.rstrip('.')}." if text else ""


def whom(used: set[tuple[str, str]]) -> str:
    """Return which tasks, and on which inputs, have a section."""
    tasks = [task for task in OUTPUTS if any(task == t for t, _ in used)]
    sources = [source for source in INPUTS if any(source == s for _, s in used)]
    inputs = "every input that the task reads" if len(sources) == len(INPUTS) else ", ".join(f"`{s}`" for s in sources)
    return f"For {', '.join(f'`{task}`' for task in tasks)} on {inputs}."


def row(key: str, field: FieldInfo) -> list[str]:
    value = "" if field.is_required() else yaml.safe_dump(field.get_default(call_default_factory=True)).split("\n")[0]
    shown = "" if value in ("", "null", "''") else f"`{value}`"
    return [f"`{key}`", "*needed*" if field.is_required() else shown, values(field), field.description or ""]


def values(field: FieldInfo) -> str:
    """Return what a setting may be: names, a range, or its type."""
    found = [kind for kind in flat(field.annotation) if kind is not type(None)]
    literals = [value for kind in found if get_origin(kind) is Literal for value in get_args(kind)]
    if literals:
        return ", ".join(f"`{value}`" for value in literals)
    name = {bool: "true, false", int: "whole number", float: "number", str: "text"}.get(found[0], "list")
    if found[0] is bool or not (bounds := limits(field)):
        return name
    return f"{name} {bounds}"


def flat(annotation: Any) -> list[Any]:
    """Return the alternatives of a type."""
    inner = get_args(annotation)
    if get_origin(annotation) in (Literal, list, tuple) or not inner:
        return [annotation]
    return [kind for part in inner if part.__class__ is not FieldInfo for kind in flat(part)]


def limits(field: FieldInfo) -> str:
    """Return the bounds of a number, without those that only keep absurd ones away."""
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [(sign, getattr(m, name)) for name, sign in signs.items() for m in field.metadata if hasattr(m, name)]
    return ", ".join(f"{sign} {bound:,}" for sign, bound in bounds if bound <= 1000)


PAGES = {"commands.md": commands, "settings.md": settings, "cheatsheet.md": cheatsheet}


if __name__ == "__main__":
    for file, write in PAGES.items():
        (FOLDER / file).write_text(write(), encoding="utf-8")
