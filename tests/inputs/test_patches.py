"""Augmentation is a pure function of (seed, epoch, row); pictures as an input, through training and warm start."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard import metrics
from regard.data.draws import Draws
from regard.data.example import Example
from regard.data.pixels import ImageHandle
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inputs import augmentation
from regard.inputs.augmentation import Variations
from regard.inputs.input import Use
from regard.inputs.patches import LabelledPictureSettings, Patches, statistics_of
from regard.inputs.picture_choices import words_of
from regard.layers.stem import Stem
from regard.models.cnn import cnn
from regard.models.vit import vit
from regard.outputs.output import paired

ALL = Variations(shift=0.2, scale=0.2, flip=True, colour=0.3, erase=0.8, mixup=0.5)


def draws(rows: list[int], epoch: int = 3, seed: int = 1) -> Draws:
    return Draws(seed, epoch, np.array(rows), 1000, lambda numbers: [(np.array([n]),) for n in numbers])


def pictures(count: int = 6, channels: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 10, 10, channels), generator=generator, dtype=torch.uint8)


def test_a_row_is_varied_the_same_wherever_it_stands() -> None:
    pixels = pictures()
    whole, change = augmentation.varied(pixels, ALL, draws([5, 9, 2, 40, 7, 1]))
    part, other = augmentation.varied(pixels[[3, 1]], ALL, draws([40, 9]))
    assert torch.equal(whole[[3, 1]], part)
    assert change is not None
    assert other is not None
    assert torch.equal(change[[3, 1]], other)
    assert torch.equal(augmentation.shares(0.5, draws([5, 9]))[1:], augmentation.shares(0.5, draws([9])))
    for changed in (draws([5, 9, 2, 40, 7, 1], epoch=4), draws([5, 9, 2, 40, 7, 1], seed=2)):
        assert not torch.equal(whole, augmentation.varied(pixels, ALL, changed)[0])


def test_random_numbers_are_even_and_independent() -> None:
    found = draws(list(range(20_000))).uniform(0, 3)
    assert found.min() >= 0
    assert found.max() < 1
    assert np.abs(found.mean(0) - 0.5).max() < 0.01
    assert (
        np.abs(np.corrcoef(np.concatenate([found, draws(list(range(20_000))).uniform(1, 1)], 1).T) - np.eye(4)).max()
        < 0.03
    )
    assert np.abs(np.corrcoef(found[:-1, 0], found[1:, 0])[0, 1]) < 0.03
    partners = draws(list(range(20_000))).partners(1000)
    assert (partners.min(), partners.max()) == (0, 999)


def test_the_map_of_a_change_leads_back_to_the_source() -> None:
    """A dot in the varied picture comes from where the affine map says."""
    pixels = torch.zeros(40, 21, 21, 1, dtype=torch.uint8)
    pixels[:, 6:9, 13:16] = 255
    how = Variations(shift=0.15, scale=0.2, flip=True)
    found, change = augmentation.varied(pixels, how, draws(list(range(40))))
    assert change is not None
    assert (change[:, 0, 0] < 0).any()
    assert (change[:, 0, 0] > 0).any()
    places = (torch.arange(21) + 0.5) / 21 * 2 - 1
    for picture, affine in zip(found[..., 0], change, strict=True):
        mass = picture / picture.sum()
        new = torch.stack((((mass.sum(0)) * places).sum(), ((mass.sum(1)) * places).sum(), torch.tensor(1.0)))
        assert torch.allclose(affine @ new, torch.tensor([places[14], places[7]]), atol=0.06)


def test_nothing_is_changed_without_variations_and_colours_stay_bytes() -> None:
    reader = Patches(LabelledPictureSettings(size=10, channels=3, patch=5), [0.5] * 3, [0.2] * 3)
    source = reader.collate([(picture[None].numpy(),) for picture in pictures()])
    assert reader.vary(source, draws([0, 1, 2, 3, 4, 5])) is source
    found, change = augmentation.varied(pictures(), Variations(colour=1.0), draws([0, 1, 2, 3, 4, 5]))
    assert change is None
    assert found.min() >= 0
    assert found.max() <= 255
    holes, _ = augmentation.varied(
        torch.randint(0, 255, (50, 20, 20, 1)), Variations(erase=1.0), draws(list(range(50)))
    )
    assert all((picture == picture.mean()).float().mean() < 0.5 for picture in holes)


def test_mixup_mixes_pictures_and_labels() -> None:
    reader = Patches(LabelledPictureSettings(size=10, channels=3, patch=5, mixup=0.4), [0.5] * 3, [0.2] * 3)
    assert reader.mixes
    pixels = pictures(4)
    source = reader.vary(reader.collate([(picture[None].numpy(),) for picture in pixels]), draws([3, 8]))
    assert source.shares is not None
    share = source.shares[:, None, None, None]
    assert torch.allclose(source.values[0], share * pixels[:2] + (1 - share) * pixels[2:])
    assert ((source.shares >= 0.5) & (source.shares <= 1)).all()


def test_restore_undoes_the_normalisation() -> None:
    reader = Patches(LabelledPictureSettings(size=10, channels=3, patch=5), [0.4, 0.5, 0.6], [0.2, 0.3, 0.1])
    stem, _ = cnn(layers=1, stages=1, width=8)
    module = reader.module(stem)
    pixels = pictures().float()
    values = (pixels - module.mean) / module.deviation
    assert torch.allclose(reader.restore(values), pixels, atol=1e-3)
    assert torch.equal(reader.distance(pixels, pixels), torch.zeros(6))


def test_statistics_are_those_of_all_pixels_of_a_channel() -> None:
    few = [np.random.default_rng(n).integers(0, 256, (4, 5, 2)).astype(np.uint8) for n in range(3)]
    mean, deviation = statistics_of(iter(few), 2)
    together = np.concatenate([each.reshape(-1, 2) for each in few]) / 255
    assert np.allclose(mean, together.mean(0))
    assert np.allclose(deviation, together.std(0) + 1e-3)
    assert statistics_of([], 1) == ([0.0], [1e-3])


def test_pictures_are_decoded_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may be larger than memory, so its rows are not held together on the way to it."""
    reader = Patches(LabelledPictureSettings(size=4, channels=3, patch=2), [0.5] * 3, [0.2] * 3)
    counts, encode = [], reader.encode

    def counted(sources: list[ImageHandle]) -> list[tuple[np.ndarray, ...]]:
        counts.append(len(sources))
        return encode(sources)

    monkeypatch.setattr(reader, "encode", counted)
    examples = (Example(ImageHandle(), "a", "x", number) for number in range(100))
    rows = list(paired(reader, lambda some: ((np.array([1]),) for _ in some), examples))
    assert len(rows) == sum(counts) == 100
    assert max(counts) <= 16


def test_what_does_not_go_together_is_refused() -> None:
    reader = Patches(LabelledPictureSettings(size=10, channels=1, patch=4), [0.5], [0.2])
    with pytest.raises(ValueError, match="patches of 4 pixels must divide"):
        reader.module(vit(layers=1, width=8, hidden=8, heads=2)[0])
    with pytest.raises(ValueError, match="no alphabet"):
        reader.module(Stem(8, whole=lambda size: torch.nn.Embedding(size, 8)))
    with pytest.raises(ValueError, match="halves"):
        reader.module(cnn(layers=1, stages=9, width=8)[0])


def test_a_text_cannot_be_read_by_a_network_of_pixels(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("good day\ta\nbad day\tb\n" * 30)
    with pytest.raises(UserError, match="reads pixels, and texts have none"):
        regard.train(tmp_path / "x.tsv", tmp_path / "run", steps=1, task="classify", set=["model.kind=vit"], quiet=True)


@pytest.mark.parametrize("kind", ["vit", "swin", "cnn", "transformer", "recurrent", "deepsets"])
def test_every_kind_of_network_labels_pictures(kind: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 255, (24, 8, 8)).astype(np.uint8)
    np.savez(tmp_path / "x.npz", images=rows, labels=np.array(["a", "b"] * 12))
    changes = [f"model.kind={kind}", "model.width=8", "patches.patch=2", "training.every=1"]
    more = {
        "vit": ["model.hidden=8", "model.heads=2", "output.pooling=first"],
        "swin": ["model.window=2", "model.hidden=8"],
    }
    changes += more.get(kind, [])
    model = regard.train(tmp_path / "x.npz", tmp_path / "run", steps=1, set=changes, quiet=True)
    assert set(model.predict([f"{tmp_path}/x.npz/images#3", f"{tmp_path}/x.npz/images#4"])) <= {"a", "b"}
    shown = model.task.exhibit(model.task.input.read(f"{tmp_path}/x.npz/images#3"), None)
    assert shown.view is not None
    assert shown.view.grid == ((2, 2) if kind == "cnn" else (4, 4)) or kind == "cnn"
    assert Use.LABEL is model.task.output.use


def test_bytes_of_strangers_are_checked_before_they_are_decoded() -> None:
    reader = Patches(LabelledPictureSettings(size=10, channels=3, patch=5), [0.5] * 3, [0.2] * 3)
    file = io.BytesIO()
    Image.new("RGB", (30, 20), "red").save(file, "PNG")
    (row,) = reader.encode([reader.open(file.getvalue(), "image/png")])
    assert row[0].shape == (1, 10, 10, 3)
    for content, media, said in (
        (b"", "image/png", "the image is empty"),
        (b"hello", "image/png", "the image is not a readable picture"),
        (file.getvalue(), "text/html", "The media type does not fit"),
    ):
        with pytest.raises(UserError, match=said):
            reader.open(content, media)


@pytest.mark.parametrize(("caption", "short"), [("red over blue", True), ("a red one is over a blue one", False)])
def test_captions_too_short_for_bleu_are_judged_by_exact_match(caption: str, short: bool) -> None:
    perfect = metrics.evaluate([caption] * 10, [[caption]] * 10, kind="text")[0]
    assert (perfect.name, perfect.value == 0) == ("bleu", short)
    captions = [Example("", caption, "captions.tsv", line) for line in range(10)]
    sections, why = words_of(Survey(10, captions, range(10), "captions"))
    assert sections["output"] == {"level": "words", "closed": short}
    assert ("output.closed" in why) is short
