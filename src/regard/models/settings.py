"""The settings of each kind of model, and the named sizes."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from regard.config import Section, Tables

PositionKind = Literal[
    "sinusoidal", "learned", "recurrent", "floater", "rotary", "alibi", "t5", "shaw", "transformer-xl", "none"
]
Activation = Literal["relu", "gelu", "gelu_tanh", "swish"]
Cell = Annotated[
    Literal["lstm", "gru", "rnn", "forgetting"],
    Field(description="lstm, gru, rnn (tanh), or forgetting: h ← σ(θ_λᵀx̄) ⊙ h + θ_xᵀx̄"),
]
ScoreKind = Literal["none", "mean", "dot", "scaled_dot", "bilinear", "additive", "mlp", "location"]
NormaliserKind = Annotated[
    Literal["softmax", "sigmoid", "relu", "exponential", "none", "mean"],
    Field(description="from scores to weights: softmax, sigmoid, relu, exponential, none or mean"),
]
Width = Annotated[int, Field(ge=2, le=65536, description="width of the vectors between layers")]
Hidden = Annotated[int, Field(ge=1, le=1_000_000, description="inner width of the feed-forward parts")]
Heads = Annotated[int, Field(ge=1, le=4096, description="attention heads; they divide the width")]
NgramLength = Annotated[
    int, Field(ge=1, le=16, description="longest run of source tokens with a vector; 1: only tokens")
]
Buckets = Annotated[int, Field(ge=1, le=2**30, description="rows of the table of n-grams, which share them by hashing")]
LanguageWeight = Annotated[
    float, Field(ge=0, le=100, description="weight of the auxiliary language-model loss; 0: without it")
]
Reach = Annotated[int, Field(ge=0, le=10**6)]


def _reach(given: Any) -> Any:
    """Return `64,32` as two numbers, as --set writes them."""
    return [int(part) for part in given.split(",")] if isinstance(given, str) and given.count(",") == 1 else given


Window = Annotated[
    tuple[Reach, Reach] | None,
    BeforeValidator(_reach),
    Field(description="vectors that attention looks back and ahead, such as 64,64: linear cost; empty: all"),
]
AttentionKind = Literal["full", "local", "linear", "performer", "linformer", "bigbird"]
DropoutRate = Annotated[float, Field(ge=0, lt=1, description="dropout rate")]

GATES = {"lstm": 4, "gru": 3, "rnn": 1, "forgetting": 1}  # pairs of matrices of a cell; forgetting has two from x alone


WITHIN = ("rotary", "alibi", "t5", "shaw", "transformer-xl")  # position kinds that act inside every self-attention


def fault_of(kind: str, position: str, *, back: bool) -> str | None:
    """Return why this attention kind does not go with these positions or this direction; None if it does."""
    if kind == "linformer" and back:
        return (
            "model.attention=linformer cannot look back only: each of its keys mixes all positions, those to come too; "
            "try linear, performer, local or bigbird"
        )
    if kind not in ("linear", "performer", "linformer") or position not in WITHIN:
        return None
    if position == "rotary":
        if kind == "performer":
            return None
        return (
            f"model.attention={kind} does not go with model.position=rotary: its scores are no products of the rotated "
            "vectors; try sinusoidal, learned or none, or model.attention=performer"
        )
    return (
        f"model.attention={kind} does not go with model.position={position}: it never computes the single scores that "
        "this would be added to; try sinusoidal, learned or none, or model.attention=local or bigbird"
    )


class Kind(Section):
    """A kind of model."""

    sizes: ClassVar[dict[str, dict[str, int]]] = {}  # named ones
    drops_last: ClassVar[bool] = True  # features are dropped before the output layer

    kind: str
    width: int

    @abstractmethod
    def parameters(self) -> int:
        """Return about how many weights there are, without tables."""


class Layers(Kind):
    """A stack of Transformer layers."""

    products: ClassVar[int] = 4  # matrices of width × width in the attention of a layer
    feeds: ClassVar[int] = 2  # matrices of width × hidden

    layers: int = Field(4, ge=1, le=1000, description="layers, on each side where there are two")
    width: Width = 256
    hidden: Hidden = 1024
    heads: Heads = 4
    dropout: DropoutRate = 0.1
    norm: Literal["pre", "post", "deep"] = Field(
        "pre", description="layer normalisation before or after each part; deep: DeepNorm, for many layers"
    )

    def parameters(self) -> int:
        return self.layers * (self.products * self.width**2 + self.feeds * self.width * self.hidden)


class AttentionLayers(Layers):
    """A stack of Transformer layers with any kind of self-attention."""

    back: ClassVar[bool] = False  # looks back only

    attention: AttentionKind = Field(
        "full", description="full, local, linear, performer, linformer or bigbird: see docs/efficient.md"
    )
    reach: int = Field(128, ge=1, le=10**6, description="local: positions that each looks back, and ahead if it may")
    features: int = Field(128, ge=1, le=65536, description="performer: random features of each head")
    redraw: int = Field(0, ge=0, le=10**9, description="performer: steps between two draws of them; 0: never")
    columns: int = Field(256, ge=1, le=65536, description="linformer: columns that keys and values are projected to")
    shared: bool = Field(True, description="linformer: keys and values have one projection")
    block: int = Field(64, ge=1, le=65536, description="bigbird: positions in a block")
    near: int = Field(3, ge=1, le=1001, description="bigbird: blocks of the window, an odd number")
    landmarks: int = Field(2, ge=0, le=1000, description="bigbird: global blocks, half of them at the end")
    random: int = Field(3, ge=0, le=1000, description="bigbird: random blocks of each block")
    extra: int = Field(0, ge=0, le=1000, description="bigbird: blocks of learned global tokens instead (ETC)")

    @model_validator(mode="after")
    def _attention_fits(self) -> Self:
        fault = fault_of(self.attention, getattr(self, "position", "none"), back=self.back)
        fault = fault or self._other_parts()
        if self.attention == "bigbird" and self.near % 2 == 0:
            fault = f"model.near: expected an odd number of blocks, found {self.near}"
        if self.attention == "bigbird" and self.back and self.extra:
            fault = (
                "model.extra: global tokens look at all positions, and this model looks back only; set model.extra=0"
            )
        if fault:
            raise PydanticCustomError("attention", "{fault}", {"fault": fault})
        return self

    def _other_parts(self) -> str | None:
        """Return why the kind of attention does not go with another part that was chosen."""
        own: dict[str, Any] = {}  # what the kind has in place of other parts
        if self.attention in ("linear", "performer", "linformer"):
            own = {"score": "scaled_dot", "normaliser": "softmax", "window": None}
        if self.attention == "linformer":
            own |= {"heads_see": "all", "key_width": None, "value_width": None, "position_way": "added"}
        if self.attention == "local":
            own["window"] = None
        for name, plain in own.items():
            found = getattr(self, name, plain)
            if found != plain:
                return (
                    f"model.attention={self.attention} does not go with model.{name}={found}: it has its own in that "
                    f"place; leave model.{name} as it is, or set model.attention=full"
                )
        return None


class Equation(AttentionLayers):
    """A stack whose attentions have parts to choose. Where these have no fused kernel, the log says why."""

    score: Literal["dot", "scaled_dot", "bilinear", "additive", "mlp"] = Field(
        "scaled_dot", description="score of a key for a query: dot, scaled_dot, bilinear, additive or mlp"
    )
    normaliser: NormaliserKind = "softmax"
    heads_see: Literal["all", "piece"] = Field(
        "all", description="each head sees all of a vector, or only its piece of it"
    )
    key_width: int | None = Field(
        None, ge=1, le=65536, description="width of a head's queries and keys; empty: width ÷ heads"
    )
    value_width: int | None = Field(None, ge=1, le=65536, description="width of a head's values; empty: width ÷ heads")


class Placed(Equation):
    """A stack into which positions come by choice."""

    position: PositionKind = Field("sinusoidal", description="position encoding")
    position_way: Literal["added", "concatenated", "heads", "queries_keys"] = Field(
        "added",
        description="a table is added or concatenated, or added in the heads to queries, keys and values (heads), or "
        "to queries and keys alone (queries_keys)",
    )
    position_layers: Literal["first", "every"] = Field(
        "first", description="a table comes in at the first layer, or at every layer; other kinds act in every layer"
    )

    @model_validator(mode="after")
    def _tables_come_in(self) -> Self:
        if self.position_way == "added" and self.position_layers == "first":
            return self
        if self.position not in ("sinusoidal", "learned", "recurrent", "floater"):
            raise PydanticCustomError(
                "position",
                "position_way and position_layers say how a table comes in, found position={position}: "
                "set model.position to sinusoidal, learned, recurrent or floater",
                {"position": self.position},
            )
        return self


# ---- encoder and decoder -------------------------------------------------------------------------------------------


class TransformerPair(Placed, Tables):
    """An encoder and a decoder of Transformer layers."""

    products: ClassVar[int] = 12
    feeds: ClassVar[int] = 4
    # `model.size` stands for layers of each side, width, hidden width of the feed-forward parts, and heads.
    sizes: ClassVar[dict[str, dict[str, int]]] = {
        "tiny": {"layers": 4, "width": 128, "hidden": 256, "heads": 4},
        "small": {"layers": 3, "width": 256, "hidden": 512, "heads": 4},
        "base": {"layers": 6, "width": 512, "hidden": 2048, "heads": 8},
        "big": {"layers": 6, "width": 1024, "hidden": 4096, "heads": 16},
    }

    kind: Literal["transformer"] = Field("transformer", description="transformer, recurrent or convolution")
    layers: int = Field(3, ge=1, le=1000, description="layers of the encoder, and of the decoder")
    hidden: Hidden = 512
    position: PositionKind = Field("sinusoidal", description="position encoding")
    tied: bool = Field(True, description="the output layer is the target's embedding table")
    activation: Activation = Field("relu", description="activation of the feed-forward parts")
    scale: bool = Field(True, description="embeddings are multiplied by √width")
    closed: bool = Field(False, description="the encoder reads the end after each source")
    ngrams: NgramLength = 1
    buckets: Buckets = 2**17

    def rows(self) -> int:
        return self.buckets if self.ngrams > 1 else 0


def _refuse_odd(width: int) -> None:
    """Refuse a width that two directions cannot share."""
    if width % 2:
        raise PydanticCustomError(
            "width",
            "width={width} cannot be shared by two directions, expected an even width: set model.width={near}, or "
            "model.both_ways=false",
            {"width": width, "near": width + 1},
        )


class RecurrentPair(Kind, Tables):
    """An encoder and a decoder that are RNNs."""

    kind: Literal["recurrent"] = Field("recurrent", description="transformer, recurrent or convolution")
    cell: Cell = "lstm"
    layers: int = Field(1, ge=1, le=100, description="layers of the encoder, and of the decoder")
    width: int = Field(256, ge=2, le=65536, description="width of embeddings and states")
    attention: ScoreKind = Field(
        "additive", description="none, mean, or a score: dot, scaled_dot, bilinear, additive, mlp, location"
    )
    normaliser: NormaliserKind = "softmax"
    heads: int = Field(0, ge=0, le=4096, description="0: states are keys and values; 1: projected; more: multi-head")
    order: Literal["after", "before"] = Field(
        "after", description="the decoder looks after each step (Luong), or before it (Bahdanau)"
    )
    feeding: bool | None = Field(
        None, description="the last output is fed back into the next step; empty: unless order is before"
    )
    both_ways: bool = Field(True, description="the encoder reads forward and backward, or forward only")
    dropout: DropoutRate = 0.1
    tied: bool = Field(True, description="the output layer is the target's embedding table")
    ngrams: NgramLength = 1
    buckets: Buckets = 2**17

    @model_validator(mode="after")
    def _heads_have_a_score(self) -> Self:
        if self.both_ways:
            _refuse_odd(self.width)
        if self.heads and self.attention in ("none", "mean", "location"):
            raise PydanticCustomError(
                "heads",
                "heads={heads} needs a score to look with, found attention={attention}: "
                "set model.heads=0, or a score such as model.attention=additive",
                {"heads": self.heads, "attention": self.attention},
            )
        if self.normaliser != "softmax" and self.attention in ("none", "mean"):
            raise PydanticCustomError(
                "normaliser",
                "normaliser={normaliser} needs scores to normalise, found attention={attention}: "
                "set model.normaliser=softmax, or a score such as model.attention=additive",
                {"normaliser": self.normaliser, "attention": self.attention},
            )
        if self.order == "before" and self.attention == "none":
            raise PydanticCustomError(
                "order",
                "order=before looks at the encoder's states before each step, found attention=none: "
                "set model.order=after, or a score such as model.attention=additive",
            )
        return self

    def parameters(self) -> int:
        gates = GATES[self.cell]
        return self.width**2 * ((8 * self.layers - 1) * gates + 12)

    def rows(self) -> int:
        return self.buckets if self.ngrams > 1 else 0


class Convolutions(Kind):
    """A stack of convolutions."""

    products: ClassVar[int] = 2  # matrices of width × width for each element of a window
    glimpses: ClassVar[int] = 0  # … and for a glimpse

    layers: int = Field(4, ge=1, le=1000, description="layers, on each side where there are two")
    width: Width = 256
    kernel: int = Field(3, ge=1, le=999, description="elements of a window; odd, so that it has a middle")
    dropout: DropoutRate = 0.1
    position: Literal["sinusoidal", "learned", "recurrent", "floater", "none"] = Field(
        "learned", description="the table of positions that is added to the vectors"
    )

    @model_validator(mode="after")
    def _windows_have_a_middle(self) -> Self:
        if self.kernel % 2 == 0:
            raise PydanticCustomError(
                "kernel",
                "kernel is an odd number of elements, found {kernel}: set model.kernel=3",
                {"kernel": self.kernel},
            )
        return self

    def parameters(self) -> int:
        return self.layers * (self.products * self.kernel + self.glimpses) * self.width**2


class ConvolutionPair(Convolutions, Tables):
    """ConvS2S: an encoder and a decoder of convolutions (Gehring et al. 2017)."""

    products: ClassVar[int] = 4
    glimpses: ClassVar[int] = 1

    kind: Literal["convolution"] = Field("convolution", description="transformer, recurrent or convolution")
    tied: bool = Field(True, description="the output layer is the target's embedding table")
    ngrams: NgramLength = 1
    buckets: Buckets = 2**17

    def rows(self) -> int:
        return self.buckets if self.ngrams > 1 else 0


# ---- encoders alone ------------------------------------------------------------------------------------------------


class RecurrentEncoderKind(Kind):
    """An RNN that reads both ways, or forward only."""

    kind: Literal["recurrent"] = Field("recurrent", description="which network")
    cell: Cell = "lstm"
    layers: int = Field(1, ge=1, le=100, description="layers, each read both ways")
    width: int = Field(256, ge=2, le=65536, description="width of embeddings and states, even: half for each direction")
    heads: int = Field(0, ge=0, le=4096, description="of self-attention over the states; 0: none")
    dropout: DropoutRate = 0.4
    both_ways: bool = Field(True, description="reads forward and backward, or forward only")

    @model_validator(mode="after")
    def _directions_share_the_width(self) -> Self:
        if self.both_ways:
            _refuse_odd(self.width)
        return self

    def parameters(self) -> int:
        return self.layers * GATES[self.cell] * 2 * self.width**2 + (4 * self.width**2 if self.heads else 0)


class RecurrentLabelKind(RecurrentEncoderKind):
    """An RNN whose states are labelled together. One that reads forward may predict each next element beside."""

    language: LanguageWeight = 0.0

    @model_validator(mode="after")
    def _language_looks_back(self) -> Self:
        if self.language and (self.both_ways or self.heads):
            raise PydanticCustomError(
                "language",
                "language={language} predicts the next element, which a network that reads both ways has seen: "
                "set model.both_ways=false and model.heads=0, or model.language=0",
                {"language": self.language},
            )
        return self


class TransformerEncoderKind(Placed):
    """A Transformer encoder."""

    kind: Literal["transformer"] = Field("transformer", description="which network")
    layers: int = Field(2, ge=1, le=1000, description="layers of the encoder")
    width: Width = 128
    hidden: Hidden = 256
    dropout: DropoutRate = 0.3
    position: PositionKind = Field("sinusoidal", description="position encoding")
    window: Window = None


class ConformerKind(Placed):
    """A Conformer: attention and convolution (Gulati et al. 2020)."""

    products: ClassVar[int] = 7
    feeds: ClassVar[int] = 4

    kind: Literal["conformer"] = Field("conformer", description="which network")
    layers: int = Field(3, ge=1, le=1000, description="layers of the encoder")
    width: Width = 96
    hidden: Hidden = 192
    norm: Literal["pre"] = Field("pre", description="layer normalisation before each part")
    kernel: int = Field(15, ge=1, le=10_001, description="vectors that a convolution sees, odd")
    position: PositionKind = Field("rotary", description="position encoding")
    window: Window = None


class PyramidKind(Kind):
    """A pyramidal BiLSTM: each layer but the first halves the number of vectors (Chan et al. 2016)."""

    kind: Literal["pyramid"] = Field("pyramid", description="which network")
    cell: Literal["lstm", "gru"] = Field("lstm", description="lstm or gru")
    halvings: int = Field(2, ge=0, le=12, description="layers above the first, each over pairs of states")
    width: int = Field(256, ge=2, le=65536, description="width of states, even: half for each direction")
    dropout: DropoutRate = 0.2

    def parameters(self) -> int:
        return (4 if self.cell == "lstm" else 3) * self.width**2 * (2 + 3 * self.halvings)


class WindowKind(Kind):
    """A fully connected network over each vector and its neighbours: the baseline of self-attention."""

    kind: Literal["window"] = Field("window", description="which network: neighbours alone")
    width: int = Field(128, ge=2, le=65536, description="width of vectors and features")
    hidden: Hidden = 256
    radius: int = Field(5, ge=0, le=10_000, description="neighbours on each side")
    dropout: DropoutRate = 0.3

    def parameters(self) -> int:
        return self.width * self.hidden * (2 * self.radius + 2)


class BertKind(Placed):
    """BERT: an encoder that reads START, the tokens, END."""

    kind: Literal["bert"] = Field("bert", description="which network")
    position: PositionKind = Field("learned", description="position encoding")


class GptEncoderKind(Placed):
    """A decoder alone: START, the tokens, END, whose state has read all of them (Radford et al. 2018, 3.3)."""

    back: ClassVar[bool] = True

    kind: Literal["gpt"] = Field("gpt", description="which network")
    width: Width = 128
    hidden: Hidden = 512
    position: PositionKind = Field("learned", description="position encoding")
    activation: Activation = Field("gelu", description="activation of the feed-forward parts; GPT-2 has gelu_tanh")
    language: LanguageWeight = 0.0


class ConvolutionEncoderKind(Convolutions):
    """Convolutions that read for labels: layers · (kernel − 1) + 1 elements are seen at each."""

    kind: Literal["convolution"] = Field("convolution", description="which network")
    width: Width = 128
    dropout: DropoutRate = 0.3


class DeepSetsKind(Kind):
    """DeepSets: each element alone."""

    kind: Literal["deepsets"] = Field("deepsets", description="which network: each token alone")
    width: int = Field(128, ge=2, le=65536, description="width of embeddings and features")
    dropout: DropoutRate = 0.5

    def parameters(self) -> int:
        return self.width**2


# ---- networks along edges --------------------------------------------------------------------------------------------


class GraphLayers(Kind):
    """Layers in which each node looks along its edges."""

    drops_last: ClassVar[bool] = False  # the layers drop their own, before they look along the edges

    layers: int = Field(2, ge=1, le=100, description="layers: as many hops away a node sees")
    width: int = Field(64, ge=2, le=65536, description="width of the features of a node")
    dropout: DropoutRate = 0.5
    skip: bool = Field(False, description="each layer is added to what went into it")
    norm: bool = Field(False, description="layer normalisation after each layer")
    edge_width: int = Field(0, ge=0, le=4096, description="width of what the features of an edge say; 0: unused")

    def parameters(self) -> int:
        return 2 * self.layers * self.width**2


class GcnKind(GraphLayers):
    """GCN (Kipf and Welling 2017)."""

    kind: Literal["gcn"] = Field("gcn", description="which network: weights along edges from degrees alone")


class GraphConvolutionKind(GraphLayers):
    """σ(θ₁ᵀ x_j + Σ θ₂ᵀ x_i) over the neighbours i of j."""

    kind: Literal["graph"] = Field("graph", description="which network: a node and the sum of its neighbours")


class GatKind(GraphLayers):
    """GAT (Veličković et al. 2018)."""

    kind: Literal["gat"] = Field("gat", description="which network: attention along edges")
    heads: int = Field(8, ge=1, le=4096, description="attention heads; they divide the width; the last layer has one")
    attention_dropout: DropoutRate = Field(0.0, description="share of edges dropped in training")


class Gatv2Kind(GatKind):
    """GATv2 (Brody et al. 2022)."""

    kind: Literal["gatv2"] = Field("gatv2", description="which network: attention along edges, GATv2")  # type: ignore[assignment]


AlongEdges = GcnKind | GraphConvolutionKind | GatKind | Gatv2Kind


class OwnEncoder(Section):
    """The encoder that comes with the model."""

    kind: Literal["own"] = Field("own", description="what reads the input: own, or a network that reads for labels")


# ---- language models -----------------------------------------------------------------------------------------------


class GptKind(Placed):
    """GPT."""

    back: ClassVar[bool] = True

    kind: Literal["gpt"] = Field("gpt", description="gpt, recurrent or transformer-xl")
    width: Width = 192
    hidden: Hidden = 768
    heads: Heads = 6
    position: PositionKind = Field("learned", description="position encoding")
    tied: bool = Field(True, description="the output layer is the embedding table")
    bias: bool = Field(True, description="the output layer has a bias; GPT-2's has none")
    activation: Activation = Field("gelu", description="activation of the feed-forward parts; GPT-2 has gelu_tanh")


class RecurrentLanguageKind(Kind):
    """An RNN that reads forward."""

    kind: Literal["recurrent"] = Field("recurrent", description="gpt, recurrent or transformer-xl")
    cell: Cell = "lstm"
    layers: int = Field(1, ge=1, le=100, description="layers")
    width: int = Field(256, ge=2, le=65536, description="width of embeddings and states")
    dropout: DropoutRate = 0.1
    tied: bool = Field(True, description="the output layer is the embedding table")

    def parameters(self) -> int:
        return self.layers * GATES[self.cell] * 2 * self.width**2


class TransformerXLKind(Layers):
    """Transformer-XL."""

    products: ClassVar[int] = 5

    kind: Literal["transformer-xl"] = Field("transformer-xl", description="gpt, recurrent or transformer-xl")
    width: Width = 192
    hidden: Hidden = 768
    heads: Heads = 6
    segment: int = Field(64, ge=1, le=10**6, description="tokens read at once; output.context holds several times that")
    memory: int = Field(
        64, ge=1, le=10**6, description="positions that each layer looks back, into earlier segments too"
    )
    tied: bool = Field(True, description="the output layer is the embedding table")


class XlnetKind(Layers):
    """XLNet."""

    products: ClassVar[int] = 5

    kind: Literal["xlnet"] = Field("xlnet", description="which network")
