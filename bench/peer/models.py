"""What the two model files say about themselves, and whether they hold the same model.

A ratio means something only for one model in one width on both sides, so shapes and the quantisation of
the experts are compared before anything runs. Of the GGUF only the header is read; nothing in it is
trusted: a damaged one ends in a ModelError that names the file.
"""
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path


class ModelError(Exception):
    """A model that cannot be used; the text says which, why, and what to do."""


@dataclass(frozen=True)
class Shape:
    """What must agree. `weights` is the container's name for the width of the experts."""

    layers: int
    hidden: int
    experts: int
    experts_per_token: int
    intermediate: int
    vocab: int
    kv_heads: int
    head_dim: int
    weights: str

    def kv_bytes(self, sequences: int, positions: int) -> int:
        """Of keys and values of 16 bits, as llama.cpp keeps them, in blocks of 16 positions."""
        blocks = -(-positions // 16)
        return sequences * blocks * 16 * self.layers * 2 * self.kv_heads * self.head_dim * 2


@dataclass(frozen=True)
class Container:
    path: Path
    shape: Shape
    bytes: int
    files: tuple


@dataclass(frozen=True)
class Gguf:
    path: Path
    shape: Shape
    bytes: int


# GGUF value types: struct formats of the scalar ones.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
# GGUF tensor types of experts -> the container's width of the same size.
WIDTHS = {0: "f32", 1: "bf16", 2: "int4", 8: "int8", 30: "bf16"}
LONGEST_STRING = 1 << 20
MOST_ENTRIES = 1 << 24


class Header:
    """Reads the fields of a GGUF header one after the other."""

    def __init__(self, file, path):
        self.file, self.path = file, path

    def fail(self, why):
        raise ModelError(f"not a GGUF file that can be read: {self.path}: {why}")

    def number(self, code):
        raw = self.file.read(struct.calcsize("<" + code))
        if len(raw) < struct.calcsize("<" + code):
            self.fail("it ends within its header")
        return struct.unpack("<" + code, raw)[0]

    def count(self, most):
        value = self.number("Q")
        if value > most:
            self.fail(f"a length of {value} in its header")
        return value

    def string(self):
        size = self.count(LONGEST_STRING)
        raw = self.file.read(size)
        if len(raw) < size:
            self.fail("it ends within its header")
        return raw.decode("utf-8", "replace")

    def value(self, kind, depth=0):
        if kind == STRING:
            return self.string()
        if kind == ARRAY and depth == 0:
            element = self.number("I")
            return [self.value(element, 1) for _ in range(self.count(MOST_ENTRIES))]
        if kind not in SCALARS:
            self.fail(f"a value of type {kind}")
        return self.number(SCALARS[kind])


def read_gguf(path) -> Gguf:
    path = Path(path)
    try:
        with open(path, "rb") as file:
            header = Header(file, path)
            if file.read(4) != b"GGUF":
                header.fail("it does not begin with GGUF")
            if header.number("I") not in (2, 3):
                header.fail("a version other than 2 and 3")
            tensors, pairs = header.count(MOST_ENTRIES), header.count(MOST_ENTRIES)
            fields = {}
            for _ in range(pairs):
                name = header.string()
                fields[name] = header.value(header.number("I"))
            types = {}
            for _ in range(tensors):
                name = header.string()
                for _ in range(header.number("I")):
                    header.number("Q")
                types[name] = header.number("I")
                header.number("Q")
    except OSError as error:
        raise ModelError(f"cannot read the GGUF: {path}: {error.strerror}") from error
    return Gguf(path, gguf_shape(path, fields, types), os.path.getsize(path))


def gguf_shape(path, fields, types) -> Shape:
    family = fields.get("general.architecture", "")

    def field(name, default=None):
        value = fields.get(f"{family}.{name}", default)
        if not isinstance(value, int) or value <= 0:
            raise ModelError(f"not the GGUF of a mixture of experts: {path}: no {family}.{name}")
        return value

    heads = field("attention.head_count")
    width = types.get("blk.0.ffn_down_exps.weight")
    if width not in WIDTHS:
        raise ModelError(f"experts of a type without an equal in a container: {path}: GGUF type {width}; "
                         "use Q8_0, Q4_0, BF16, F16 or F32")
    return Shape(
        layers=field("block_count"),
        hidden=field("embedding_length"),
        experts=field("expert_count"),
        experts_per_token=field("expert_used_count"),
        intermediate=field("expert_feed_forward_length", fields.get(f"{family}.feed_forward_length")),
        vocab=len(fields.get("tokenizer.ggml.tokens", [])),
        kv_heads=field("attention.head_count_kv", heads),
        head_dim=field("attention.key_length", field("embedding_length") // heads),
        weights=WIDTHS[width],
    )


def read_container(path) -> Container:
    path = Path(path)
    spec_file = path / "model_spec.json"
    try:
        spec = json.loads(spec_file.read_text(encoding="utf-8"))
        files = tuple(sorted(path.glob("*.bin")))
        size = sum(os.path.getsize(file) for file in files)  # of what links lead to: experts on other drives
        shape = Shape(
            layers=len(spec["layers"]),
            hidden=spec["hidden_size"],
            experts=spec["num_experts"],
            experts_per_token=spec["num_experts_per_token"],
            intermediate=spec["intermediate_size"],
            vocab=spec["vocab_size"],
            kv_heads=spec["attention"]["num_kv_heads"],
            head_dim=spec["attention"]["head_dim"],
            weights=spec["weight_dtype"].split("_")[0],  # int8 of int8_g64: groups are each one's own
        )
    except OSError as error:
        raise ModelError(f"cannot read the container: {error.filename}: {error.strerror}; "
                         "make one with colibri convert") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"not the description of a model: {spec_file}: {error}") from error
    return Container(path, shape, size, files)


def check_same(container: Container, gguf: Gguf) -> None:
    """Raises ModelError when the two are not one model in one width."""
    different = [
        f"{name}: {ours} in the container, {getattr(gguf.shape, name)} in the GGUF"
        for name, ours in vars(container.shape).items()
        if ours != getattr(gguf.shape, name)
    ]
    if different:
        raise ModelError("the container and the GGUF are not the same model in the same width: "
                         + "; ".join(different) + "; convert both from one checkpoint")
