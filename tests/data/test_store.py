"""What is stored comes back, and damage is noticed."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import store as module
from regard.data.store import Store, write_store
from regard.errors import UserError

ROWS = [([1, 2, 3], [4]), ([], [5, 6]), ([7], [])]


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.lists(st.lists(st.integers(0, 99_999), max_size=8), min_size=3, max_size=3), max_size=12),
    buffer=st.sampled_from([1, 3, 1 << 18]),
)
def test_round_trip(rows: list[list[list[int]]], buffer: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BUFFER", buffer)
        written = write_store(folder, iter(rows), ("a", "b", "c"), vocabulary=100_000)
        opened = Store.open(folder)
        assert len(opened) == len(rows)
        assert [[field.tolist() for field in opened[index]] for index in range(len(rows))] == rows
        assert opened.lengths.tolist() == [[len(field) for field in row] for row in rows]
        assert (opened.lengths.dtype, opened.lengths.shape) == (np.int32, (len(rows), 3))
        assert opened.checksum == written.checksum


def test_ids_take_two_or_four_bytes(tmp_path: Path) -> None:
    assert write_store(tmp_path / "a", [([65_535], [0])], vocabulary=65_536)[0][0].dtype == np.uint16
    assert write_store(tmp_path / "b", [([65_536], [0])], vocabulary=65_537)[0][0].dtype == np.uint32


def test_the_checksum_depends_on_content_alone(tmp_path: Path) -> None:
    first = write_store(tmp_path / "a", ROWS, vocabulary=10).checksum
    assert write_store(tmp_path / "b", ROWS, vocabulary=10).checksum == first
    assert write_store(tmp_path / "b", ROWS[:2], vocabulary=10).checksum != first
    assert write_store(tmp_path / "b", [([1, 2], [3, 4]), *ROWS[1:]], vocabulary=10).checksum != first


def test_rows_are_taken_one_by_one(tmp_path: Path) -> None:
    store = write_store(tmp_path, ROWS, vocabulary=10)
    assert store[-1][0].tolist() == [7]
    assert [len(store[index]) for index in range(3)] == [2, 2, 2]
    with pytest.raises(IndexError):
        store[3]


@pytest.mark.parametrize("row", [([1, 10], [2]), ([-1], [2]), ([1], [2], [3]), ([1],)])
def test_impossible_rows_are_refused_and_leave_no_index(tmp_path: Path, row: tuple[list[int], ...]) -> None:
    with pytest.raises((ValueError, OverflowError)):
        write_store(tmp_path, [*ROWS, row], vocabulary=10)
    with pytest.raises(UserError, match="no complete token store"):
        Store.open(tmp_path)


def test_damage_is_noticed(tmp_path: Path) -> None:
    """Each file cut short, lengthened, removed, and with one flipped bit at any place."""
    write_store(tmp_path, ROWS, vocabulary=10)
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


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"rows": -1},
        {"rows": "3"},
        {"rows": 2},
        {"dtype": "object"},
        {"fields": {}},
        {"fields": []},
        {"fields": {"../source": {"tokens": 4, "sha256": {"tokens": "", "offsets": ""}}}},
        {"fields": {"source": {"tokens": 4}}},
        {"vocabulary": None},
    ],
)
def test_a_changed_index_is_noticed(tmp_path: Path, change: dict[str, object]) -> None:
    write_store(tmp_path, ROWS, vocabulary=10)
    index = tmp_path / "index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | change))
    with pytest.raises(UserError, match=r"index\.json|bytes"):
        Store.open(tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_store(tmp_path / "file" / "store", ROWS, vocabulary=10)
