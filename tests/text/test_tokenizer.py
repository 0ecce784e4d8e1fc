"""Every level gives back the text it was given, shows it readably, and is learned the same way each time."""

import json
import random
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.errors import UserError
from regard.text import scripts
from regard.text.tokenizer import (
    END,
    LEVELS,
    PAD,
    SPECIALS,
    START,
    UNKNOWN,
    Tokenizer,
    choose_level,
    looks_like_symbols,
)

SENTENCES = [
    "The house is red, the houses are redder.",
    'She said: "Don\'t go (yet)!" at 3.50 p.m.',
    "Das Haus ist rot; die Häuser sind röter – oder?",
    "Это дом. 这是房子。 हिन्दी में घर",
]
# Characters that both Unicode versions (Python's and the library's) know.
assigned = st.characters(codec="utf-8", exclude_categories=("Cn", "Co", "Cs"))
lines = st.text(assigned, max_size=30)


def plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


@settings(max_examples=50, deadline=None)
@given(text=lines.filter(lambda text: "\t" not in text))
def test_characters_round_trip_exactly(text: str) -> None:
    tokenizer = Tokenizer.train([text], "characters")
    ids = tokenizer.encode(text)
    normal = unicodedata.normalize("NFC", text)
    assert tokenizer.decode(ids) == normal
    assert len(ids) == len(normal)


@settings(max_examples=50, deadline=None)
@given(text=lines, level=st.sampled_from(["bpe", "unigram", "symbols", "words"]))
@example(text="a▁b ▁ c", level="bpe")
@example(text="a▁b ▁ c", level="unigram")
@example(text="a￭b ￭ c", level="words")
def test_other_levels_round_trip_up_to_blanks(text: str, level: str) -> None:
    tokenizer = Tokenizer.train([text, text], level)
    expected = plain(text)
    if level in ("bpe", "unigram"):
        expected = expected.replace("▁", "_")
    if level == "words":
        expected = plain(text.replace("￭", ""))
    assert tokenizer.decode(tokenizer.encode(text)) == expected
    assert UNKNOWN not in tokenizer.encode(text)


@settings(max_examples=50, deadline=None)
@given(text=st.one_of(lines, st.sampled_from(SENTENCES), st.just("go\tV;PST")), level=st.sampled_from(LEVELS))
@example(text="  a  b ", level="characters")
@example(text=" a \tV", level="characters")
@example(text="a▁b ▁ c☃", level="bpe")
@example(text="☃a ☃☃ ☃", level="unigram")
@example(text="a☃ ☃☃b", level="words")
def test_ids_pieces_and_groups_agree(text: str, level: str) -> None:
    """Also for a text full of unknown tokens."""
    tokenizer = KNOWN_TOKENIZERS[level]
    ids = tokenizer.encode(text)
    groups, words = tokenizer.groups(text), tokenizer.words(text)
    assert tokenizer.encode_batch([text, "x", text]) == [ids, tokenizer.encode("x"), ids]
    assert len(tokenizer.pieces(text)) == len(groups) == len(ids)
    assert groups == sorted(groups)
    assert set(groups) == set(range(max(groups, default=-1) + 1))
    unspaced = level in ("bpe", "unigram") and any(map(scripts.script, text))  # then a word has several units
    assert not text.strip() or (len(set(groups)) >= len(words) if unspaced else len(set(groups)) == len(words))
    assert not {PAD, START, END} & set(ids)
    assert all(0 <= id < tokenizer.size for id in ids)


KNOWN_TOKENIZERS = {level: Tokenizer.train([*SENTENCES, "walk\tV;PST"], level, 300) for level in LEVELS}


@pytest.mark.parametrize("level", LEVELS)
def test_specials_have_fixed_ids_and_no_text_reaches_them(level: str) -> None:
    names = [*SPECIALS, "<s>", "</s>", "<pad>", "<unk>", "[PAD]"]
    tokenizer = Tokenizer.train([*names, *names], level)
    for name in names:
        assert not {PAD, START, END} & set(KNOWN_TOKENIZERS[level].encode(name))
        assert min(tokenizer.encode(name)) > END
        assert tokenizer.decode([START, *tokenizer.encode(name), END, PAD, PAD]) == name
    assert tokenizer.encode("") == []
    assert tokenizer.decode([PAD, START, END]) == ""


def test_features_after_a_tab_are_tokens_of_their_own() -> None:
    tokenizer = Tokenizer.train(["Vow walk\tV;NOM(2,PL)", "V\tPST"], "characters")
    text = "Vo wa\tV;PST NOM(2,PL)"
    assert tokenizer.pieces(text) == ["V", "o", "␣", "w", "a", "V", "PST", "NOM(2,PL)"]
    assert tokenizer.groups(text) == [0, 0, 1, 1, 1, 2, 3, 4]
    assert tokenizer.words(text) == ["Vo", "wa", "V", "PST", "NOM(2,PL)"]
    assert tokenizer.decode(tokenizer.encode(text)) == "Vo wa\tV;PST;NOM(2,PL)"
    ids = tokenizer.encode("V\tV")
    assert ids[0] != ids[1]  # the letter and the feature


def test_words_and_their_punctuation() -> None:
    text = 'She said: "Don\'t go (yet)!" at 3.50 p.m. - so'
    tokenizer = Tokenizer.train([text], "words")
    # fmt: off
    assert tokenizer.pieces(text) == [
        "She", "said", ":", '"', "Don't", "go", "(", "yet", ")", "!", '"', "at", "3.50", "p", ".", "m", ".", "-", "so",
    ]
    # fmt: on
    assert tokenizer.groups(text) == [0, 1, 1, 2, 2, 3, 4, 4, 4, 4, 4, 5, 6, 7, 7, 7, 7, 8, 9]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode("She  ran, (yet) so")) == "She ⁇⁇ (yet) so".replace("⁇⁇", "⁇ ⁇")
    hindi = Tokenizer.train(["हिन्दी में।"], "words")
    assert hindi.pieces("हिन्दी में।") == ["हिन्दी", "में", "।"]


@pytest.mark.parametrize("level", ["bpe", "unigram"])
def test_sub_words(level: str) -> None:
    texts = ["the house, the houses and the housing", "a mouse. the mouse and mice"] * 20
    tokenizer = Tokenizer.train(texts, level, 40)
    assert tokenizer.size <= 40
    pieces = tokenizer.pieces("the houses, the mouse.")
    assert "▁the" in pieces
    assert "," in pieces  # a mark never grows together with a word
    assert len(pieces) < len("the houses, the mouse.") - 6
    groups = tokenizer.groups("the houses, the mouse.")
    words = ["".join(piece for piece, group in zip(pieces, groups, strict=True) if group == n) for n in range(4)]
    assert words == ["▁the", "▁houses,", "▁the", "▁mouse."]
    assert tokenizer.pieces_of([START, *tokenizer.encode("the mouse"), END]) == tokenizer.pieces("the mouse")
    assert tokenizer.groups_of([START, *tokenizer.encode("the mouse"), END]) == tokenizer.groups("the mouse")


UNSPACED = {
    "猫看见苹果。": ["猫", "看", "见", "苹", "果。"],
    "私はコーヒーを人々に": ["私", "は", "コー", "ヒー", "を", "人々", "に"],  # ー and 々 belong to what they follow
    "หมากินน้ำ": ["ห", "มา", "กิ", "น", "น้ำ"],  # and so do vowels and tones
    "我买 iPhone手机ok吗": ["我", "买", "iPhone", "手", "机", "ok", "吗"],  # a script begins or ends
    "ខ្ញុំ": ["ខ្ញុំ"],  # the second letter stands below the first
    "Это дом": ["Это", "дом"],
}


@pytest.mark.parametrize("text", UNSPACED)
def test_pieces_of_scripts_without_spaces_are_units(text: str) -> None:
    """Each character is a piece here: none is seen next to another twice."""
    tokenizer = Tokenizer.train([" ".join("".join(UNSPACED))], "bpe", 300)
    pieces, groups = tokenizer.pieces(text), tokenizer.groups(text)
    assert len(pieces) >= len(text.replace(" ", ""))
    found = ["".join(p for p, g in zip(pieces, groups, strict=True) if g == unit) for unit in sorted({*groups})]
    assert [unit.removeprefix("▁") for unit in found] == UNSPACED[text]
    assert tokenizer.groups_of(tokenizer.encode(text)) == groups


def test_unigram_takes_the_most_probable_segmentation() -> None:
    """Against a search through all segmentations, with the scores of the saved file."""
    generator = random.Random(0)
    words = ["".join(generator.choices("abc", weights=[5, 2, 1], k=generator.randint(1, 7))) for _ in range(300)]
    tokenizer = Tokenizer.train(words, "unigram", 30)
    scores = dict(json.loads(tokenizer._inner.to_str())["model"]["vocab"])

    def best(word: str) -> float:
        if not word:
            return 0.0
        return max(scores[word[:n]] + best(word[n:]) for n in range(1, len(word) + 1) if word[:n] in scores)

    for word in words[:60]:
        assert sum(scores[piece] for piece in tokenizer.pieces(word)) == pytest.approx(best("▁" + word))


def test_unigram_compresses_like_the_library_s_own_trainer() -> None:
    generator = random.Random(1)
    syllables = ["".join(generator.choices("bdfgklmn", k=1)) + vowel for vowel in "aeiou" for _ in range(5)]
    lexicon = ["".join(generator.choices(syllables, k=generator.randint(1, 4))) for _ in range(400)]
    texts = [" ".join(lexicon[int(400 * generator.random() ** 3)] for _ in range(8)) for _ in range(500)]
    ours = Tokenizer.train(texts, "unigram", 200)
    other = tokenizers.Tokenizer(tokenizers.models.Unigram())
    other.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(vocab_size=200, show_progress=False, special_tokens=list(SPECIALS))
    other.train_from_iterator(texts, trainer)
    theirs = sum(len(encoding.ids) for encoding in other.encode_batch(texts))
    assert sum(map(len, ours.encode_batch(texts))) <= 1.05 * theirs


def test_unknowns() -> None:
    tokenizer = Tokenizer.train(["a b c"], "symbols")
    assert tokenizer.encode("a x c")[1] == UNKNOWN
    assert tokenizer.decode(tokenizer.encode("a x c")) == "a ⁇ c"
    assert tokenizer.pieces("a x c") == ["a", "x", "c"]
    assert Tokenizer.train(["ab"], "bpe").decode([10_000]) == "⁇"
    assert Tokenizer.train(["ab"], "characters").encode("a\ud800") == [4, UNKNOWN]  # half a surrogate pair


def test_size_keeps_the_most_frequent() -> None:
    tokenizer = Tokenizer.train(["a a a b b c"], "symbols", 6)
    assert tokenizer.size == 6
    assert tokenizer.encode("a b c") == [4, 5, UNKNOWN]


TRAIN = """
import sys; from regard.text.tokenizer import Tokenizer
Tokenizer.train(open(sys.argv[1], encoding="utf-8").read().splitlines(), sys.argv[2], 300).save(sys.argv[3])
"""


@pytest.mark.parametrize("level", LEVELS)
def test_training_twice_gives_the_same_file(tmp_path: Path, level: str) -> None:
    """In another process with other hash seeds, and after saving and loading."""
    generator = random.Random(2)
    texts = [" ".join("".join(generator.choices("abcdeé,.", k=5)) for _ in range(6)) for _ in range(300)]
    (tmp_path / "texts").write_text("\n".join(texts), encoding="utf-8")
    tokenizer = Tokenizer.train(texts, level, 300)
    tokenizer.save(tmp_path / "here.json")
    subprocess.run([sys.executable, "-c", TRAIN, tmp_path / "texts", level, tmp_path / "there.json"], check=True)
    assert (tmp_path / "here.json").read_bytes() == (tmp_path / "there.json").read_bytes()
    loaded = Tokenizer.load(tmp_path / "here.json")
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "here.json").read_bytes()
    assert (loaded.level, loaded.size) == (level, tokenizer.size)
    assert loaded.encode_batch(texts) == tokenizer.encode_batch(texts)
    # The library alone reads the file and finds the same ids.
    foreign = tokenizers.Tokenizer.from_file(str(tmp_path / "here.json"))
    if level != "words":
        assert [encoding.ids for encoding in foreign.encode_batch(texts)] == tokenizer.encode_batch(texts)


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(UserError, match="cannot be read"):
        Tokenizer.load(path)
    Tokenizer.train(SENTENCES, "bpe").save(path)
    sound = path.read_text(encoding="utf-8")
    for damaged in (
        sound[:-100],
        "",
        "[]",
        "{}",
        '{"model": 3}',
        sound.replace('"BPE"', '"BPX"'),
        sound.replace('"merges"', '"merge"'),
    ):
        path.write_text(damaged, encoding="utf-8")
        with pytest.raises(UserError, match=r"tokenizer\.json"):
            Tokenizer.load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="UTF-8"):
        Tokenizer.load(path)
    foreign = tokenizers.Tokenizer(tokenizers.models.BPE())
    foreign.train_from_iterator(SENTENCES, tokenizers.trainers.BpeTrainer(show_progress=False))
    foreign.save(str(path))
    with pytest.raises(UserError, match="not written by regard"):
        Tokenizer.load(path)


def test_impossible_requests() -> None:
    with pytest.raises(UserError, match=r"letters.*characters"):
        Tokenizer.train(["a"], "letters")
    with pytest.raises(UserError, match="too small"):
        Tokenizer.train(["a"], "bpe", 3)


LEVEL_SAMPLES = [
    (["a b ɑ̃ d ɔ̃", "a b ɑ̃ d ɔ n e", "ʃ a t"], "symbols"),
    (["t͡ʃʰ a ŋ", "d͡ʒː i n", "a t͡ʃʰ i"], "symbols"),
    (["AH0 B AE1 D IY0", "K AO1 R S"], "symbols"),
    (["abandon", "chat", "bonjour"], "characters"),
    (["Aa machen\tV;IMP;NOM(2,PL)", "gehen\tV;PST"], "characters"),
    (["3 March 2020", "12.03.2021", "2020-01-01"], "characters"),
    (["这是一个很长的句子没有空格", "我们明天去学校上课"], "bpe"),
    (["我们去学校。", "你好！", "他是谁？"], "bpe"),  # short, but sentences
    (["私は毎朝学校へ行きます", "彼はコーヒーを飲んでいる"], "bpe"),
    (["ฉันไปโรงเรียนทุกวันกับเพื่อนของฉัน", "แมวเห็นแอปเปิลสีแดงบนโต๊ะในบ้าน"], "bpe"),
    (["王小明", "欧阳娜娜", "北京"], "characters"),  # names
    (["東京都", "大阪府", "アレクサンドラ・スミス"], "characters"),
    (["コンピューター", "インターナショナル"], "characters"),  # single words
    (["มหาวิทยาลัย", "โรงเรียน", "คอมพิวเตอร์"], "characters"),
    (["二〇二〇年十二月三十一日", "2021年3月5日", "一千二百三十四万五千六百七十八"], "characters"),  # dates, numbers
    (SENTENCES[:3], "bpe"),
    (
        [
            f"{chr(0x4E00 + n)} {chr(0x5E00 + n)} {chr(0x6E00 + n)} {chr(0x7E00 + n)} {chr(0x8E00 + n)}"
            for n in range(200)
        ],
        "bpe",
    ),
    ([], "characters"),
]


@pytest.mark.parametrize(("texts", "level"), LEVEL_SAMPLES)
def test_choosing_a_level(texts: list[str], level: str) -> None:
    chosen, reason = choose_level(iter(texts))
    assert chosen == level
    assert reason.endswith(".")


def test_rows_of_symbols() -> None:
    assert looks_like_symbols("a b ɑ̃ d ɔ̃")
    assert not looks_like_symbols("abandon")
    assert not looks_like_symbols("The house is red")


@pytest.mark.parametrize("level", LEVELS)
def test_lower_case_is_part_of_the_file(level: str, tmp_path: Path) -> None:
    texts = ["Ein HUND", "ein hund läuft", "Der Hund LÄUFT ."]
    lower = Tokenizer.train(texts, level, 60, lowercase=True)
    lower.save(tmp_path / "t.json")
    for tokenizer in (lower, Tokenizer.load(tmp_path / "t.json")):
        assert tokenizer.encode("EIN Hund LÄUFT") == tokenizer.encode("ein hund läuft")
        assert tokenizer.decode(tokenizer.encode("EIN Hund LÄUFT")) == "ein hund läuft"
    assert Tokenizer.train(texts, level, 60).encode("EIN") != Tokenizer.train(texts, level, 60).encode("ein")
