"""Recordings: formats, layouts, labels of frames, features against a formula, and what `check` hears."""

import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from regard.commands.check import check
from regard.data.filterbank import features, log_mel
from regard.data.format import Format
from regard.data.intervals import UNLABELLED, label_lines, tags_of, textgrid
from regard.data.reading import read_examples
from regard.data.recognition import Files
from regard.data.sound import Clip, clip_at, frame_count, handle_at, header, samples_of, seconds
from regard.data.sound_forms import recognise_sound
from regard.data.sound_tables import columns_of, recognise_table, records
from regard.data.survey import Survey
from regard.errors import UserError
from regard.runs import settings
from regard.training.split import Split
from tests.data.sounds import RATE, tone, write

LONG = """File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = 0.3
tiers? <exists>
size = 2
item []:
    item [1]:
        class = "IntervalTier"
        name = "words"
        xmin = 0
        xmax = 0.3
        intervals: size = 1
        intervals [1]:
            xmin = 0
            xmax = 0.3
            text = "say ""ah"" "
    item [2]:
        class = "IntervalTier"
        name = "phones"
        xmin = 0
        xmax = 0.3
        intervals: size = 3
        intervals [1]:
            xmin = 0
            xmax = 0.1
            text = ""
        intervals [2]:
            xmin = 0.1
            xmax = 0.22
            text = "AH 1"
        intervals [3]:
            xmin = 0.22
            xmax = 0.3
            text = "s"
"""
SHORT = (
    '"ooTextFile"\n"TextGrid"\n\n0\n0.3\n<exists>\n1\n"IntervalTier"\n"phones"\n0\n0.3\n2\n0\n0.1\n""\n0.1\n0.3\n"a"\n'
)


def recognised(path: Path, task: str | None = None) -> Format:
    form = recognise_sound(Files([path]), task)
    assert form is not None
    return form


def read(path: Path, task: str | None = None, faults: list[Any] | None = None) -> list[Any]:
    form = recognised(path, task)
    return list(read_examples([path], None if faults is None else faults.append, form))


# ---- samples and features


@pytest.mark.parametrize(("suffix", "near"), [("wav", 1e-4), ("flac", 1e-4), ("ogg", 0.05), ("mp3", 0.05)])
def test_every_format_gives_the_samples_as_mono(tmp_path: Path, suffix: str, near: float) -> None:
    left = tone(440, 0.5)
    path = write(tmp_path / f"a.{suffix}", np.stack([left, np.zeros_like(left)], 1))
    found, rate = samples_of(clip_at(str(path)))
    assert rate == RATE
    assert header(handle_at(str(path))).channels == 2
    middle = slice(1000, 3000)
    assert np.abs(found[middle] - left[middle] / 2).max() < near


def test_a_clip_is_a_part_of_a_recording_also_in_an_archive(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", np.arange(8000) / 8000)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(path, "in/a.wav")
    for name in (str(path), str(tmp_path / "a.zip" / "in" / "a.wav")):
        clip = clip_at(f"{name}#0.25-0.5")
        assert (clip.start, clip.end, seconds(clip)) == (0.25, 0.5, 0.25)
        assert str(clip) == f"{name}#0.25-0.5"
        found, _ = samples_of(clip)
        assert np.allclose(found, np.arange(2000, 4000) / 8000, atol=1e-4)
    with pytest.raises(UserError, match=r"expected a part inside of 1\.00 seconds"):
        seconds(clip_at(f"{path}#2-3"))


def formula(samples: NDArray[np.float64], rate: int, bins: int) -> NDArray[np.float64]:
    """Kaldi's filter bank written out frame by frame."""
    shift, length = rate // 100, rate // 40
    size = 1 << (length - 1).bit_length()
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / (length - 1))) ** 0.85

    def mel(hertz: Any) -> Any:
        return 1127 * np.log1p(np.asarray(hertz) / 700)

    edges = np.linspace(mel(20), mel(rate / 2), bins + 2)
    places = mel(np.arange(size // 2) * rate / size)
    banks = np.stack(
        [
            np.maximum(0, np.minimum((places - a) / (b - a), (c - places) / (c - b)))
            for a, b, c in zip(edges, edges[1:], edges[2:], strict=False)
        ]
    )
    rows = []
    for frame in range((len(samples) + shift // 2) // shift):
        start = frame * shift + shift // 2 - length // 2
        index = np.arange(start, start + length)
        index = np.where(index < 0, -index - 1, index)  # mirrored at both ends
        index = np.where(index >= len(samples), 2 * len(samples) - 1 - index, index)
        x = samples[index] * 32768
        x = x - x.mean()
        x = x - 0.97 * np.concatenate((x[:1], x[:-1]))
        power = np.abs(np.fft.rfft(x * window, size)[: size // 2]) ** 2
        rows.append(np.log(np.maximum(banks @ power, np.finfo(np.float32).eps)))
    return np.stack(rows)


@pytest.mark.parametrize(("rate", "bins"), [(8000, 40), (16000, 80)])
def test_log_mel_features_equal_their_formula(rate: int, bins: int) -> None:
    samples = np.random.default_rng(0).standard_normal(rate // 4).astype(np.float32) * 0.1
    ours, theirs = log_mel(samples, rate, bins), formula(samples.astype(np.float64), rate, bins)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() < 2e-3


def test_any_rate_has_a_frame_for_each_hundredth_of_a_second(tmp_path: Path) -> None:
    for rate in (8000, 11025, 16000, 22050, 44100):
        clip = Clip(handle_at(str(write(tmp_path / f"{rate}.wav", tone(440, 0.333, rate), rate))))
        found = features(clip, 16000, 40)
        assert len(found) == frame_count(clip) == 33
        if rate >= 16000:
            loudest = found[5:-5].mean(0).argmax()
            assert loudest == features(Clip(handle_at(str(tmp_path / "16000.wav"))), 16000, 40)[5:-5].mean(0).argmax()


# ---- layouts


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for label in ("yes", "no", "_background_noise_"):
        for i in range(6):
            write(tmp_path / "data" / label / f"{i:x}a_nohash_{i}.wav")
    (tmp_path / "data" / ".hidden").mkdir()
    found = read(tmp_path / "data")
    assert recognised(tmp_path / "data").task == "classify"
    assert sorted({e.target for e in found}) == ["no", "yes"]
    assert len(found) == 12
    with pytest.raises(UserError, match="no labels of frames"):
        recognised(tmp_path / "data", "tag")


def test_names_show_labels_and_speakers_and_speakers_are_held_out_whole(tmp_path: Path) -> None:
    for digit in range(3):
        for who in ("ann", "bob", "eve"):
            for i in range(4):
                write(tmp_path / "data" / f"{digit}_{who}_{i}.wav", tone(200 + digit, 0.05))
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for path in sorted((tmp_path / "data").iterdir()):
            archive.write(path, path.name)
    for path in (tmp_path / "data", tmp_path / "data.zip"):
        found = read(path)
        assert "3 speakers" in recognised(path).description
        assert {e.target for e in found} == {"0", "1", "2"}
        assert {e.group for e in found} == {"ann", "bob", "eve"}
        config = settings.make(
            {"task": "classify", "input": "frames", "data": {"train": [str(path)], "held_out": 4}}, "x"
        )
        split = Split(config, Survey(len(found), found, range(len(found)), ""))
        held = {e.group for i, e in enumerate(found) if split.held_out(i, e)}
        kept = {e.group for i, e in enumerate(found) if not split.held_out(i, e)}
        assert len(held) == 1
        assert held.isdisjoint(kept)


TABLES = {
    "a.tsv": "path\tlabel\n{0}\tyes\n{1}\tno\n",
    "b.csv": 'text,file\nhello there,{0}\n"yes, no",{1}\n',
    "c.tsv": "{0}\tone\n{1}\ttwo two\n",
    "train.tsv": "client_id\tpath\tsentence\tup_votes\tdown_votes\nx\t{0}\thello\t2\t0\ny\t{1}\tbye\t2\t0\n",
    "d.jsonl": '{{"audio_filepath": "{0}", "duration": 0.3, "text": "hello", "offset": 0.1}}\n{{"audio_filepath": "{1}", "duration": 0.1, "text": "bye", "offset": 0.1}}\n',
    "e.tsv": "{0}\t0.1\t0.2\thello\n{1}\t0.0\t0.1\tbye\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_name_recordings(tmp_path: Path, name: str) -> None:
    for i in range(2):
        write(tmp_path / "clips" / f"{i}.wav", tone(440, 0.5))
    table = tmp_path / name
    table.write_text(TABLES[name].format("0.wav", "1.wav"))
    found = read(table)
    assert [e.source.handle.name for e in found] == ["0.wav", "1.wav"]
    assert found[0].refers[0].endswith("0.wav")
    expected = {"a.tsv": ["yes", "no"], "b.csv": ["hello there", "yes, no"], "c.tsv": ["one", "two two"]}
    assert [e.target for e in found] == expected.get(name, ["hello", "bye"])
    assert recognised(table).task == ("classify" if name == "a.tsv" else "convert")
    if name == "train.tsv":
        assert [e.group for e in found] == ["x", "y"]
    if name == "d.jsonl":
        assert (found[1].source.start, found[1].source.end) == (0.1, 0.2)
    if name == "e.tsv":
        assert [seconds(e.source) for e in found] == pytest.approx([0.1, 0.1])


def test_a_table_of_texts_is_not_taken_for_recordings(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("one\tun\ntwo\tdeux\n")
    assert recognise_sound(Files([tmp_path / "a.tsv"]), None) is None
    assert recognise_sound(Files([tmp_path / "absent.tsv"]), None) is None


def test_kaldi_folders_are_read_and_pipes_never_executed(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", tone(440, 1.0))
    mark = tmp_path / "executed"
    (tmp_path / "wav.scp").write_text(f"r1 a.wav\nr2 touch {mark}; cat a.wav |\n")
    (tmp_path / "text").write_text("u1 HELLO THERE\nu2 BYE\nu3 GONE\n")
    (tmp_path / "segments").write_text("u1 r1 0.1 0.6\nu2 r2 0 1\nu3 r3 0 1\n")
    (tmp_path / "utt2spk").write_text("u1 s1\nu2 s2\nu3 s2\n")
    for path in (tmp_path, tmp_path / "wav.scp"):
        faults: list[Any] = []
        (found,) = read(path, None, faults)
        assert (found.target, found.group, seconds(found.source)) == ("HELLO THERE", "s1", 0.5)
        assert "is a pipe" in str(faults[0])
        assert "never executed" in str(faults[0])
        assert "has no line in wav.scp" in str(faults[1])
    assert not mark.exists()


def test_librispeech_ljspeech_and_transcripts_beside_recordings(tmp_path: Path) -> None:
    write(tmp_path / "libri" / "19" / "198" / "19-198-0000.flac")
    (tmp_path / "libri" / "19" / "198" / "19-198.trans.txt").write_text(
        "19-198-0000 NORTHANGER ABBEY\n19-198-0001 LOST\n"
    )
    faults: list[Any] = []
    (one,) = read(tmp_path / "libri", None, faults)
    assert (one.target, one.group, len(faults)) == ("NORTHANGER ABBEY", "19", 1)
    write(tmp_path / "lj" / "wavs" / "LJ001-0001.wav")
    (tmp_path / "lj" / "metadata.csv").write_text("LJ001-0001|Printing, in 1 sense|Printing, in one sense\n")
    for path in (tmp_path / "lj", tmp_path / "lj" / "metadata.csv"):
        assert read(path)[0].target == "Printing, in one sense"
    write(tmp_path / "side" / "a.wav")
    (tmp_path / "side" / "a.txt").write_text("hello\n there\n")
    assert read(tmp_path / "side")[0].target == "hello there"
    assert recognised(tmp_path / "side").task == "convert"


def test_a_manifest_inside_an_archive(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(path, "clips/a.wav")
        archive.writestr("metadata.jsonl", json.dumps({"file_name": "clips/a.wav", "transcription": "hello"}))
    (found,) = read(tmp_path / "all.zip")
    assert found.target == "hello"
    assert samples_of(found.source)[1] == RATE


@pytest.mark.parametrize("form", ["long", "utf-16", "short", "lab", "timit"])
def test_labels_of_frames(tmp_path: Path, form: str) -> None:
    write(tmp_path / "a.wav", tone(440, 0.3))
    beside = {
        "long": ("a.TextGrid", LONG.encode()),
        "utf-16": ("a.TextGrid", LONG.encode("utf-16")),
        "short": ("a.TextGrid", SHORT.encode()),
        "lab": ("a.lab", b"0.0 0.1 sil\n0.1 0.22 AH 1\n"),
        "timit": ("a.PHN", b"0 800 sil\n800 1760 AH 1\n1760 2400 s\n"),
    }[form]
    (tmp_path / beside[0]).write_bytes(beside[1])
    (found,) = read(tmp_path)
    tags = found.target.split(" ")
    assert recognised(tmp_path).task == "tag"
    assert len(tags) == frame_count(found.source) == 30
    assert tags[:10] == ["sil"] * 10
    assert tags[10:22] == (["a"] * 12 if form == "short" else ["AH\u00a01"] * 12)
    assert tags[22:] == {"lab": [UNLABELLED] * 8, "short": ["a"] * 8}.get(form, ["s"] * 8)


def test_a_text_is_no_table_whatever_stands_in_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for content in ("a b\tc\nplain\rtext\td\n", '{"a": ' + "[" * 100_000 + "\n"):
        path.write_bytes(content.encode())
        assert recognise_table(path, "utf-8", None) is None


def test_a_row_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    line = '{"path": "a.wav", "text": "b"}'
    for lines, row in ((["path,text", "a.wav,b"], "a.wav,b\rc"), ([line, line], '{"path": ' + "[" * 100_000)):
        found: list[tuple[int, str]] = []
        table = columns_of(lines)
        assert table is not None
        assert list(records([(7, row)], table, found.append)) == []
        assert [number for number, _ in found] == [7]


def test_damaged_labels_of_frames_are_refused() -> None:
    with pytest.raises(UserError, match="damaged TextGrid"):
        textgrid(LONG[:-40], "a.TextGrid")
    for count in ("-2", "2000000000000"):
        with pytest.raises(UserError, match="damaged TextGrid"):
            textgrid(SHORT.replace("\n2\n", f"\n{count}\n"), "a.TextGrid")
    with pytest.raises(UserError, match="not a TextGrid"):
        textgrid("hello", "a.TextGrid")
    with pytest.raises(UserError, match=r"a.lab:2: expected `start end label`"):
        label_lines("0 1 a\nx y b\n", "a.lab", 8000, 2.0)
    assert tags_of([], 3) == f"{UNLABELLED} {UNLABELLED} {UNLABELLED}"


# ---- check


def test_check_reports_what_can_be_heard_by_file_and_second(tmp_path: Path) -> None:
    good = tone(440, 0.5)
    files = {
        "good.wav": good, "other.wav": tone(500, 0.5), "silent.wav": np.zeros(4000), "clipped.wav": np.clip(9 * good, -1, 1),
        "offset.wav": good * 0.5 + 0.4, "long.wav": tone(440, 31), "fast.wav": tone(600, 0.1),
    }  # fmt: skip
    lines = []
    for name, samples in files.items():
        write(tmp_path / name, samples)
        lines.append(f"{name}\t{'far too many words for so little time' if name == 'fast.wav' else 'hello'}\n")
    (tmp_path / "broken.wav").write_bytes(b"RIFF nothing at all")
    (tmp_path / "cut.wav").write_bytes((tmp_path / "good.wav").read_bytes()[:1000])
    lines += ["broken.wav\thello\n", "cut.wav\thello\n", "absent.wav\thello\n", "other.wav\t\n", "other.wav\ta\x07b\n"]
    (tmp_path / "list.tsv").write_text("path\ttext\n" + "".join(lines))
    report, sound = check([str(tmp_path / "list.tsv")], [])
    assert not sound
    for said in (
        "silent.wav: silence", "clipped.wav: clipped: ", "at 0.00 s", "offset.wav: the mean of its samples is +0.4",
        "long.wav has 31.0 s", "broken.wav is not a readable recording", "cut.wav breaks off", "there is no recording 'absent.wav'", "the transcript is empty",
        "characters in 0.10 s", "U+0007", "list.tsv:4",
    ):  # fmt: skip
        assert said in report, said
    assert "good.wav:" not in report


def test_check_of_good_recordings_says_what_a_training_would_choose(tmp_path: Path) -> None:
    for i in range(24):
        write(tmp_path / "data" / ("low" if i % 2 else "high") / f"{i}.wav", tone(200 + 300 * (i % 2) + i, 0.1))
    report, sound = check([str(tmp_path / "data")], [str(tmp_path / "data")])
    assert "test texts in the training data" in report  # which is odd, but stops no training
    assert sound
    report, sound = check([str(tmp_path / "data")], [])
    assert sound, report
    assert "24 recordings" in report
    assert "`regard train` would say" in report
    assert math.isclose(frame_count(read(tmp_path / "data")[0].source), 10)
