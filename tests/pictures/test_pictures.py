"""Pictures: the right numbers in the right cells, nothing cut off or on top of something else, in any script."""

import itertools
import subprocess
import sys
import unicodedata
import warnings
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

import regard
from regard import pictures
from regard.errors import UserError
from regard.inspection.page import BEGINNING
from regard.outputs.convert.output import FINIS
from regard.pictures import fonts, style
from regard.text.display import visible

pytestmark = pytest.mark.filterwarnings("ignore:No installed font")  # layout must hold without fonts, too


def softmax(*shape: int) -> np.ndarray:
    scores = np.exp(np.random.default_rng(0).normal(size=shape))
    return scores / scores.sum(-1, keepdims=True)


def rendered(figure: Figure) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    with style.quiet():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def texts(figure: Figure) -> list[Text]:
    """Return what is written on a figure; matplotlib also keeps ticks beyond the ends of a colour bar, never drawn."""
    bars = [axes for axes in figure.axes if axes.get_ylabel() == "attention weight"]
    ticks = [(tick, axes.get_ylim()) for axes in bars for tick in axes.yaxis.get_major_ticks()]
    beyond = {tick.label2 for tick, (low, high) in ticks if not low <= tick.get_loc() <= high}
    return [
        text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip() and text not in beyond
    ]


# ---- tokens


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("", "∅"),
        (" ", "␣"),
        ("  ", "␣␣"),
        ("New York", "New␣York"),
        ("\u3000", "␣"),
        ("\n", "↵"),
        ("\t", "⇥"),
        ("\x00", "␀"),
        ("\u0301", "◌\u0301"),
        ("\u202eabc", "abc"),
        ("\u200e", "U+200E"),
        ("\ud800", "\ufffd"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("word", "word"),
    ],
)
def test_tokens_are_visible(token: str, shown: str) -> None:
    assert visible(token) == shown


@settings(max_examples=50)
@given(st.text(st.characters(), max_size=8))
def test_visible_tokens_hold_nothing_invisible_and_stay_as_they_are(token: str) -> None:
    shown = visible(token)
    assert shown
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zs", "Zl", "Zp") for c in shown)
    assert visible(shown) == shown
    assert len(visible(token, 4)) <= 4


# ---- fonts


def test_arabic_is_joined_and_hebrew_runs_from_right_to_left() -> None:
    def drawn(text: str) -> np.ndarray:
        figure = Figure(figsize=(1.5, 0.6))
        figure.text(0.1, 0.3, text, size=20, family=fonts.families([text]))
        return rendered(figure)

    left_to_right = "\u202d"  # an override: the letters in the order in which they are given
    assert np.array_equal(drawn("אבג"), drawn(left_to_right + "גבא"))
    assert not np.array_equal(drawn("אבג"), drawn("גבא"))
    non_joiner = "\u200c"
    assert not np.array_equal(drawn("ببب"), drawn(f"ب{non_joiner}ب{non_joiner}ب"))


@pytest.mark.parametrize("character", ["日", "か", "한", "क", "ไ", "አ"])
def test_the_chosen_fonts_cover_the_characters(character: str) -> None:
    try:
        listed = subprocess.run(
            ["fc-list", f":charset={ord(character):x}", "family"], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        pytest.skip("no fc-list on this machine to say which fonts there are")
    if not listed.stdout.strip():
        pytest.skip(f"no font installed for {character}")
    chosen = fonts.families([character, "abc"])
    assert chosen[0] == fonts.BASE
    assert any(family in listed.stdout for family in chosen)


def test_the_signs_of_start_and_end_need_no_font_but_matplotlibs_own() -> None:
    assert fonts.families([BEGINNING, FINIS, "▶■"]) == [fonts.BASE]


def test_a_character_without_a_font_is_told_once_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_advised", set())
    fonts._families.cache_clear()
    with pytest.warns(UserWarning, match="No installed font has .*install.*fonts-noto-core"):
        pictures.alignment([[1.0]], ["\u0378"], ["a"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rendered(pictures.alignment([[1.0, 0.0]], ["\u0379"], ["a", "\u0378"]))


# ---- the look


def test_equal_steps_of_weight_are_equal_steps_of_lightness() -> None:
    colours = style.RAMP(np.linspace(0, 1, 256))[:, :3]
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    lightness = 116 * np.cbrt(np.maximum(luminance, 216 / 24389)) - 16  # CIE 1976 L*
    steps = -np.diff(lightness[::15])
    assert (steps > 0).all()
    assert steps.max() < 1.6 * steps.min()
    assert lightness[0] > 98


LONG = "A title that goes on for much longer than the picture below it is wide, and must not be cut off"
WORDS = {
    "latin": ["internationalisation", "of", "the", "European", "Economic", "Area", "</s>", ""],
    "arabic": ["يقرأ", "الولد", "كتابا", "جديدا", "في", "البيت", "كل", "يوم"],
    "japanese": list("私は猫を飼って。"),
}


def cycle(words: list[str], count: int) -> list[str]:
    return list(itertools.islice(itertools.cycle(words), count))


@pytest.mark.parametrize("script", WORDS)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 8), (12, 20), (3, 60), (60, 2), (70, 120)])
def test_every_label_is_inside_the_picture_and_beside_its_neighbour(script: str, m: int, n: int) -> None:
    figure = pictures.alignment(softmax(m, n), cycle(WORDS[script], m), cycle(WORDS[script], n), LONG)
    rendered(figure)
    renderer = figure.canvas.get_renderer()
    page = figure.bbox
    for text in texts(figure):
        box = text.get_window_extent(renderer)
        assert box.x0 >= page.x0 - 1, text
        assert box.x1 <= page.x1 + 1, text
        assert box.y0 >= page.y0 - 1, text
        assert box.y1 <= page.y1 + 1, text
    axes = figure.axes[0]
    assert min(text.get_fontsize() for text in texts(figure)) >= 7.5
    column_boxes = [label.get_window_extent(renderer) for label in axes.get_xticklabels()]
    if axes.get_xticklabels()[0].get_rotation() in (0, 90):
        assert all(a.x1 <= b.x0 + 1 for a, b in itertools.pairwise(column_boxes))
    row_boxes = [label.get_window_extent(renderer) for label in axes.get_yticklabels()]
    assert all(a.y0 >= b.y0 for a, b in itertools.pairwise(row_boxes))
    title_box = figure.texts[0].get_window_extent(renderer)
    assert all(box.y1 <= title_box.y0 + 1 for box in column_boxes)


def test_an_alignment_shows_the_weights_it_was_given() -> None:
    weights = softmax(3, 5)
    figure = pictures.alignment(weights, list("abc"), list("vwxyz"), "title")
    axes = figure.axes[0]
    assert np.array_equal(axes.images[0].get_array(), weights)
    assert [label.get_text() for label in axes.get_xticklabels()] == list("vwxyz")
    assert [label.get_text() for label in axes.get_yticklabels()] == list("abc")
    assert axes.xaxis.get_ticks_position() == "top"
    assert [text.get_text() for text in axes.texts] == [f"{value:.2f}" for value in weights.ravel()]
    assert axes.images[0].get_clim() == (0.0, 1.0)
    assert figure.axes[1].get_ylabel() == "attention weight"
    rows = np.diff(axes.get_window_extent().intervaly)[0] / 3
    columns = np.diff(axes.get_window_extent().intervalx)[0] / 5
    assert rows == pytest.approx(columns)  # cells are squares


def test_words_slant_only_when_they_must_and_weights_are_printed_only_when_few() -> None:
    short = pictures.alignment(softmax(9, 9), list("abcdefghi"), list("abcdefghi")).axes[0]
    assert {label.get_rotation() for label in short.get_xticklabels()} == {0}
    assert not short.texts
    longer = pictures.alignment(softmax(9, 9), list("abcdefghi"), ["agreement"] * 9).axes[0]
    assert {label.get_rotation() for label in longer.get_xticklabels()} == {45}


def test_more_tokens_than_fit_get_fewer_labels() -> None:
    figure = pictures.alignment(softmax(2, 700), ["a", "b"], [f"word{i}" for i in range(700)])
    assert figure.get_size_inches()[0] < 40
    assert 100 < len(figure.axes[0].get_xticklabels()) < 700


def test_dollar_signs_and_backslashes_are_text(tmp_path: Path) -> None:
    figure = pictures.alignment(softmax(2, 2), ["$\\frac{$", "$"], ["a_b", "^"], "$5 or $\\6")
    assert pictures.save(figure, tmp_path / "a.svg").stat().st_size > 0


@pytest.mark.parametrize("value", [0.0, 2.5, -1.0])
def test_constant_weights_can_be_drawn(value: float) -> None:
    figure = pictures.alignment(np.full((2, 2), value), ["a", "b"], ["c", "d"])
    (image,) = figure.axes[0].images
    low, high = image.get_clim()
    assert low <= value <= high
    assert low < high, "a scale of no width has no colours"
    assert len(np.unique(image.to_rgba(image.get_array()).reshape(4, 4), axis=0)) == 1, "all cells look alike"
    assert len(np.unique(rendered(figure).reshape(-1, 4), axis=0)) > 2, "cells, ground and letters are drawn"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((2, 3)), "need 2 row tokens and 3 column tokens, found 2 and 2"),
        (np.ones(4), "2 axes"),
        (np.ones((0, 2)), "at least one value"),
        ([[1.0, float("nan")], [0.0, 1.0]], "1 NaN or infinite"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights: np.ndarray, message: str) -> None:
    with pytest.raises(UserError, match=message):
        pictures.alignment(weights, ["a", "b"], ["c", "d"])


@pytest.mark.parametrize(
    ("layers", "heads", "m", "n"), [(1, 1, 2, 3), (2, 4, 7, 6), (3, 2, 40, 30), (2, 2, 5, 90), (2, 2, 41, 3)]
)
def test_a_grid_has_one_map_for_each_head_on_one_scale(layers: int, heads: int, m: int, n: int) -> None:
    weights = softmax(layers, heads, m, n)
    figure = pictures.grid(weights, ["row"] * m, ["column"] * n)
    maps = [axes for axes in figure.axes if axes.images]
    assert len(maps) == layers * heads
    for axes, expected in zip(maps, weights.reshape(-1, m, n), strict=True):
        assert np.array_equal(axes.images[0].get_array(), expected)
        assert axes.images[0].get_clim() == (0.0, 1.0)
    words = [text.get_text() for text in texts(figure)]
    assert {f"layer {i + 1}" for i in range(layers)} | {f"head {i + 1}" for i in range(heads)} <= set(words)
    assert words.count("row") == (m * layers if m <= 40 else 0)
    assert words.count("column") == (n * heads if n <= 40 else 0)
    assert ("each map: 90 columns of tokens" in words, "each map: 41 rows of tokens" in words) == (n == 90, m == 41)
    rendered(figure)
    renderer = figure.canvas.get_renderer()
    for text in texts(figure):
        box = text.get_window_extent(renderer)
        assert min(box.x0, box.y0, figure.bbox.x1 - box.x1, figure.bbox.y1 - box.y1) >= -1, text
    for labels, low, high in ((maps[0].get_xticklabels(), "x0", "x1"), (maps[0].get_yticklabels()[::-1], "y0", "y1")):
        boxes = [label.get_window_extent(renderer) for label in labels if label.get_rotation() in (0, 90)]
        assert all(getattr(a, high) <= getattr(b, low) + 1 for a, b in itertools.pairwise(boxes)), "labels overlap"


def test_a_grid_needs_a_name_for_each_layer() -> None:
    figure = pictures.grid(softmax(2, 1, 2, 2), ["a", "b"], ["c", "d"], names=["low", "the highest of all"])
    assert {"low", "the highest of all"} <= {text.get_text() for text in texts(figure)}
    with pytest.raises(UserError, match="2 layers but 1 names"):
        pictures.grid(softmax(2, 1, 2, 2), ["a", "b"], ["c", "d"], names=["low"])


# ---- lines


def test_curves_leave_out_what_was_not_measured() -> None:
    nan = float("nan")
    series = {"loss": [3.0, 2.0, 1.0], "score": [1.0, nan, 2.0]}
    figure = pictures.curves([1, 2, 3], series, "step", "value", bands={"loss": ([2, 1, 0], [4, 3, 2])}, title="t")
    axes = figure.axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [[3.0, 2.0, 1.0], [1.0, 2.0]]
    assert list(axes.lines[1].get_xdata()) == [1.0, 3.0]
    assert len(axes.collections) == 1
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("step", "value", "t")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["loss", "score"]
    assert len({line.get_color() for line in axes.lines}) == 2


def test_curves_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match=r"'loss' has shape \(2,\) but x has shape \(3,\)"):
        pictures.curves([1, 2, 3], {"loss": [1, 2]}, "x", "y")
    with pytest.raises(UserError, match="at least one"):
        pictures.curves([1], {}, "x", "y")
    with pytest.raises(UserError, match="other"):
        pictures.curves([1], {"a": [1]}, "x", "y", bands={"other": ([1], [1])})


def angles(positions: np.ndarray, width: int) -> np.ndarray:
    return positions[:, None] / 10000 ** (np.arange(0, width, 2) / width)


def test_the_sinusoidal_table_is_sines_and_cosines() -> None:
    shown = pictures.sinusoidal_table(width=6, length=9).axes[0].images[0].get_array()
    assert shown.shape == (9, 6)
    assert np.allclose(shown[:, 0::2], np.sin(angles(np.arange(9), 6)), atol=1e-6)
    assert np.allclose(shown[:, 1::2], np.cos(angles(np.arange(9), 6)), atol=1e-6)


def test_products_of_positions_coincide_for_every_start() -> None:
    lines = pictures.sinusoidal_products(width=128, distance=50).axes[0].lines
    expected = np.cos(angles(np.arange(51), 128)).sum(axis=1)
    assert len(lines) >= 3
    for line in lines:
        assert np.allclose(line.get_ydata(), expected, atol=1e-3)


def test_the_first_fifty_components_have_four_fifths_of_the_variance_of_products() -> None:
    """Var_τ ⟨p_t^{1…k}, p_(t+τ)^{1…k}⟩, τ = 0 … 50, d = 128: 80 % at k = 50, by a loop over prefixes and distances."""
    axes = pictures.sinusoidal_variance(width=128, distance=50).axes[0]
    drawn = axes.lines[0].get_ydata()
    table = np.stack([f(angles(np.arange(400), 128)) for f in (np.sin, np.cos)], -1).reshape(400, 128)

    def variance(k: int) -> float:
        products = [np.mean([table[t, :k] @ table[t + tau, :k] for t in range(300)]) for tau in range(51)]
        return float(np.var(products))

    for k in (2, 20, 50, 100):
        assert drawn[k - 1] == pytest.approx(100 * variance(k) / variance(128), abs=0.01)
    assert 79 < drawn[49] < 82
    assert axes.texts[0].get_text() == "80 % at k = 50"


def test_tables_of_positions_stand_side_by_side() -> None:
    figure = pictures.position_tables({"one": np.eye(4), "two": -np.ones((3, 5))}, "tables", pairs=["one"])
    drawn = [axes for axes in figure.axes if axes.images]
    assert [(axes.get_title(), axes.get_xlabel()) for axes in drawn] == [("one", "position t′"), ("two", "component")]
    assert drawn[1].images[0].get_array().shape == (3, 5)
    assert drawn[0].images[0].get_clim() == (-1.0, 1.0)
    with pytest.raises(UserError, match="no table of positions"):
        pictures.position_tables({})


def test_lecture_colours_show_large_weights_white_and_only_inside() -> None:
    weights = np.array([[0.0, 1.0]])
    with pictures.coloured("lecture"):
        image = pictures.alignment(weights, ["a"], ["b", "c"]).axes[0].images[0]
        assert image.to_rgba(1.0)[:3] == (1.0, 1.0, 1.0)
        assert image.to_rgba(0.0)[:3] == (0.0, 0.0, 0.0)
        written = pictures.alignment(weights, ["a"], ["b", "c"]).axes[0].texts
        assert [text.get_color() for text in written] == ["white", "#1b2330"]  # each can be read
    plain = pictures.alignment(weights, ["a"], ["b", "c"]).axes[0].images[0]
    assert sum(plain.to_rgba(1.0)[:3]) < sum(plain.to_rgba(0.0)[:3])
    with pytest.raises(UserError, match="colours pink: expected one of regard, lecture"), pictures.coloured("pink"):
        pass


@pytest.mark.parametrize(
    "draw", [pictures.sinusoidal_table, pictures.sinusoidal_products, pictures.sinusoidal_variance]
)
def test_impossible_positions_are_refused(draw: type) -> None:
    with pytest.raises(UserError, match="even width"):
        draw(5, 10)
    with pytest.raises(UserError, match="at least 1"):
        draw(4, 0)


# ---- masks


def test_masks_fill_what_is_allowed() -> None:
    causal = np.tri(5, dtype=bool)
    figure = pictures.masks({"causal": causal, "none": ~causal})
    assert [axes.get_title() for axes in figure.axes] == ["causal", "none"]
    for axes, matrix in zip(figure.axes, (causal, ~causal), strict=True):
        assert np.array_equal(axes.images[0].get_array(), matrix)
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("key position", "query position")
        assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first query on top
    image = rendered(pictures.mask(causal, "causal"))
    assert (image[..., :3] == [0x2F, 0x62, 0xB5]).all(-1).mean() > 0.2


@pytest.mark.parametrize("matrix", [np.ones((2, 2)), np.ones(3, dtype=bool), np.ones((0, 2), dtype=bool)])
def test_only_boolean_matrices_are_masks(matrix: np.ndarray) -> None:
    with pytest.raises(UserError, match="boolean matrix"):
        pictures.mask(matrix, "wrong")


def test_an_empty_gallery_is_refused() -> None:
    with pytest.raises(UserError, match="at least one"):
        pictures.masks({})


# ---- files


def test_pictures_are_written_by_suffix_and_the_same_each_time(tmp_path: Path) -> None:
    figure = pictures.alignment(softmax(2, 2), ["a", "שלום"], ["c", "d"])
    assert pictures.save(figure, tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")
    first = pictures.save(figure, tmp_path / "a.svg").read_bytes()
    assert ElementTree.fromstring(first).tag.endswith("svg")
    again = pictures.alignment(softmax(2, 2), ["a", "שלום"], ["c", "d"])
    assert pictures.save(again, str(tmp_path / "b.svg")).read_bytes() == first


COMMANDS = {
    "regard show runs/x 'a word'": ["/home/me/.venv/bin/regard", "show", "runs/x", "a word"],
    "regard show x -o a.png": ["/usr/lib/regard/__main__.py", "show", "/home/me/x", "-o", "a.png"],
    "plot.py": ["/home/me/plot.py", "--secret"],
    "docs/positions.md": ["docs/positions.md"],
    "python": ["-c"],
    "regard show '\ufffd<\ufffd'": ["regard", "show", "\x01<\udc80"],
}


@pytest.mark.parametrize("said", COMMANDS)
def test_pictures_carry_version_and_command(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", COMMANDS[said])
    figure, tiles = pictures.mask([[True]]), [np.zeros((2, 2, 3), np.uint8)]
    for path in (pictures.save(figure, tmp_path / "a.png"), pictures.tile_sheet(tiles, tmp_path / "b.png")):
        with Image.open(path) as picture:
            assert picture.info["Software"] == f"Regard {regard.__version__}"
            assert picture.info["Description"] == said
    texts = [node.text for node in ElementTree.parse(pictures.save(figure, tmp_path / "a.svg")).iter()]
    assert f"Regard {regard.__version__}" in texts
    assert said in texts


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.jpeg"])
def test_other_suffixes_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"\.png or \.svg"):
        pictures.save(pictures.mask([[True]]), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_an_absent_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent.a\.png cannot be written"):
        pictures.save(pictures.mask([[True]]), tmp_path / "absent" / "a.png")


def test_importing_stays_light() -> None:
    code = (
        "import sys, regard, regard.inspection.page; assert 'matplotlib' not in sys.modules;"
        "import regard.pictures; assert 'torch' not in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
