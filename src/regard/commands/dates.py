"""The built-in job: read dates written in some forty languages and write them as YYYY-MM-DD.

Texts come from the locale data in Babel, so there is nothing to download. Every text determines its date: a
form is used only if it names the month or starts with the year; forms of bare numbers that do neither
(25.03.2021) are used only for days after the 12th, when only one number can be the month.
"""

import random
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache

from babel import Locale
from babel.dates import get_date_format, parse_pattern

from regard.errors import UserError

LEARNED = (
    *("en", "de", "nl", "da", "sv", "fr", "es", "it", "pt", "ca", "ro", "pl", "cs", "sl"),
    *("ru", "uk", "bg", "sr", "el", "tr", "fi", "et", "lv", "lt", "hu", "id", "vi"),
    *("ar", "fa", "he", "hi", "bn", "th", "ka", "hy", "zh", "ja", "ko"),
)
HELD_OUT = ("nb", "gl", "mk", "af")  # their relatives are learned: da and sv, pt and es, bg and sr, nl
UNSEEN = {
    "form": "dates with the day's full name, in languages learned without it (nl, pt, uk, tr)",
    "order": "dates with the year first, in languages learned with the year last (de, fr, ru, pl, el)",
    "language": "languages of which nothing was learned, though relatives were (nb, gl, mk, af)",
}

_FULL_HELD_OUT = ("nl", "pt", "uk", "tr")
_ORDER, _ORDER_HELD_OUT = "y MMMM d", ("de", "fr", "ru", "pl", "el")
_WRITTEN = ("d MMMM y", "d MMM y", "EEE, d MMM y")  # what people write wherever the year comes last
_YEAR_FIRST = {"y-MM-dd": ("en", "sv", "lt", "zh"), "y/M/d": ("zh", "ja")}
_LATE_DAYS = {
    "dd.MM.y": ("de", "ru", "pl", "cs", "fi", "tr"),
    "dd/MM/y": ("fr", "it", "es", "pt", "el", "vi"),
    "M/d/y": ("en",),
}
_ZEROS = {"arab": "٠", "arabext": "۰", "beng": "০", "deva": "०", "thai": "๐"}
_NOISE = ("lower", "upper", "comma", "space", "weekday")
_NOISE_SHARE = 0.25
_FIRST, _LAST = date(1900, 1, 1), date(2099, 12, 31)
# Babel puts narrow and no-break spaces and direction marks into dates; nobody types them.
_TYPED = str.maketrans({"\u202f": " ", "\u00a0": " ", "\u200e": None, "\u200f": None})


@dataclass(frozen=True)
class DateExample:
    """A written date, the answer, the language (Babel's locale) and the form (Babel's name or pattern)."""

    text: str
    iso: str
    locale: str
    form: str


@dataclass(frozen=True)
class Dates:
    """Examples to learn from and to test with; `unseen` holds the sets that `UNSEEN` describes.

    No date occurs in two of train, valid and test; the unseen sets share their dates with test.
    """

    train: list[DateExample]
    valid: list[DateExample]
    test: list[DateExample]
    unseen: dict[str, list[DateExample]]


@dataclass(frozen=True)
class Form:
    """One way to write a date in one language: `zero` is its digit 0, `late` rules out days up to the 12th."""

    locale: str
    name: str
    pattern: str
    zero: str = "0"
    late: bool = False


def examples(count: int, seed: int) -> list[tuple[str, str]]:
    """Return pairs (written date, YYYY-MM-DD) to learn from: the training set of `splits` for that seed."""
    _check(count, "examples", least=1)
    return [(example.text, example.iso) for example in _train(count, seed)]


def splits(train: int, held_out: int, seed: int) -> Dates:
    """Return `train` examples to learn from and `held_out` for each of valid, test and the unseen sets.

    Valid and test are drawn as train is, on other days, so none of their texts occurs in it. The unseen sets
    are written without slips: what they measure is the form alone.
    """
    _check(train, "training examples", least=1)
    _check(held_out, "held-out examples", least=0)
    _, valid_days, test_days = _days(seed)
    learned, unseen = _pools()
    return Dates(
        train=_train(train, seed),
        valid=_draw(learned, valid_days, held_out, random.Random(f"{seed} valid"), _NOISE_SHARE),
        test=_draw(learned, test_days, held_out, random.Random(f"{seed} test"), _NOISE_SHARE),
        unseen={
            name: _draw(pool, test_days, held_out, random.Random(f"{seed} {name}"), noise_share=0)
            for name, pool in unseen.items()
        },
    )


def describe() -> str:
    """Say in a sentence what the job is."""
    names = {form.name for form in all_forms((*LEARNED, *HELD_OUT))}
    return (
        f"Dates from {_FIRST.year} to {_LAST.year}, written in {len(LEARNED)} languages (and {len(HELD_OUT)} "
        f"kept for testing) in {len(names)} forms from short to full, with the slips people make, are read as "
        "YYYY-MM-DD."
    )


def language_name(locale: str) -> str:
    """Return the English name of an example's language."""
    return str(Locale.parse(locale).english_name)


def _check(count: int, what: str, least: int) -> None:
    if count < least:
        raise UserError(f"The number of {what} must be at least {least}, found {count}.")


def _train(count: int, seed: int) -> list[DateExample]:
    # Each set has its own stream of random numbers: the size of one never changes the content of another.
    return _draw(_pools()[0], _days(seed)[0], count, random.Random(f"{seed} train"), _NOISE_SHARE)


def _days(seed: int) -> tuple[list[date], list[date], list[date]]:
    """Deal all days out: eight tenths to train, a tenth each to valid and test."""
    days = [date.fromordinal(day) for day in range(_FIRST.toordinal(), _LAST.toordinal() + 1)]
    random.Random(f"{seed} days").shuffle(days)
    tenth = len(days) // 10
    return days[2 * tenth :], days[:tenth], days[tenth : 2 * tenth]


@cache
def _pools() -> tuple[list[Form], dict[str, list[Form]]]:
    """Part the forms into those learned from and the unseen sets."""
    forms = all_forms((*LEARNED, *HELD_OUT))
    unseen = {
        "form": [form for form in forms if form.locale in _FULL_HELD_OUT and form.name == "full"],
        "order": [Form(locale, _ORDER, _ORDER) for locale in _ORDER_HELD_OUT],
        "language": [form for form in forms if form.locale in HELD_OUT],
    }
    kept_apart = {*unseen["form"], *unseen["language"]}
    return [form for form in forms if form not in kept_apart], unseen


def _draw(
    pool: list[Form], days: list[date], count: int, generator: random.Random, noise_share: float
) -> list[DateExample]:
    """Draw examples: a language (all equally likely), then one of its forms, then a day."""
    by_locale: dict[str, list[Form]] = {}
    for form in pool:
        by_locale.setdefault(form.locale, []).append(form)
    locales = list(by_locale)
    drawn = []
    for _ in range(count):
        form = generator.choice(by_locale[generator.choice(locales)])
        day = generator.choice(days)
        while form.late and day.day <= 12:
            day = generator.choice(days)
        noise = generator.random() < noise_share
        text = _with_slip(form, day, generator) if noise else write(form, day)
        drawn.append(DateExample(text, day.isoformat(), form.locale, form.name))
    return drawn


def write(form: Form, day: date, *, weekday: bool = True) -> str:
    """Write a day in a form, with or without the day's name if the form has one."""
    pattern = form.pattern if weekday else re.sub("E{3,}|c{3,}", "", form.pattern)
    text = parse_pattern(pattern).apply(day, _locale(form.locale)).translate(_TYPED)
    if form.zero != "0":
        text = text.translate({ord("0") + digit: ord(form.zero) + digit for digit in range(10)})
    return text if weekday else text.strip(" ,،")


def _with_slip(form: Form, day: date, generator: random.Random) -> str:
    """Write a day with one slip people make; a slip that does not apply leaves the text as it is."""
    slip = generator.choice(_NOISE)
    text = write(form, day, weekday=slip != "weekday")
    if slip == "lower":
        return text.lower()
    if slip == "upper" and form.locale != "ka":  # Georgian capitals exist in Unicode, not in everyday writing
        return text.upper()
    if slip == "comma":
        return re.sub("[,،]", "", text)
    if slip == "space" and " " in text:
        place = generator.choice([found.start() for found in re.finditer(" ", text)])
        return text[:place] + " " + text[place:]
    return text


@cache
def _locale(name: str) -> Locale:
    return Locale.parse(name)


@cache
def all_forms(locales: tuple[str, ...]) -> tuple[Form, ...]:
    """Return every form of these languages whose text determines the date, whichever language it is in."""
    misleading = _misleading_names(locales)
    found: list[Form] = []
    for locale in locales:
        for form in _candidates(locale):
            width = _month_width(form.pattern)
            if width is None and not form.late and _order(form.pattern) != "yMd":
                continue
            if (locale, width) not in misleading:
                found.append(form)
    return tuple(found)


def _candidates(locale: str) -> Iterator[Form]:
    """Yield the forms of a language, one per distinct pattern: Babel's, what people write, bare numbers."""
    standard = {name: str(get_date_format(name, _locale(locale)).pattern) for name in ("medium", "long", "full")}
    named = dict(standard)
    if _order(standard["long"])[-1] == "y":
        comma = "،" if locale in ("ar", "fa") else ","
        named |= {pattern: pattern.replace(",", comma) for pattern in _WRITTEN}
    named |= {pattern: pattern for pattern, writers in _YEAR_FIRST.items() if locale in writers}
    seen: set[str] = set()
    for name, pattern in named.items():
        if pattern not in seen:
            seen.add(pattern)
            yield Form(locale, name, pattern)
    for pattern, writers in _LATE_DAYS.items():
        if locale in writers:
            yield Form(locale, pattern, pattern, late=True)
    zero = _ZEROS.get(_locale(locale).other_numbering_systems.get("native", "latn"))
    if zero:
        for name, pattern in standard.items():
            yield Form(locale, f"{name}, native digits", pattern, zero)


def _letters(pattern: str) -> str:
    """The pattern without its quoted words, whose letters are no fields."""
    return re.sub("'[^']*'", "", pattern)


def _order(pattern: str) -> str:
    """The order of year, month and day in a pattern: "dMy", "Mdy", "yMd" …"""
    return "".join(dict.fromkeys(re.findall("[yMd]", _letters(pattern))))


def _month_width(pattern: str) -> str | None:
    """Return True if a pattern names the month in full or abbreviated, or (None) numbers it."""
    named = re.search("M{3,4}", _letters(pattern))
    return named and ("wide" if len(named[0]) == 4 else "abbreviated")


def _misleading_names(locales: Sequence[str]) -> set[tuple[str, str | None]]:
    """Find the (locale, width) in which a month is named as a different month is in a language listed before.

    Croatian "lip" is June and Polish "lip" July; "listopada" is October in one and November in the other. Of
    two such languages the first keeps its forms.
    """
    claimed: dict[str, int] = {}
    misleading: set[tuple[str, str | None]] = set()
    for locale in locales:
        for width in ("wide", "abbreviated"):
            names = {fold(name): month for month, name in _locale(locale).months["format"][width].items()}
            if any(claimed.get(name, month) != month for name, month in names.items()) or len(names) < 12:
                misleading.add((locale, width))
            else:
                claimed |= names
    return misleading


def fold(text: str) -> str:
    """Strip a text of what slips change: case, spaces, punctuation."""
    return "".join(char for char in text.casefold() if unicodedata.category(char)[0] not in "PZ")
