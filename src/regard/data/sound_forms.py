"""Recognition of speech data: folders by what lies in them, tables by a column of names of recordings."""

from __future__ import annotations

from collections import Counter

from regard.data.folders import Handle, Tree
from regard.data.format import Format, few
from regard.data.intervals import decoded, is_labels
from regard.data.recognition import Files
from regard.data.recordings import FRAMES, by_name, labelled, pairs_in, sidecars, sounds_in, speakers
from regard.data.sound import SUFFIXES
from regard.data.sound_tables import recognise_inside, recognise_table
from regard.errors import UserError

EXPECTED = (
    "expected a folder for each class, a table with a column of paths and one of labels or transcripts, wav.scp and "
    "text, *.trans.txt, or a .txt or .TextGrid file beside each recording"
)


def recognise_sound(files: Files, task: str | None) -> Format | None:
    """Return the form of folders, archives and tables of recordings; None for other files."""
    forms = []
    for path, tree in zip(files.paths, files.trees, strict=True):
        if tree is not None:
            forms.append(recognise_tree(tree, task))
        elif path.name == "wav.scp":
            forms.append(_kaldi(Tree(str(path.parent)), task))
        elif path.suffix.lower() in SUFFIXES and path.is_file():
            raise UserError(f"{path} is one recording without a label or transcript: {EXPECTED}.")
        else:
            forms.append(recognise_table(path, files.encoding, task))
        if forms[-1] is None:
            return None
    if any((form.kind, form.task) != (forms[0].kind, forms[0].task) for form in forms if form and forms[0]):
        raise UserError(f"{files.paths[0]} and {files.paths[1]} have different formats: convert them to one.")
    return forms[0]


def recognise_tree(tree: Tree, task: str | None) -> Format | None:
    """Return the form of a folder or archive of recordings."""
    names = {handle.name.lower() for handle in tree.files if len(handle.inside) == 1}
    if "wav.scp" in names:
        return _kaldi(tree, task)
    sounds = sounds_in(tree)
    if not sounds or 2 * len(sounds) < sum(h.suffix not in (*FRAMES, ".txt") for h in tree.files):
        return None
    count = f"{len(sounds):,} recordings"
    if any(handle.name.endswith(".trans.txt") for handle in tree.files):
        return _form("sound-trans", f"{count} with transcripts in *.trans.txt (LibriSpeech)", task, "convert")
    table = recognise_inside(tree, task)
    if table is not None:
        return table
    beside = sidecars(tree)
    if 2 * len(beside) >= len(sounds):
        return _beside(beside, count, task)
    labels = [label for label, _ in labelled(tree)]
    if len(set(labels)) > 1:
        kinds, who = len(set(labels)), _said(speakers([*labelled(tree)]))
        return _form("sound-folders", f"{count} in {kinds} folders, which are their labels{who}", task, "classify")
    named = [*by_name(sounds)]
    if named and few([label for label, _ in named]):
        kinds, who = len({label for label, _ in named}), _said(speakers(named))
        return _form("sound-names", f"{count} whose names begin with one of {kinds} labels{who}", task, "classify")
    raise UserError(f"{tree.path} holds {count} without labels or transcripts: {EXPECTED}.")


def _form(kind: str, description: str, task: str | None, own: str) -> Format:
    if task == "tag" and own != "tag":
        raise UserError(
            f"--task tag labels frames, and there are no labels of frames ({description}): expected a .TextGrid file, "
            "or one of `start end label` lines, beside each recording."
        )
    if task == "continue":
        raise UserError("--task continue needs text: recordings cannot be continued.")
    return Format(kind, 2, description, task=task or own, input="frames")


def _said(found: dict[str, str]) -> str:
    names = sorted({*found.values()})
    some = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
    return f"; by {len(names)} speakers, as their names show ({some}), who are held out whole" if names else ""


def _beside(beside: list[tuple[Handle, Handle]], count: str, task: str | None) -> Format:
    first = decoded(beside[0][1].read())
    frames = beside[0][1].suffix == ".textgrid" or is_labels(first)
    if frames and task in (None, "tag"):
        return _form("sound-frames", f"{count} with labels of frames beside them (*{beside[0][1].suffix})", task, "tag")
    return _form("sound-beside", f"{count} with transcripts beside them (*{beside[0][1].suffix})", task, "convert")


def _kaldi(tree: Tree, task: str | None) -> Format:
    names = {handle.name: handle for handle in tree.files if len(handle.inside) == 1}
    if "text" not in names:
        raise UserError(f"{tree.path} has wav.scp and no file `text`, expected transcripts (Kaldi's data folder).")
    count = len(pairs_in(names["text"]))
    who = Counter(pairs_in(names["utt2spk"]).values()) if "utt2spk" in names else {}
    said = f" by {len(who)} speakers, who are held out whole" if len(who) > 1 else ""
    return _form("sound-kaldi", f"{count:,} utterances{said}: Kaldi's wav.scp and text", task, "convert")
