"""Stored rows come back, and damage is noticed."""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import store as module
from regard.data.store import Field, Store, id_dtype, write_store
from regard.errors import UserError

ROWS = [([1, 2, 3], [4]), ([], [5, 6]), ([7], [])]
PAIR = (Field("source", "<u2"), Field("target", "<u2"))


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.lists(st.lists(st.integers(0, 99_999), max_size=8), min_size=3, max_size=3), max_size=12),
    buffer=st.sampled_from([1, 3, 1 << 18]),
    arrays=st.booleans(),
)
def test_round_trip(rows: list[list[list[int]]], buffer: int, arrays: bool) -> None:
    """Lists of ids, or arrays of them in every other row."""
    given = [[np.array(ids) for ids in row] if arrays and i % 2 else row for i, row in enumerate(rows)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BUFFER", buffer)
        written = write_store(folder, iter(given), [Field(name, id_dtype(100_000)) for name in "abc"])
        opened = Store.open(folder)
        assert len(opened) == len(rows)
        assert [[field.tolist() for field in opened[index]] for index in range(len(rows))] == rows
        assert opened.lengths.tolist() == [[len(field) for field in row] for row in rows]
        assert (opened.lengths.dtype, opened.lengths.shape) == (np.int32, (len(rows), 3))
        assert opened.checksum == written.checksum


@pytest.mark.parametrize("buffer", [1, 50, 1 << 18])
def test_fields_of_any_dtype_and_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffer: int) -> None:
    """Pixels, frames, boxes, samples and a label, as a picture with its sound might have them."""
    monkeypatch.setattr(module, "BUFFER", buffer)
    fields = (
        Field("pixels", "|u1", (4, 5, 3), 20),
        Field("frames", "<f2", (8,), 0.25),
        Field("boxes", "<f4", (4,), 0),
        Field("samples", "<f4"),
        Field("label", "<u4", tokens=0),
    )
    generator = np.random.default_rng(0)

    def row(frames: int, boxes: int) -> tuple[Any, ...]:
        return (
            generator.integers(0, 256, (1, 4, 5, 3)),
            generator.normal(size=(frames, 8)).astype(np.float16),
            generator.normal(size=(boxes, 4)).tolist(),
            generator.normal(size=frames),
            [int(generator.integers(1 << 32))],
        )

    rows = [row(*counts) for counts in ((3, 1), (0, 2), (7, 0), (1, 1))]
    write_store(tmp_path, rows, fields)
    store = Store.open(tmp_path)
    assert store.fields == fields
    assert store.lengths.tolist() == [[1, 3, 1, 3, 1], [1, 0, 2, 0, 1], [1, 7, 0, 7, 1], [1, 1, 1, 1, 1]]
    for given_row, index in zip(rows, range(4), strict=True):
        for field, values, expected in zip(fields, store[index], given_row, strict=True):
            assert values.shape == (len(expected), *field.shape)
            assert values.dtype == np.dtype(field.dtype)
            assert isinstance(values, np.memmap) or not len(values)
            assert values.tolist() == np.array(expected).reshape(values.shape).astype(field.dtype).tolist()


def test_ids_take_two_or_four_bytes(tmp_path: Path) -> None:
    for size, dtype in ((65_536, np.uint16), (65_537, np.uint32)):
        store = write_store(tmp_path / str(size), [([size - 1],)], [Field("source", id_dtype(size))])
        assert store[0][0].dtype == dtype
        assert store[0][0].tolist() == [size - 1]


def test_the_checksum_depends_on_content_alone(tmp_path: Path) -> None:
    first = write_store(tmp_path / "a", ROWS, PAIR).checksum
    assert write_store(tmp_path / "b", ROWS, PAIR).checksum == first
    assert write_store(tmp_path / "b", ROWS[:2], PAIR).checksum != first
    assert write_store(tmp_path / "b", [([1, 2], [3, 4]), *ROWS[1:]], PAIR).checksum != first
    # Another cost gives other batches.
    assert write_store(tmp_path / "b", ROWS, (PAIR[0], PAIR[1]._replace(tokens=2))).checksum != first


def test_rows_are_taken_one_by_one(tmp_path: Path) -> None:
    store = write_store(tmp_path, ROWS, PAIR)
    assert store[-1][0].tolist() == [7]
    assert [len(store[index]) for index in range(3)] == [2, 2, 2]
    with pytest.raises(IndexError):
        store[3]


IDS, BOXES, FRAMES = Field("ids", "<u2"), Field("boxes", "<u2", (4,)), Field("frames", "<f2", (2,))


@pytest.mark.parametrize(
    ("field", "values", "fault"),
    [
        (IDS, [1, 65_536, 2], "ids: row 2: expected whole numbers from 0 to 65535, found 65536"),
        (IDS, np.array([70_000]), "ids: row 2: expected whole numbers from 0 to 65535, found 70000"),
        (IDS, [3, -1], "ids: row 2: expected whole numbers from 0 to 65535, found [3, -1]"),
        (IDS, [0.5], "ids: row 2: expected whole numbers from 0 to 65535, found [0.5]"),
        (IDS, np.array([0.5]), "ids: row 2: expected whole numbers from 0 to 65535, found float64"),
        (IDS, [[1, 2]], "ids: row 2: expected whole numbers from 0 to 65535, found [[1, 2]]"),
        (IDS, np.ones((2, 2), int), "ids: row 2: expected elements of the shape (), found (2,)"),
        (IDS, 5, "ids: row 2: expected elements of the shape (), found a single number"),
        (BOXES, [[1, 2, 3]], "boxes: row 2: expected elements of the shape (4,), found (3,)"),
        (BOXES, [[1, 2, 3, 4], [1]], "boxes: row 2: expected elements of the shape (4,), found elements of different"),
        (BOXES, [1, 2, 3, 4], "boxes: row 2: expected elements of the shape (4,), found ()"),
        (BOXES, [[1, 2, 3, -4]], "boxes: row 2: expected whole numbers from 0 to 65535, found -4"),
        (FRAMES, [[1.0, float("nan")]], "frames: row 2: expected finite numbers of 2 bytes, found nan"),
        (FRAMES, [[1.0, 1e6]], "frames: row 2: expected finite numbers of 2 bytes, found 1000000.0"),
        (FRAMES, [["a", "b"]], "frames: row 2: expected finite numbers of 2 bytes, found <U1"),
    ],
)
def test_what_does_not_fit_a_field_is_refused_and_leaves_no_index(
    tmp_path: Path, field: Field, values: Any, fault: str
) -> None:
    sound: Any = np.zeros((1, *field.shape), field.dtype)
    with pytest.raises(UserError, match=re.escape(fault)):
        write_store(tmp_path, [(sound,), (sound,), (values,), (sound,)], [field])
    with pytest.raises(UserError, match="no complete store"):
        Store.open(tmp_path)


@pytest.mark.parametrize("row", [([1], [2], [3]), ([1],)])
def test_rows_of_another_width_are_refused(tmp_path: Path, row: tuple[list[int], ...]) -> None:
    with pytest.raises(UserError, match=f"row 3: expected 2 fields, found {len(row)}"):
        write_store(tmp_path, [*ROWS, row], PAIR)
    with pytest.raises(UserError, match="no complete store"):
        Store.open(tmp_path)


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (IDS, IDS),
        (Field("../ids", "<u2"),),
        (Field("ids", "<u8"),),
        (Field("ids", "object"),),
        (Field("ids", "<u2", (0,)),),
        (Field("ids", "<u2", tokens=-1),),
        (Field("ids", "<u2", tokens=float("inf")),),
    ],
)
def test_impossible_fields_are_refused(tmp_path: Path, fields: tuple[Field, ...]) -> None:
    with pytest.raises(ValueError, match=r"is not a field|at least one field"):
        write_store(tmp_path, [], fields)


def test_damage_is_noticed(tmp_path: Path) -> None:
    """Each file cut short, lengthened, removed, and with one flipped bit at any place."""
    write_store(tmp_path, ROWS, PAIR)
    for path in sorted(tmp_path.iterdir()):
        sound = path.read_bytes()
        flipped = [
            bytes(byte ^ (1 if place == index else 0) for place, byte in enumerate(sound))
            for index in range(len(sound))
        ]
        for damaged in [sound[:-1], b"", *([] if path.suffix == ".json" else [sound + b"\0", *flipped])]:
            path.write_bytes(damaged)
            if path.suffix == ".json" and damaged == sound[:-1]:
                continue  # only its last line break is missing
            with pytest.raises(UserError):
                Store.open(tmp_path)
        path.unlink()
        with pytest.raises(UserError):
            Store.open(tmp_path)
        path.write_bytes(sound)
    Store.open(tmp_path)


ENTRY = {"dtype": "<u2", "shape": [], "tokens": 1, "count": 4, "sha256": {"values": "", "offsets": ""}}


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1},
        {"rows": -1},
        {"rows": "3"},
        {"rows": 2},
        {"fields": {}},
        {"fields": []},
        {"fields": {"../source": ENTRY}},
        {"fields": {"source": {"count": 4}}},
        *({"fields": {"source": ENTRY | changed}} for changed in (
            {"dtype": "object"}, {"dtype": "<u4"}, {"shape": [0]}, {"shape": 3}, {"shape": [2.0]}, {"shape": [2]},
            {"tokens": -1}, {"tokens": "1"}, {"count": -4}, {"count": 5}, {"sha256": {}},
        )),
    ],
)  # fmt: skip
def test_a_changed_index_is_noticed(tmp_path: Path, change: dict[str, object]) -> None:
    write_store(tmp_path, ROWS, PAIR)
    index = tmp_path / "index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | change))
    with pytest.raises(UserError, match=r"index\.json|bytes"):
        Store.open(tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_store(tmp_path / "file" / "store", ROWS, PAIR)
