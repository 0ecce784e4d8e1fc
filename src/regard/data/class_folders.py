"""Folders of texts, one folder for each label: `pos/1.txt`, `neg/1.txt`; or the same in a zip archive."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.data.example import TextExample, counted, make_example
from regard.data.folders import Handle, Tree, by_folder, tree_of
from regard.data.format import Format
from regard.data.lines import UTF_8, Fault, OnFault, decode_line, read_text
from regard.errors import UserError

TABLES = (".tsv", ".csv", ".jsonl", ".json", ".parquet", ".conll", ".conllu", ".gz", ".zip", ".yaml", ".yml")
TEXTS = ("", ".txt", ".text", ".md", ".eml", ".html", ".htm")


def recognise_class_folders(trees: Sequence[Tree | None], task: str | None, *, sure: bool = False) -> Format | None:
    """Return the format of a folder with a folder of texts for each label, or None."""
    if task not in (None, "classify") or not trees or any(tree is None for tree in trees):
        return None
    found = [(label, handle) for tree in trees if tree is not None for label, handle in by_folder(tree)]
    counts = Counter(label for label, _ in found)
    several = [label for label, count in counts.items() if count > 1]
    total = sum(len(tree.files) for tree in trees if tree is not None)
    if len(counts) < 2 or len(several) < 2 or len(found) < 0.8 * total:
        return None
    texts = sum(handle.suffix not in TABLES for _, handle in found)
    if not sure and (texts < 0.9 * len(found) or 2 * len(counts) > len(found)):
        return None
    why = f"{counted(len(found), 'file')} lie in {len(counts):,} folders: {', '.join(sorted(counts)[:5])}"
    why += " …" if len(counts) > 5 else ""
    return Format("folders", 1, "a folder of texts for each label", task="classify", why=why)


def read_class_folders(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[TextExample]:
    """Yield each file as a text, its line breaks as blanks, with the name of its folder as the label."""
    tree = tree_of(path)
    if tree is None:
        raise UserError(f"{path}: expected {form.description}, found a file.")
    for label, handle, text in _texts(tree, report, encoding):
        example = make_example(" ".join(text.split()), label, str(handle), 1, report, form.task)
        if example is not None:
            yield example


def _texts(tree: Tree, report: OnFault, encoding: str) -> Iterator[tuple[str, Handle, str]]:
    if not tree.archive:
        for label, handle in by_folder(tree):
            sound = True

            def fault(found: Fault) -> None:
                nonlocal sound
                sound = False
                report(found)

            text = "\n".join(line for _, line in read_text(handle.path, fault, encoding))
            if sound:
                yield label, handle, text
        return
    try:
        with zipfile.ZipFile(tree.archive) as archive:  # opened once: its directory may be long
            for label, handle in by_folder(tree):
                content = decode_line(str(handle), 1, archive.read(handle.member), report, encoding)
                if content is not None:
                    yield label, handle, content
    except (OSError, RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise UserError(f"{tree.archive} cannot be unpacked: {error}.") from error
