"""Our own runs for transformers: the same ids from the same texts, the same logits, and refusals with their reasons."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import UserError
from regard.exchange import huggingface
from regard.runs.model import Model
from regard.text.tokenizer import END, PAD, START, Tokenizer

WORDS = ["der", "Hund", "Katzen", "läuft", "über", "Straße", "niemals", "heute", "Café", "x9"]
QUICK = ["training.warmup=1", "model.layers=2", "model.width=16", "model.hidden=24", "model.heads=2", "data.longest=40"]
HARD = [
    "der Hund läuft.", "  Katzen,  heute  ", "ein Fremder: ☃ 漢字", "Cafe\u0301 x9", "a▁b", "Hund\u00a0heute\u2003x9", "x",
]  # fmt: skip


def sentence(chosen: random.Random) -> str:
    return " ".join(chosen.choices(WORDS, k=chosen.randint(3, 9))) + chosen.choice([".", "!", "?"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Model]:
    made: dict[Any, Model] = {}

    def get(task: str, *changes: str) -> Model:
        if (task, changes) not in made:
            folder, chosen = tmp_path_factory.mktemp("own"), random.Random(0)
            lines = [sentence(chosen) for _ in range(120)]
            text = "".join(f"{line}\t{line.upper()}\n" if task == "convert" else f"{line}\n" for line in lines)
            (folder / "data.txt").write_text(text, encoding="utf-8")
            given = [*QUICK, *changes]
            made[task, changes] = regard.train(
                folder / "data.txt", folder / "run", task=task, steps=3, set=given, quiet=True
            )
            with torch.no_grad():
                for parameter in made[task, changes].network.parameters():
                    parameter.add_(0.1 * torch.randn_like(parameter))
        return made[task, changes]

    return get


def theirs(folder: Path, kind: str) -> tuple[Any, Any]:
    """Return what transformers makes of an exported folder: the model and the tokenizer."""
    import transformers

    model = getattr(transformers, kind).from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("level", ["bpe", "unigram", "characters", "symbols"])
def test_fill_as_bert(trained: Any, tmp_path: Path, level: str) -> None:
    model = trained("fill", "model.kind=bert", "model.norm=post", f"tokens.level={level}", "tokens.size=60")
    assert huggingface.export(model, tmp_path / "out") <= 1e-5
    other, tokenizer = theirs(tmp_path / "out", "BertForMaskedLM")
    rows = [model.task.input.alphabet.encode(" ".join(text.split())) for text in HARD]
    assert [tokenizer(text).input_ids for text in HARD] == [[START, *row, END] for row in rows]
    batch = tokenizer(HARD, padding=True, return_tensors="pt")
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = other(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[real]
        found = huggingface.KINDS["bert"].logits(model.task, rows)
    assert found.allclose(expected, atol=1e-5)
    if level in ("bpe", "unigram"):
        for text in ("der ___ läuft.", "___ heute", "heute über ___."):
            parsed = model.task.output.parse(text)
            assert tokenizer(text.replace("___", "[MASK]")).input_ids[1:-1] == parsed.ids
        assert tokenizer.mask_token_id == model.task.output.mask
        assert tokenizer.decode(tokenizer("der Hund läuft.").input_ids, skip_special_tokens=True) == "der Hund läuft."
    taken = huggingface.take_up(tmp_path / "out", tmp_path / "taken")
    for text in ("der ___ läuft.", "___ heute", "heute über ___ .", "x9 ___ ___ und"):
        assert taken.task.output.parse(text).ids == model.task.output.parse(text).ids


@pytest.mark.parametrize("level", ["bpe", "unigram", "characters", "symbols"])
def test_continue_as_gpt2(trained: Any, tmp_path: Path, level: str) -> None:
    more = [f"tokens.level={level}", "tokens.size=60", "model.bias=false", "output.context=64"]
    model = trained("continue", *more, *(["tokens.lowercase=true"] if level == "bpe" else []))
    assert huggingface.export(model, tmp_path / "out") <= 1e-5
    other, tokenizer = theirs(tmp_path / "out", "GPT2LMHeadModel")
    texts = [*HARD, "der Hund\nläuft  heute", "Katzen\tx9\n\nüber"]
    rows = [model.task.output.prompt(model.task.input, text) for text in texts]
    assert [tokenizer(text).input_ids for text in texts] == rows
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = other(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[real]
        found = huggingface.KINDS["gpt2"].logits(model.task, rows)
    assert found.allclose(expected, atol=1e-5)


def test_few_positions_are_enough_to_compare(trained: Any, tmp_path: Path) -> None:
    model = trained("continue", "model.bias=false", "output.context=6")
    assert huggingface.export(model, tmp_path / "out") <= 1e-5


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("MarianMTModel", ["model.norm=post", "output.joint=true"]),
        ("MarianMTModel", ["model.norm=post", "output.joint=true", "model.closed=true", "model.activation=swish", "model.scale=false"]),
        ("MarianMTModel", ["model.norm=post", "output.joint=false"]),
        ("MarianMTModel", ["model.norm=post", "output.joint=false", "model.tied=false"]),
        ("PegasusForConditionalGeneration", ["output.joint=true"]),
    ],
)  # fmt: skip
def test_convert_as_marian(trained: Any, tmp_path: Path, kind: str, changes: list[str]) -> None:
    levels = ["tokens.level=bpe", "output.level=bpe", "tokens.size=70", "model.kind=transformer"]
    model = trained("convert", *levels, *changes)
    assert huggingface.export(model, tmp_path / "out") <= 1e-5
    other, tokenizer = theirs(tmp_path / "out", kind)
    closed = [END] if model.config.model.closed else []
    sources = [model.task.input.alphabet.encode(text) for text in HARD]
    assert [tokenizer(text).input_ids for text in HARD] == [[*row, *closed] for row in sources]
    wanted = [[*model.task.output.vocabulary.encode(text.upper()), END] for text in reversed(HARD)]
    ours = model.task.batch([*zip(sources, wanted, strict=True)])
    targets = ours.target.ids
    given = torch.nn.functional.pad(targets[:, :-1], (1, 0), value=START)
    batch = tokenizer(HARD, padding=True, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        expected = other(**batch, decoder_input_ids=given).logits[targets != PAD]
        found = model.network.scores(ours)[targets != PAD]
    assert found.allclose(expected, atol=1e-5)


def test_a_fine_tuned_model_goes_back_with_its_new_weights(tmp_path: Path) -> None:
    from tests.exchange import published

    published.gpt2(tmp_path / "published")
    huggingface.take_up(tmp_path / "published", tmp_path / "run")
    (tmp_path / "text.txt").write_text("\n".join(published.TEXTS), encoding="utf-8")
    model = regard.train(
        tmp_path / "text.txt", tmp_path / "tuned", task="continue", start=tmp_path / "run", steps=3,
        valid=tmp_path / "text.txt", set=["training.warmup=0", "training.rate=0.01"], quiet=True,
    )  # fmt: skip
    assert huggingface.export(regard.load(tmp_path / "tuned"), tmp_path / "out") <= 1e-5
    other, tokenizer = theirs(tmp_path / "out", "GPT2LMHeadModel")
    text, vocabulary = "The cat knows.\nNow!", model.task.input.alphabet
    prompt = model.task.output.prompt(model.task.input, text)
    ids = torch.tensor([vocabulary.rows])[:, prompt]
    assert ids[0, 1:].tolist() == tokenizer(text).input_ids
    with torch.no_grad():
        found = huggingface.KINDS["gpt2"].logits(model.task, [prompt])
        expected = other(input_ids=ids).logits[..., vocabulary.rows]
    assert found.allclose(expected, atol=1e-5)
    before, _ = theirs(tmp_path / "published", "GPT2LMHeadModel")
    with torch.no_grad():
        assert not before(input_ids=ids).logits[..., vocabulary.rows].allclose(expected, atol=1e-2)


REFUSED = [
    ("fill", ["model.kind=bert"], r"model.norm is pre: BertForMaskedLM cannot express it, because it normalises after"),
    ("fill", ["model.kind=xlnet"], "model.kind is xlnet: BertForMaskedLM cannot express it"),
    ("continue", ["model.position=rotary"], "model.position is rotary: GPT2LMHeadModel cannot express it"),
    ("continue", ["model.bias=true"], "model.bias is True: .* train with set="),
    ("continue", ["model.norm=post"], "model.norm is post: GPT2LMHeadModel cannot express it"),
    ("continue", ["tokens.level=words"], "whole words: a tokenizer.json cannot express"),
    ("convert", ["model.position=alibi", "model.kind=transformer"], "model.position is alibi: Pegasus"),
    (
        "convert",
        ["model.ngrams=3", "model.kind=transformer"],
        "model.ngrams is 3: Pegasus.* vectors of tokens only: train with",
    ),
    ("convert", ["output.joint=false", "model.kind=transformer"], "output.joint is False: Pegasus"),
]


@pytest.mark.parametrize(("task", "changes", "expected"), REFUSED, ids=[f"{t}-{c[0]}" for t, c, _ in REFUSED])
def test_what_cannot_be_expressed_is_refused(
    trained: Any, tmp_path: Path, task: str, changes: list[str], expected: str
) -> None:
    extra = ["model.bias=false"] if task == "continue" and "model.bias=true" not in changes else []
    kinds = sorted(changes, key=lambda change: not change.startswith("model.kind"))  # first, as it renews the others
    model = trained(task, *kinds, *extra)
    with pytest.raises(UserError, match=expected):
        huggingface.export(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_runs_folders_and_layouts_are_refused(letters: Path, tmp_path: Path, trained: Any) -> None:
    with pytest.raises(UserError, match=r"model.kind is recurrent: MarianMTModel cannot express it"):
        huggingface.export(regard.load(letters / "run"), tmp_path / "out")
    (tmp_path / "data.tsv").write_text("".join(f"{word} gut\tja\n{word} nie\tnein\n" for word in WORDS))
    labels = regard.train(
        tmp_path / "data.tsv", tmp_path / "labels", task="classify", steps=1, valid=tmp_path / "data.tsv", quiet=True
    )
    with pytest.raises(
        UserError,
        match="has no counterpart in Hugging Face Transformers: expected a run for one of continue, convert, fill",
    ):
        huggingface.export(labels, tmp_path / "out")
    model = trained("continue", "model.bias=false")
    with pytest.raises(UserError, match="exists already: name another folder with out="):
        huggingface.export(model, tmp_path)


def test_features_after_a_tab_are_refused() -> None:
    from regard.exchange.tokenizer import published

    with pytest.raises(UserError, match="features after a tab"):
        published(Tokenizer.train(["go\tV;PST"], "characters"), "convert")


def test_an_export_that_differs_is_noticed(trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained("continue", "model.bias=false")
    kind = huggingface.KINDS["gpt2"]

    def wrong(*given: Any) -> Any:
        state = kind.theirs(*given)
        return state | {"transformer.ln_f.bias": state["transformer.ln_f.bias"] + 1}

    monkeypatch.setitem(huggingface.KINDS, "gpt2", type(kind)(**vars(kind) | {"theirs": wrong}))
    with pytest.raises(UserError, match=r"the exported model differs by .* in its logits; do not use it"):
        huggingface.export(model, tmp_path / "out")
