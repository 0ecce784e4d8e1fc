"""The date task: texts that determine their date, sets that do not overlap, the same for the same seed."""

import re
import time
import unicodedata
from datetime import date, timedelta

import pytest
from babel import Locale
from babel.dates import get_day_names
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.commands.dates import (
    HELD_OUT,
    LEARNED,
    UNSEEN,
    Form,
    all_forms,
    describe,
    examples,
    language_name,
    splits,
    write,
)
from regard.errors import UserError

LANGUAGES = (*LEARNED, *HELD_OUT)
ORDER_FORMS = tuple(Form(locale, "y MMMM d", "y MMMM d") for locale in ("de", "fr", "ru", "pl", "el"))


def as_slips_leave_it(text: str) -> str:
    """Return what remains of a text whatever the slips did to case, commas and spaces."""
    return " ".join(re.sub("[,،]", " ", text.casefold()).split())


@pytest.mark.parametrize(
    ("locale", "form", "expected"),
    [
        ("en", "full", "Saturday, March 4, 2023"),
        ("en", "EEE, d MMM y", "Sat, 4 Mar 2023"),
        ("de", "long", "4. März 2023"),
        ("fr", "full", "samedi 4 mars 2023"),
        ("es", "long", "4 de marzo de 2023"),
        ("da", "full", "lørdag den 4. marts 2023"),
        ("ru", "long", "4 марта 2023 г."),
        ("el", "long", "4 Μαρτίου 2023"),
        ("fi", "full", "lauantai 4. maaliskuuta 2023"),
        ("hu", "full", "2023. március 4., szombat"),
        ("ja", "full", "2023年3月4日土曜日"),
        ("zh", "y/M/d", "2023/3/4"),
        ("ko", "long", "2023년 3월 4일"),
        ("ar", "long, native digits", "٤ مارس ٢٠٢٣"),
        ("hi", "long, native digits", "४ मार्च २०२३"),
        ("th", "full", "วันเสาร์ที่ 4 มีนาคม ค.ศ. 2023"),
        ("lt", "long", "2023 m. kovo 4 d."),
    ],
)
def test_dates_are_written_as_people_of_the_language_write_them(locale: str, form: str, expected: str) -> None:
    (found,) = [each for each in all_forms(LANGUAGES) if (each.locale, each.name) == (locale, form)]
    assert write(found, date(2023, 3, 4)) == expected


def test_no_text_means_two_dates_in_any_language() -> None:
    """Every day of a leap year and of two common years, in every form, with and without the day's name."""
    meanings: dict[str, date] = {}
    days = [date(year, 1, 1) + timedelta(days=number) for year in (1912, 2011, 2099) for number in range(365)]
    for form in (*all_forms(LANGUAGES), *ORDER_FORMS):
        for day in [*days, date(1912, 12, 31)]:
            if form.late and day.day <= 12:
                continue
            for weekday in (True, False):
                text = as_slips_leave_it(write(form, day, weekday=weekday))
                assert meanings.setdefault(text, day) == day, (text, form)


def test_languages_whose_month_names_contradict_lose_their_forms() -> None:
    assert {form.locale for form in all_forms(("pl", "hr"))} == {"pl"}, "Croatian lip is June, Polish lip July"
    assert {form.locale for form in all_forms(("hr",))} == {"hr"}


def test_ambiguous_numbers_are_no_forms() -> None:
    for form in all_forms(LANGUAGES):
        numbers = [int(number) for number in re.findall(r"\d+", write(form, date(2034, 5, 6), weekday=False))]
        if sorted(numbers) == [5, 6, 2034] and not form.late:
            assert numbers == [2034, 5, 6] or "M" * 3 in form.pattern, form
        assert len(numbers) in (2, 3)
    assert "dd.MM.y" in {form.name for form in all_forms(("de",)) if form.late}
    assert "medium" not in {form.name for form in all_forms(("de",))}


def test_late_forms_are_drawn_only_with_days_after_the_twelfth() -> None:
    found = [example for example in splits(8000, 0, seed=5).train if re.match(r"[dM]+[./]", example.form)]
    assert len(found) > 50
    assert all(int(example.iso[-2:]) > 12 for example in found)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_text_carries_year_month_and_day(seed: int) -> None:
    """Read the numbers and the month's name back out of the text, independently of how it was put together."""
    for example in splits(20, 0, seed).train:
        year, month, day = map(int, example.iso.split("-"))
        assert 1900 <= year <= 2099
        numbers = [int(number) for number in re.findall(r"\d+", example.text)]  # int() reads native digits too
        assert year in numbers
        assert day in numbers
        named = Locale.parse(example.locale).months["format"]
        names = {as_slips_leave_it(named[width][month]) for width in ("wide", "abbreviated")}
        assert month in numbers or any(name in as_slips_leave_it(example.text) for name in names), example


def test_same_seed_same_examples_and_sizes_do_not_matter_to_each_other() -> None:
    assert splits(200, 30, seed=3) == splits(200, 30, seed=3)
    assert splits(200, 30, seed=3).test != splits(200, 30, seed=4).test
    assert splits(200, 30, seed=3).test == splits(500, 30, seed=3).test
    assert splits(200, 30, seed=3).train == splits(500, 60, seed=3).train[:200]
    assert examples(200, seed=3) == [(each.text, each.iso) for each in splits(200, 0, seed=3).train]


def test_held_out_dates_and_texts_are_new() -> None:
    dates = splits(20_000, 1000, seed=0)
    sets = [dates.train, dates.valid, dates.test]
    for number, one in enumerate(sets):
        for other in sets[number + 1 :]:
            assert not {each.iso for each in one} & {each.iso for each in other}
            assert not {each.text for each in one} & {each.text for each in other}
    train = {(each.locale, each.form) for each in dates.train}
    assert {(each.locale, each.form) for each in dates.test} <= train
    texts = {each.text for each in dates.train}
    assert dates.unseen.keys() == UNSEEN.keys()
    for name, unseen in dates.unseen.items():
        assert len(unseen) == 1000
        assert not {(each.locale, each.form) for each in unseen} & train, name
        assert not {each.text for each in unseen} & texts, name


def test_unseen_sets_are_what_they_say() -> None:
    dates = splits(20_000, 500, seed=1)
    learned = {each.locale for each in dates.train}
    assert learned == set(LEARNED)
    assert {each.locale for each in dates.unseen["language"]} == set(HELD_OUT)
    assert {each.locale for each in dates.unseen["form"]} <= learned
    assert {each.locale for each in dates.unseen["order"]} <= learned
    for example in dates.unseen["order"]:
        assert example.text.startswith(example.iso[:4])
        assert f"({', '.join(('de', 'fr', 'ru', 'pl', 'el'))})" in UNSEEN["order"]
    for example in dates.unseen["form"]:
        weekday = get_day_names(locale=example.locale)[date.fromisoformat(example.iso).weekday()]
        assert weekday in example.text
        training = [each.text for each in dates.train if each.locale == example.locale]
        assert not any(as_slips_leave_it(weekday) in as_slips_leave_it(text) for text in training)


def test_many_languages_and_scripts() -> None:
    assert len(LEARNED) >= 36
    assert not set(LEARNED) & set(HELD_OUT)
    letters = "".join(text for text, _ in examples(3000, seed=0))
    scripts = {unicodedata.name(char).split()[0] for char in set(letters) if char.isalpha()}
    assert scripts >= {
        *("LATIN", "CYRILLIC", "GREEK", "ARABIC", "HEBREW", "DEVANAGARI", "BENGALI"),
        *("THAI", "GEORGIAN", "ARMENIAN", "CJK", "HANGUL"),
    }
    assert not set("\u202f\u00a0\u200e\u200f") & set(letters), "signs nobody types"
    assert not any("\u1c90" <= char <= "\u1cbf" for char in letters), "Georgian capitals nobody uses"


def test_slips_occur_in_a_mild_share() -> None:
    dates = splits(6000, 0, seed=2).train
    forms = {(form.locale, form.name): form for form in all_forms(LANGUAGES)}
    clean = [each.text == write(forms[each.locale, each.form], date.fromisoformat(each.iso)) for each in dates]
    assert 0.08 < 1 - sum(clean) / len(clean) < 0.25
    texts = [each.text for each, as_is in zip(dates, clean, strict=True) if not as_is]
    assert any(text.isupper() for text in texts)
    assert any("  " in text for text in texts)
    english = [each for each in dates if each.locale == "en" and each.form in ("medium", "full")]
    assert any("," not in each.text for each in english)
    assert any(each.text[0].isdigit() for each in dates if (each.locale, each.form) == ("de", "full"))


def test_thirty_thousand_examples_are_quick() -> None:
    start = time.perf_counter()
    assert len(examples(30_000, seed=9)) == 30_000
    assert time.perf_counter() - start < 5


def test_sentence_and_names() -> None:
    assert f"{len(LEARNED)} languages" in describe()
    assert describe().endswith("YYYY-MM-DD.")
    assert "\n" not in describe()
    assert language_name("nb") == "Norwegian Bokmål"


def test_impossible_counts() -> None:
    with pytest.raises(UserError, match="examples must be at least 1, found 0"):
        examples(0, seed=1)
    with pytest.raises(UserError, match="held-out examples must be at least 0, found -1"):
        splits(10, -1, seed=1)
