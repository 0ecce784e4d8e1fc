"""A published ViT is taken up, used, trained further at another size, and saved back."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification

import regard
from regard.errors import UserError
from regard.exchange import huggingface
from regard.inputs.input import Batch
from regard.runs.model import Model, load


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    labels = {0: "cat", 1: "a dog", 2: "cat"}
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=12, patch_size=4,
        id2label=labels, label2id={name: number for number, name in labels.items()},
    )  # fmt: skip
    model = ViTForImageClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    folder = tmp_path_factory.mktemp("published") / "vit"
    model.save_pretrained(folder)
    return folder


def logits(model: Model, pixels: torch.Tensor) -> torch.Tensor:
    source = model.task.input.collate([(picture[None].numpy(),) for picture in pixels])
    with torch.no_grad():
        return model.network.scores(Batch(source, torch.zeros(len(pixels), dtype=torch.long)))[:, 0]


def theirs(folder: Path, pixels: torch.Tensor) -> torch.Tensor:
    x = (pixels.permute(0, 3, 1, 2) / 255 - 0.5) / 0.5
    with torch.no_grad():
        found: torch.Tensor = ViTForImageClassification.from_pretrained(folder).eval()(x).logits
    return found


def test_logits_are_theirs_both_ways(published: Path, tmp_path: Path) -> None:
    model = huggingface.take_up(published, tmp_path / "run")
    assert model.task.output.classes.names == ["cat", "a dog", "cat (2)"]
    pixels = torch.randint(0, 256, (5, 12, 12, 3), dtype=torch.uint8)
    assert torch.allclose(logits(model, pixels), theirs(published, pixels), atol=1e-5)
    assert huggingface.export(model, tmp_path / "again") <= 1e-5
    assert torch.allclose(logits(model, pixels), theirs(tmp_path / "again", pixels), atol=1e-5)
    assert (tmp_path / "again" / "preprocessor_config.json").is_file()


def test_it_is_trained_further_at_another_size(published: Path, tmp_path: Path) -> None:
    huggingface.take_up(published, tmp_path / "run")
    chosen = np.random.default_rng(0)
    images = chosen.integers(0, 256, (40, 20, 20, 3)).astype(np.uint8)
    np.savez(tmp_path / "toy.npz", images=images, labels=np.array(["cat", "a dog"] * 20))
    changes = ["patches.size=20", "training.budget=300", "training.every=2"]
    model = regard.train(
        tmp_path / "toy.npz", tmp_path / "fine", start=tmp_path / "run", steps=2, set=changes, quiet=True
    )
    assert model.config.patches.size == 20
    assert (model.config.model.kind, model.config.output.pooling) == ("vit", "first")
    assert model.network.stem.picture.place.table.shape == (5, 5, 16)
    layer = model.network.backbone.layers[0].feed.inner.weight
    before = load(tmp_path / "run").network.backbone.layers[0].feed.inner.weight
    assert (layer - before).abs().max() < 0.01  # its weights, two small steps later


def test_what_it_cannot_express_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "toy.npz", images=np.zeros((20, 8, 8), np.uint8), labels=np.array(["a", "b"] * 10))
    model = regard.train(tmp_path / "toy.npz", tmp_path / "cnn", steps=1, set=["model.width=8"], quiet=True)
    with pytest.raises(UserError, match=r"model\.kind is cnn: ViTForImageClassification cannot express it"):
        huggingface.export(model, tmp_path / "out")
