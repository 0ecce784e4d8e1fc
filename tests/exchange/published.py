"""Small published models, made at random with transformers, and their tokenizers."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.models.same import shake

TEXTS = [
    "The cat sat on the mat.", "A dog ran after the cat, and the cat ran home.", "Where is the dog now?",
    "The mat is where the dog sat.", "Café and naïve words: it's 7 o'clock!", "Nobody knows what the cat knows.",
] * 3  # fmt: skip


def wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    names = ["[UNK]", "[SEP]", "[MASK]", "[PAD]", "[CLS]"]  # in an order that is not ours
    tokenizer.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=80, special_tokens=names))
    ids = {name: tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]")}
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    return tokenizer


def bytelevel() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"])
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    names = ["</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=70, special_tokens=names, unk_token="<unk>")
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens(["<pad>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    return tokenizer


def save(model: Any, tokenizer: Tokenizer, folder: Path, **named: str) -> Any:
    """The folder that `save_pretrained` writes; returns the model."""
    from transformers import PreTrainedTokenizerFast

    fixed = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}  # sinusoids
    model = shake(model.eval())
    model.load_state_dict(fixed, strict=False)
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)
    return model


def bert(folder: Path, **more: Any) -> Any:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    tokenizer = wordpiece()
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size() + 3, hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=40, max_position_embeddings=40, pad_token_id=3, **more,
    )  # fmt: skip
    named = {"unk_token": "[UNK]", "sep_token": "[SEP]", "mask_token": "[MASK]", "pad_token": "[PAD]"}
    return save(BertForMaskedLM(config), tokenizer, folder, cls_token="[CLS]", **named)


def gpt2(folder: Path, **more: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    tokenizer = bytelevel()
    end = tokenizer.token_to_id("<|endoftext|>")
    config = GPT2Config(
        vocab_size=tokenizer.get_vocab_size(), n_positions=48, n_embd=24, n_layer=2, n_head=4, bos_token_id=end,
        eos_token_id=end, **more,
    )  # fmt: skip
    named = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    return save(GPT2LMHeadModel(config), tokenizer, folder, **named)


def marian(folder: Path, pegasus: bool = False, **more: Any) -> Any:
    from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

    torch.manual_seed(0)
    tokenizer = unigram()
    padding = tokenizer.token_to_id("<pad>")
    sizes = {
        "vocab_size": tokenizer.get_vocab_size(), "d_model": 24, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40,
        "max_position_embeddings": 64, "pad_token_id": padding, "decoder_start_token_id": padding, "eos_token_id": 0,
        "forced_eos_token_id": 0, "activation_function": "swish", "scale_embedding": True,
    } | more  # fmt: skip
    model = PegasusForConditionalGeneration(PegasusConfig(**sizes)) if pegasus else MarianMTModel(MarianConfig(**sizes))
    model.final_logits_bias.normal_()
    model.final_logits_bias[:, 0] = -6.0  # it does not end at once
    return save(model, tokenizer, folder, eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
