"""Published models taken up: the same logits as transformers gives, the same tensors back, and a start for trainings."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import regard
from regard.commands.app import main
from regard.errors import UserError
from regard.exchange import huggingface
from regard.runs.model import Model
from regard.text.tokenizer import END, PAD, START
from tests.exchange import published

MAKERS: dict[str, Callable[..., Any]] = {
    "bert": published.bert,
    "gpt2": published.gpt2,
    "marian": published.marian,
    "pegasus": lambda folder: published.marian(folder, pegasus=True),
}
SHORT, LONG = "The dog knows.", "Nobody knows where the naïve cat sat, and it's 7 o'clock now!"


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Any, Model]]:
    """The folder of a published model, the model, and what was imported of it."""
    made: dict[str, tuple[Path, Any, Model]] = {}

    def get(name: str) -> tuple[Path, Any, Model]:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            theirs = MAKERS[name](folder / "published")
            made[name] = folder / "published", theirs, huggingface.take_up(folder / "published", folder / "run")
        return made[name]

    return get


def encoded(folder: Path) -> tuple[Any, dict[str, Tensor]]:
    """A short and a long text by transformers' own tokenizer, padded."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer, dict(tokenizer([SHORT, LONG], padding=True, return_tensors="pt", return_token_type_ids=False))


def in_our_order(logits: Tensor, rows: list[int]) -> Tensor:
    return logits[..., [row for row in rows if row >= 0]]


def test_bert_gives_the_same_ids_and_logits_with_padding(taken: Any) -> None:
    folder, theirs, model = taken("bert")
    _, batch = encoded(folder)
    vocabulary = model.task.input.alphabet
    rows = [vocabulary.encode(text) for text in (SHORT, LONG)]
    real = batch["attention_mask"].bool()
    assert [[vocabulary.rows[id] for id in (START, *row, END)] for row in rows] == [
        ids[mask].tolist() for ids, mask in zip(batch["input_ids"], real, strict=True)
    ]
    with torch.no_grad():
        found = huggingface.KINDS["bert"].logits(model.task, rows)
        expected = in_our_order(theirs(**batch).logits[real], vocabulary.rows)
    assert found.allclose(expected, atol=1e-5)
    assert vocabulary.rows[model.task.output.mask] == 2  # [MASK]


def test_gpt2_gives_the_same_ids_and_logits_with_padding(taken: Any) -> None:
    folder, theirs, model = taken("gpt2")
    _, batch = encoded(folder)
    vocabulary = model.task.input.alphabet
    rows = [vocabulary.encode(text) for text in (SHORT, LONG)]
    real = batch["attention_mask"].bool()
    assert [[vocabulary.rows[id] for id in row] for row in rows] == [
        ids[mask].tolist() for ids, mask in zip(batch["input_ids"], real, strict=True)
    ]
    with torch.no_grad():
        found = huggingface.KINDS["gpt2"].logits(model.task, rows)
        expected = in_our_order(theirs(**batch).logits[real], vocabulary.rows)
    assert found.allclose(expected, atol=1e-5)
    assert model.network.head.output.bias is None
    assert vocabulary.decode(vocabulary.encode(LONG)) == LONG


@pytest.mark.parametrize("name", ["marian", "pegasus"])
def test_marian_gives_the_same_ids_and_logits_with_padding(taken: Any, name: str) -> None:
    folder, theirs, model = taken(name)
    _, batch = encoded(folder)
    vocabulary = model.task.input.alphabet
    rows = [vocabulary.encode(text) for text in (SHORT, LONG)]
    real = batch["attention_mask"].bool()
    assert [[vocabulary.rows[id] for id in (*row, END)] for row in rows] == [
        ids[mask].tolist() for ids, mask in zip(batch["input_ids"], real, strict=True)
    ]
    ours = model.task.batch([(rows[0], [*rows[1], END]), (rows[1], [*rows[0], END])])
    wanted = ours.target.ids
    given = torch.nn.functional.pad(wanted[:, :-1], (1, 0), value=START)
    their_ids = torch.tensor([*vocabulary.rows])[given].clamp(min=0)
    with torch.no_grad():
        found = model.network.scores(ours)[wanted != PAD]
        output = theirs(**batch, decoder_input_ids=their_ids)
    expected = in_our_order(output.logits[wanted != PAD], vocabulary.rows)
    assert vocabulary.rows[PAD] == -1
    assert found[:, 1:].allclose(expected, atol=1e-5)
    assert found[:, PAD].le(-9999).all()  # the one that is new is never written


@pytest.mark.parametrize(
    ("maker", "more"),
    [
        (published.gpt2, {"tie_word_embeddings": False, "activation_function": "relu", "n_inner": 32}),
        (published.marian, {"scale_embedding": False, "activation_function": "relu"}),
    ],
)
def test_other_settings_give_the_same_logits_too(tmp_path: Path, maker: Any, more: dict[str, Any]) -> None:
    theirs = maker(tmp_path / "published", **more)
    model = huggingface.take_up(tmp_path / "published", tmp_path / "run")
    ids = torch.randint(4, 50, (2, 9), generator=torch.Generator().manual_seed(0))
    vocabulary = model.task.input.alphabet
    published_ids = torch.tensor(vocabulary.rows)[ids]
    with torch.no_grad():
        if maker is published.gpt2:
            found = huggingface.KINDS["gpt2"].logits(model.task, ids.tolist()).reshape(2, 9, -1)
            expected = theirs(input_ids=published_ids).logits
        else:
            end, start = (torch.tensor(vocabulary.rows)[torch.full((2, 1), id)] for id in (END, START))
            given = {
                "input_ids": torch.cat((published_ids, end), 1),
                "decoder_input_ids": torch.cat((start, published_ids), 1),
            }
            ours = model.task.batch([(row, [*row, END]) for row in ids.tolist()])
            found, expected = model.network.scores(ours)[..., 1:], theirs(**given).logits
    assert found.allclose(in_our_order(expected, vocabulary.rows), atol=1e-5)


@pytest.mark.parametrize("name", MAKERS)
def test_export_gives_the_same_tensors_back(taken: Any, name: str, tmp_path: Path) -> None:
    folder, theirs, model = taken(name)
    assert huggingface.export(model, tmp_path / "again") == 0
    before, after = (load_file(place / "model.safetensors") for place in (folder, tmp_path / "again"))
    fixed = {key for key in {*before, *after} if "decoder.bias" in key or "embed_positions" in key}
    assert before.keys() - fixed == after.keys() - fixed
    for key in after.keys() - fixed:
        assert after[key].equal(before[key]), key
    same = type(theirs).from_pretrained(tmp_path / "again").eval()
    for key, value in theirs.state_dict().items():
        assert same.state_dict()[key][: len(value)].equal(value), key  # positions may be more
    for text in (SHORT, LONG):
        assert encoded(tmp_path / "again")[0](text).input_ids == encoded(folder)[0](text).input_ids


def commands(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return int(left.value.code or 0)


def test_the_commands_work_on_what_was_imported(taken: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _, _ = taken("bert")
    run = tmp_path / "bert"
    assert commands("import", folder, "-o", run) == 0
    assert capsys.readouterr().out == f"{run}\n"
    assert commands("predict", run, "The [MASK] sat on the ___.", "") == 0
    filled, empty, *_ = capsys.readouterr().out.split("\n")
    assert (filled.split()[0], filled.split()[2:5], empty) == ("The", ["sat", "on", "the"], "")
    assert filled.endswith(".")
    text = tmp_path / "text.txt"
    text.write_text("\n".join(published.TEXTS))
    assert commands("evaluate", run, text, "--json") == 0
    assert json.loads(capsys.readouterr().out)["scores"][0]["name"] == "accuracy"
    assert commands("show", run, "The cat ___ home.", "-o", tmp_path / "picture.html") == 0
    assert commands("check", run) == 0
    assert "every file matches its checksum" in capsys.readouterr().out
    assert commands("export", run, "--to", "huggingface", "-o", tmp_path / "back") == 0
    assert (tmp_path / "back" / "tokenizer.json").is_file()


def test_gpt2_and_marian_answer_as_transformers_does(taken: Any, tmp_path: Path) -> None:
    folder, theirs, model = taken("marian")
    tokenizer, batch = encoded(folder)
    written = theirs.generate(
        **batch, num_beams=1, do_sample=False, max_new_tokens=13, bad_words_ids=[[theirs.config.pad_token_id]]
    )
    expected = [text.strip() for text in tokenizer.batch_decode(written, skip_special_tokens=True)]
    assert [text.strip() for text in model.predict([SHORT, LONG], beam=1, longest=12)] == expected
    assert all(expected)
    picture = model.task.exhibit(SHORT, None)
    assert picture.source[-1] == "∎"
    assert all(m.weights.shape[-1] == len(picture.source) for m in picture.maps if m.columns == "source")
    alignment = model.answers([SHORT], alignment="soft")[0][0].alignment
    assert alignment.columns == SHORT.split()
    assert alignment.weights.shape[1] == len(alignment.columns)
    _, theirs, model = taken("gpt2")
    vocabulary = model.task.input.alphabet
    prompt = torch.tensor([[vocabulary.rows[id] for id in model.task.output.prompt(model.task.input, SHORT)]])
    written = theirs.generate(prompt, do_sample=False, max_new_tokens=10, attention_mask=torch.ones_like(prompt))
    drawn = model.task.answers([SHORT], longest=10, temperature=1e-4)[0]
    assert [vocabulary.rows[id] for id in drawn.ids][: written.shape[1] - prompt.shape[1]] == written[
        0, prompt.shape[1] :
    ].tolist()
    assert drawn.text.startswith(SHORT)


STARTS = [
    ("bert", "".join(f"{text}\t{'cat' if 'cat' in text else 'none'}\n" for text in published.TEXTS), "classify", []),
    ("bert", "".join("".join(f"{word}\tX\n" for word in text.split()) + "\n" for text in published.TEXTS), "tag", []),
    ("bert", "\n".join(published.TEXTS * 2) + "\n", "fill", []),
    ("gpt2", "\n".join(published.TEXTS * 2) + "\n", "continue", []),
    ("gpt2", "".join(f"{text}\t{'cat' if 'cat' in text else 'none'}\n" for text in published.TEXTS), "classify", []),
    ("marian", "".join(f"{text}\t{text.upper()}\n" for text in published.TEXTS), "convert", []),
]


@pytest.mark.parametrize(("name", "data", "task", "more"), STARTS, ids=[f"{n}-{t}" for n, _, t, _ in STARTS])
def test_a_training_starts_from_the_published_weights(
    taken: Any, tmp_path: Path, name: str, data: str, task: str, more: list[str]
) -> None:
    folder, _, origin = taken(name)
    path = tmp_path / "data.tsv"
    path.write_text(data, encoding="utf-8")
    still = ["training.rate=1e-12", "training.warmup=0", "data.longest=30", *more]
    run = folder.parent / "run"
    model = regard.train(path, tmp_path / "run", task=task, start=run, steps=1, valid=path, set=still, quiet=True)
    own, theirs = dict(model.network.named_parameters()), dict(origin.network.named_parameters())
    shared = [key for key in own if key in theirs and not key.startswith(("head.output.", "head.choice."))]
    assert len(shared) >= 30
    for key in shared:
        rows = min(len(own[key]), len(theirs[key]))
        assert own[key][:rows].allclose(theirs[key][:rows], atol=1e-6), key
    assert model.task.input.alphabet.encode(LONG) == origin.task.input.alphabet.encode(LONG)
    assert len(model.predict([SHORT, ""])) == 2
    again = regard.load(tmp_path / "run")
    assert again.config.model.layers == 2


# ---- faults -----------------------------------------------------------------------------------------------------------


def change(folder: Path, name: str, **values: Any) -> None:
    path = folder / name
    found = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in (found | values).items() if value is not None}))


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def giant(folder: Path) -> None:
    """A header that promises more than the file holds."""
    header = json.dumps({"x": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json: expected a folder in the Hugging Face"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors"),
    "pickle": (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "pickle files, which may run code"),
    "several files": (
        lambda f: (f / "model.safetensors").rename(f / "model.safetensors.index.json"),
        "weights in several files",
    ),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer.json"),
    "damaged tokenizer": (lambda f: (f / "tokenizer.json").write_text('{"model": '), "damaged tokenizer file"),
    "empty tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), "has no model.vocab"),
    "list for a tokenizer": (lambda f: (f / "tokenizer.json").write_text("[]"), "no JSON object"),
    "another model_type": (lambda f: change(f, "config.json", model_type="t5"), "model_type is 't5', expected one of"),
    "no model_type": (lambda f: change(f, "config.json", model_type=None), "model_type is None, expected one of"),
    "another head": (
        lambda f: change(f, "config.json", architectures=["BertForTokenClassification"]),
        "is a BertForTokenClassification, expected a BertForMaskedLM",
    ),
    "decoder": (lambda f: change(f, "config.json", is_decoder=True), "is_decoder is True: only a model with False"),
    "activation": (lambda f: change(f, "config.json", hidden_act="relu"), "hidden_act is 'relu'"),
    "epsilon": (lambda f: change(f, "config.json", layer_norm_eps=1e-5), "layer_norm_eps is 1e-05"),
    "no number": (lambda f: change(f, "config.json", hidden_size="wide"), "hidden_size is 'wide', expected a whole"),
    "other width": (lambda f: change(f, "config.json", hidden_size=28), "has the shape .* but config.json says"),
    "more layers": (lambda f: change(f, "config.json", num_hidden_layers=3), "has no 'bert.encoder.layer.2"),
    "fewer layers": (lambda f: change(f, "config.json", num_hidden_layers=1), "has 'bert.encoder.layer.1.*has not"),
    "giant layers": (lambda f: change(f, "config.json", num_hidden_layers=10**6), "model.layers"),
    "heads": (lambda f: change(f, "config.json", num_attention_heads=5), "The model cannot be built"),
    "few rows": (lambda f: change(f, "config.json", vocab_size=9), "tokens, but vocab_size in config.json is 9"),
    "same ids": (lambda f: change(f, "config.json", pad_token_id=1), "expected different ones"),
    "far id": (lambda f: change(f, "config.json", pad_token_id=999), "expected different ones"),
    "no mask": (lambda f: change(f, "tokenizer_config.json", mask_token="<none>"), "names no mask_token"),
    "truncated": (cut, "model.safetensors is damaged"),
    "giant tensor": (giant, "model.safetensors is damaged"),
    "no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json is not valid JSON"),
    "no object": (lambda f: (f / "config.json").write_text("[]"), "holds no settings"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_sentence(taken: Any, tmp_path: Path, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    import re
    import shutil

    folder, _, _ = taken("bert")
    shutil.copytree(folder, tmp_path / "bad")
    spoil, expected = FAULTS[fault]
    spoil(tmp_path / "bad")
    capsys.readouterr()  # what transformers says while it writes the folder
    assert commands("import", tmp_path / "bad", "-o", tmp_path / "run") == 1
    said = capsys.readouterr().err
    assert re.search(expected, said), said
    assert said.startswith("regard: ")
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_other_faults(taken: Any, tmp_path: Path) -> None:
    folder, _, _ = taken("gpt2")
    with pytest.raises(UserError, match="does not exist: expected a folder"):
        huggingface.take_up(tmp_path / "nothing", tmp_path / "run")
    with pytest.raises(UserError, match="exists already: name another folder"):
        huggingface.take_up(folder, folder)
    run = tmp_path / "run"
    huggingface.take_up(folder, run)
    path = run / "tokenizer.json"
    good = json.loads(path.read_text(encoding="utf-8"))
    for about in ({}, {"rows": 1 << 60}, {"rows": 300, "specials": [0, 0, 1, 2]}, {"rows": "x", "specials": None}):
        path.write_text(json.dumps(good | {"foreign": good["foreign"] | about if about else 3}), encoding="utf-8")
        with pytest.raises(UserError, match=r"damaged tokenizer file"):
            regard.load(run)
    path.write_text(json.dumps(good | {"tokenizer": {"model": {"vocab": {"a": 1 << 31}}}}), encoding="utf-8")
    with pytest.raises(UserError, match="an id is not a number"):
        regard.load(run)
