"""An encoder of another kind than the decoder."""

from pathlib import Path

import pytest

import regard
from regard.commands.check import check_run


@pytest.mark.parametrize("decoder", ["recurrent", "transformer"])
@pytest.mark.parametrize("encoder", ["recurrent", "transformer", "deepsets"])
def test_another_network_may_read_for_a_decoder(decoder: str, encoder: str, tmp_path: Path) -> None:
    """The encoder is a section of its own, of any width; the answers do not depend on padding or batch."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{'ab' * (i % 5 + 1)}{i}\t{i}{'b' * (i % 3)}\n" for i in range(40)))
    chosen = [
        f"model.kind={decoder}",
        "model.width=16",
        "model.layers=1",
        f"encoder.kind={encoder}",
        "encoder.width=12",
    ]
    chosen += ["model.heads=2", "model.hidden=16"] if decoder == "transformer" else []
    model = regard.train(path, tmp_path / "run", steps=3, set=chosen, quiet=True)
    assert model.network.backbone.map.weight.shape == (16, 12)
    again = regard.load(tmp_path / "run")
    assert again.config.encoder.kind == encoder
    assert again.predict(["abab7", "a"]) == model.predict(["abab7", "a"])
    assert check_run(tmp_path / "run", accept=False)[1]
