"""Folders and archives of recordings, with their labels, transcripts or labels of frames.

Nothing is ever executed: a pipe in Kaldi's wav.scp is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from regard.data.example import Example
from regard.data.folders import Handle, Tree, by_folder, tree_of
from regard.data.format import Format
from regard.data.intervals import decoded, intervals_of, tags_of
from regard.data.lines import Fault, OnFault
from regard.data.sound import SUFFIXES, Clip, frame_count, handle_at, header, seconds
from regard.errors import UserError

SoundExample = Example[Clip, str]
FRAMES = (".textgrid", ".phn", ".lab", ".labels")  # of files that label frames


# ---- what lies in a folder -----------------------------------------------------------------------------------------


def sounds_in(tree: Tree) -> list[Handle]:
    """Return the recordings of a tree."""
    return [handle for handle in tree.files if handle.suffix in SUFFIXES]


def labelled(tree: Tree) -> list[tuple[str, Handle]]:
    """Return the label of each recording by its folder; folders such as _background_noise_ are none."""
    found = by_folder(tree)
    return [(label, h) for label, h in found if h.suffix in SUFFIXES and not label.startswith("_")]


def by_name(sounds: Sequence[Handle]) -> Iterator[tuple[str, Handle]]:
    """Yield the first part of each name, up to _ or -, where all names have as many parts."""
    parts = [re.split("[_-]", PurePosixPath(handle.name).stem) for handle in sounds]
    if len({*map(len, parts)}) == 1 and 2 <= len(parts[0]) <= 4:
        yield from ((part[0], handle) for part, handle in zip(parts, sounds, strict=True))


def speakers(named: Sequence[tuple[str, Handle]]) -> dict[str, str]:
    """Return the speaker of each recording, where exactly one part of the names may be one: no number, no label, and
    not always the same ({digit}_{speaker}_{index}, {speaker}_nohash_{index})."""
    parts = [re.split("[_-]", PurePosixPath(handle.name).stem) for _, handle in named]
    if len(parts) < 8 or len({*map(len, parts)}) != 1 or len(parts[0]) < 2:
        return {}
    found = []
    for place in range(len(parts[0])):
        values = [part[place] for part in parts]
        together = len({(value, label) for value, (label, _) in zip(values, named, strict=True)})
        kinds = len({*values})
        if all(value.isdigit() for value in values) or not 2 <= kinds <= len(values) // 2 or together == kinds:
            continue
        found.append({str(handle): value for value, (_, handle) in zip(values, named, strict=True)})
    return found[0] if len(found) == 1 else {}


def sidecars(tree: Tree) -> list[tuple[Handle, Handle]]:
    """Return each recording that has a file of text or labels of the same name beside it, with that file."""
    stems = {(h.inside[:-1], PurePosixPath(h.name).stem): h for h in tree.files if h.suffix in (*FRAMES, ".txt")}
    keys = [(handle, (handle.inside[:-1], PurePosixPath(handle.name).stem)) for handle in sounds_in(tree)]
    return [(handle, stems[key]) for handle, key in keys if key in stems]


# ---- reading -------------------------------------------------------------------------------------------------------


def read_named(path: Path | str, form: Format, report: OnFault, encoding: str) -> Iterator[SoundExample]:
    """Yield recordings labelled by their folder, or by the first part of their name."""
    del report, encoding
    tree = _tree(path)
    named = labelled(tree) if form.kind == "sound-folders" else [*by_name(sounds_in(tree))]
    who = speakers(named)
    for number, (label, handle) in enumerate(named, 1):
        yield example(Clip(handle), label, str(path), number, who.get(str(handle), ""))


def read_beside(path: Path | str, form: Format, report: OnFault, encoding: str) -> Iterator[SoundExample]:
    """Yield recordings with the transcript, or the labels of frames, beside them."""
    del encoding
    found = sidecars(_tree(path))
    who = speakers([("", handle) for handle, _ in found])
    for number, (handle, other) in enumerate(found, 1):
        clip = Clip(handle)
        text = _transcript(other) if form.kind == "sound-beside" else labels_of(clip, other, report, number)
        if text is not None and has_transcript(text, str(other), 1, report):
            yield example(clip, text, str(other), 1, who.get(str(handle), ""), (other.path,))


def labels_of(clip: Clip, other: Handle, report: OnFault, line: int) -> str | None:
    """Return the label of each frame of a clip from a file of labels; report what is wrong with it."""
    try:
        found = intervals_of(other.read(), str(other), header(clip.handle).rate, header(clip.handle).seconds)
        moved = [one._replace(start=one.start - clip.start, end=one.end - clip.start) for one in found]
        return tags_of(moved, frame_count(clip))
    except UserError as error:
        report(Fault(str(other), line, str(error).removeprefix(f"{other}: ").rstrip("."), "labels of frames"))
        return None


def _transcript(other: Handle) -> str:
    return " ".join(decoded(other.read(1 << 20)).split())


def read_trans(path: Path | str, form: Format, report: OnFault, encoding: str) -> Iterator[SoundExample]:
    """Yield LibriSpeech's recordings: `spk-chapter-0000 TEXT` in spk-chapter.trans.txt, the speaker being the first."""
    del form, encoding
    tree = _tree(path)
    known = {(h.inside[:-1], PurePosixPath(h.name).stem): h for h in sounds_in(tree)}
    for table in (handle for handle in tree.files if handle.name.endswith(".trans.txt")):
        for number, line in enumerate(decoded(table.read()).splitlines(), 1):
            name, _, text = line.strip().partition(" ")
            handle = known.get((table.inside[:-1], name))
            if name and handle is None:
                report(Fault(str(table), number, f"there is no recording {name} beside it", "missing recordings"))
            elif handle is not None and has_transcript(text, str(table), number, report):
                yield example(Clip(handle), text.strip(), str(table), number, name.partition("-")[0], (table.path,))


def has_transcript(text: str, file: str, line: int, report: OnFault) -> bool:
    """Return True for a transcript that is not empty; report an empty one."""
    if text.strip():
        return True
    report(Fault(file, line, "the transcript is empty; fill it in or remove the recording", "empty transcripts"))
    return False


def example(clip: Clip, target: str, file: str, line: int, who: str = "", more: Sequence[str] = ()) -> SoundExample:
    """Return an example whose recording is a file that it refers to, and whose speaker is held out whole."""
    return Example(clip, target, file, line, refers=(clip.handle.path, *more), group=who)


def _tree(path: Path | str) -> Tree:
    tree = tree_of(path)
    if tree is None:
        raise UserError(f"{path}: expected a folder or archive of recordings.")
    return tree


# ---- Kaldi ---------------------------------------------------------------------------------------------------------


def pairs_in(handle: Handle) -> dict[str, str]:
    """Return `key value` of each line."""
    lines = (line.split(maxsplit=1) for line in decoded(handle.read()).splitlines())
    return {parts[0]: parts[1].strip() if len(parts) > 1 else "" for parts in lines if parts}


def read_kaldi(path: Path | str, form: Format, report: OnFault, encoding: str) -> Iterator[SoundExample]:
    """Yield the utterances of a Kaldi folder; `segments` cuts recordings, and pipes are refused, never executed."""
    del form, encoding
    path = Path(path)
    root = path.parent if path.name == "wav.scp" else path
    tree = _tree(root)
    names = {handle.name: handle for handle in tree.files if len(handle.inside) == 1}
    waves = pairs_in(names["wav.scp"])
    who = pairs_in(names["utt2spk"]) if "utt2spk" in names else {}
    segments = pairs_in(names["segments"]) if "segments" in names else {}
    find = finder(root, tree)
    for number, (name, text) in enumerate(pairs_in(names["text"]).items(), 1):
        if not has_transcript(text, str(names["text"]), number, report):
            continue
        cut = segments[name].split() if name in segments else [name]
        entry = waves.get(cut[0])
        what = _unfit(entry, cut, name)
        handle = None if what or entry is None else find(entry)
        if not what and handle is None:
            what = f"{name}: there is no recording {entry}"
        if what or handle is None:
            report(Fault(str(names["wav.scp"]), number, what, "missing recordings"))
            continue
        clip = Clip(handle, float(cut[1]), float(cut[2])) if len(cut) > 2 else Clip(handle)
        yield example(clip, text, str(names["text"]), number, who.get(name, ""), (names["wav.scp"].path,))


def _unfit(entry: str | None, cut: list[str], name: str) -> str:
    if entry is None:
        return f"{name} has no line in wav.scp"
    if entry.endswith("|") or entry.startswith("|"):
        return f"{name} is a pipe ({entry[:40]} …), which is never executed; write the recording to a file first"
    if len(cut) > 2 and not all(re.fullmatch(r"\d+(\.\d+)?", part) for part in cut[1:3]):
        return f"{name}: expected start and end in seconds in `segments`, found {' '.join(cut[1:3])}"
    return ""


def finder(root: Path, tree: Tree | None) -> Callable[[str], Handle | None]:
    """Return what finds the recording that a table names: beside the table, in its clips or wavs, one folder up."""
    inside = {} if tree is None else {"/".join(handle.inside): handle for handle in tree.files}
    folders = [root, root / "clips", root / "wavs", root / "audio", root.parent, Path()]

    def find(name: str) -> Handle | None:
        name = name.strip()
        for before in ("", "clips/", "wavs/", "audio/"):
            if before + name in inside:
                return inside[before + name]
        for folder in folders:
            path = folder / name
            if path.is_file():
                return Handle(str(path))
            if ".zip/" in str(path).lower():
                handle = handle_at(str(path))
                if handle.member and _held(handle):
                    return handle
        return None

    return find


def _held(handle: Handle) -> bool:
    try:
        handle.size()
    except (KeyError, OSError):
        return False
    return True


def length(clip: Any) -> float:
    """Return the seconds of a clip; 0 of one that cannot be read."""
    try:
        return seconds(clip)
    except UserError:
        return 0.0
