"""Small closed vocabularies and composed characters: when they are read as what."""

import random
import unicodedata
from pathlib import Path

import pytest
from benchmarks.commands import commands
from benchmarks.syllables import letters, words

from regard.text.closed import closed_level
from regard.text.composed import decompose
from regard.text.tokenizer import UNKNOWN, Tokenizer
from regard.training.choose import choose


def test_commands_are_a_closed_vocabulary(tmp_path: Path) -> None:
    pairs = commands()
    assert len(pairs) == 20_910
    assert max(map(len, pairs.values())) == 48
    drawn = random.Random(0).sample([*pairs.items()], 4000)
    (tmp_path / "commands.tsv").write_text("".join(f"{text}\t{' '.join(done)}\n" for text, done in drawn))
    config, reasons, _ = choose([str(tmp_path / "commands.tsv")])
    assert (config.tokens.level, config.output.level, config.output.closed) == ("symbols", "symbols", True)
    assert config.model.kind == "recurrent"
    assert "13 words" in reasons["tokens.level"]
    for given, closed in (("words", True), ("bpe", False)):  # a level that is set decides
        levels = {"tokens.level": given, "output.level": given}
        config, _, _ = choose([str(tmp_path / "commands.tsv")], given=levels)
        assert (config.output.closed, config.model.kind) == (closed, "recurrent" if closed else "transformer")


@pytest.mark.parametrize(
    ("texts", "level"),
    [
        (["go left , then right"] * 40 + ["stop there now"] * 40, "symbols"),
        (["go left, then go right."] * 50 + ["go right, then go left."] * 50, "words"),
        ([f"word{i} and more of them" for i in range(100)], None),
        (["three", "four"] * 100, None),  # single words
        ([f"{i % 31} march {1990 + i % 30}" for i in range(2000)], None),  # other years may come
    ],
)
def test_words_that_are_few_and_frequent(texts: list[str], level: str | None) -> None:
    found = closed_level(texts)
    assert (found and found[0]) == level


def test_syllables_that_were_never_seen_are_read_and_written() -> None:
    drawn = words(300)
    assert decompose(drawn)
    known = set("".join(drawn))
    tokens = Tokenizer.train(drawn, "characters", decomposed=True)
    new = [syllable for syllable in map(chr, range(0xAC00, 0xD7A4)) if syllable not in known]
    ids = tokens.encode("".join(new))
    assert ids.count(UNKNOWN) < 0.01 * len(ids)
    assert tokens.decode(tokens.encode(new[0] + drawn[0])) == new[0] + drawn[0]
    assert letters("한국") == "hangug"


def test_a_decomposed_vocabulary_is_loaded_as_it_was(tmp_path: Path) -> None:
    for lowercase in (False, True):
        tokens = Tokenizer.train(["Été", "ế"], "characters", decomposed=True, lowercase=lowercase)
        tokens.save(tmp_path / "t.json")
        again = Tokenizer.load(tmp_path / "t.json")
        assert again.lowercase == lowercase
        assert again.encode("Éế") == tokens.encode("Éế")
        assert again.decode(again.encode("Éế")) == ("éế" if lowercase else "Éế")
        assert unicodedata.is_normalized("NFC", again.decode(again.encode("Éế")))


def test_frequent_accents_stay_whole() -> None:
    assert decompose(["été", "élève", "forêt"] * 100) == ""
    assert decompose(["plain", "ascii"] * 100) == ""


def test_rare_accents_are_taken_apart() -> None:
    rare = [f"w{chr(code)}rd" for code in range(0x1EA0, 0x1EC0)]
    assert "composed characters occur once" in decompose(["word"] * 500 + rare)
