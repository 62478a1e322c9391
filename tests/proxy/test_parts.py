"""Answers that come in parts: what is passed on, and what is known where they end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlcache.mysql.constants import MAX_PAYLOAD_BYTES, Capability, Command
from sqlcache.mysql.packets import packet
from sqlcache.mysql.response import ResponseTracker
from sqlcache.mysql.scan import scan
from sqlcache.proxy.straight import parts as module
from sqlcache.proxy.straight.parts import Parts
from tests.kernels import Kernel
from tests.mysql.test_response import CURSOR, MORE, NEW, OLD, err, ok, result_set, stream

ROWS = (b"\x01a\x01b", b"\xfb\xfb", b"\xfc\xff\x00" + bytes(255) + b"\x01b", b"\x00\x00")


@pytest.fixture(scope="module", autouse=True)
def _each_kernel(kernel: Kernel) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "step_over_rows", kernel.step_over_rows)
        yield


def is_new(capabilities: int) -> bool:
    return bool(capabilities & Capability.DEPRECATE_EOF)


def pieces(whole: bytes, cuts: list[int]) -> list[bytes]:
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


def followed(capabilities: int, *chunks: bytes) -> tuple[Parts, bytes]:
    """Its parts after these chunks, and what of them was passed on."""
    begun = Parts.begun(chunks[0], deprecate_eof=is_new(capabilities))
    assert begun is not None
    parts, passed = begun
    for chunk in chunks[1:]:
        assert parts.goes_on
        passed += parts.take(chunk)
    assert parts.passed_bytes == len(passed)
    assert passed + parts.held == b"".join(chunks)
    return parts, passed


@pytest.mark.parametrize("capabilities", [OLD, NEW])
@given(data=st.data())
def test_however_it_is_cut_it_ends_as_what_comes_at_once(
    capabilities: int, data: st.DataObject
) -> None:
    whole = stream(*result_set(capabilities, *ROWS, status=0x22))
    defined = len(stream(*result_set(capabilities)[: 3 if is_new(capabilities) else 4]))
    cuts = sorted(data.draw(st.sets(st.integers(defined, len(whole) - 1), min_size=1, max_size=9)))
    parts, _ = followed(capabilities, *pieces(whole, cuts))
    assert not parts.goes_on
    assert parts.end == scan(whole, deprecate_eof=is_new(capabilities)) is not None


@pytest.mark.parametrize("capabilities", [OLD, NEW])
def test_what_has_not_come_with_its_definitions_is_none(capabilities: int) -> None:
    whole = stream(*result_set(capabilities, *ROWS))
    defined = len(stream(*result_set(capabilities)[: 3 if is_new(capabilities) else 4]))
    for cut in range(defined):
        assert Parts.begun(whole[:cut], deprecate_eof=is_new(capabilities)) is None
    assert Parts.begun(whole, deprecate_eof=is_new(capabilities)) is None, "it is all there"


@pytest.mark.parametrize(
    "beginning",
    [
        (err(),),
        (ok(),),
        (b"\xfbfile",),
        (b"\xfc\x00\x01", b"\x03def-a"),
        (*result_set(OLD)[:3], b"\xfe\x00\x00" + MORE.to_bytes(2, "little")),
        (*result_set(OLD)[:3], b"\xfe\x00\x00" + CURSOR.to_bytes(2, "little")),
    ],
    ids=["an error", "an OK", "a file", "many columns", "parameters out", "a cursor"],
)
def test_what_is_not_plain_from_the_beginning_is_none(beginning: tuple[bytes, ...]) -> None:
    assert Parts.begun(stream(*beginning) + b"\x05\x00", deprecate_eof=False) is None


@pytest.mark.parametrize("capabilities", [OLD, NEW])
@pytest.mark.parametrize("ends", ["an error", "more results", "more than that"])
def test_an_end_that_is_not_plain_is_left_to_the_tracker(capabilities: int, ends: str) -> None:
    rows = result_set(capabilities, *ROWS)
    whole = {
        "an error": stream(*rows[:-1], err()),
        "more results": stream(*result_set(capabilities, *ROWS, status=MORE), ok()),
        "more than that": stream(*rows, ok()),
    }[ends]
    begins = len(stream(*rows[:-1]))
    for cut in range(len(stream(*rows[:4])), begins):
        parts, passed = followed(capabilities, whole[:cut], whole[cut:])
        assert (parts.goes_on, parts.end, len(passed)) == (False, None, begins)
        alike(parts, capabilities, whole)


def alike(parts: Parts, capabilities: int, whole: bytes) -> None:
    """Who goes on with it ends as who has seen all of it."""
    left, expected = parts.tracker(Command.QUERY, capabilities), tracked(capabilities, whole)
    left.feed(whole[parts.passed_bytes :])
    for each in ("ends", "done", "rows", "columns", "results", "status_offsets", "bytes_fed"):
        assert getattr(left, each) == getattr(expected, each), each


def tracked(capabilities: int, whole: bytes) -> ResponseTracker:
    tracker = ResponseTracker(Command.QUERY, capabilities)
    tracker.feed(whole)
    return tracker


@pytest.mark.parametrize("capabilities", [OLD, NEW])
def test_the_tracker_may_go_on_anywhere(capabilities: int) -> None:
    whole = stream(*result_set(capabilities, *ROWS))
    for cut in range(len(stream(*result_set(capabilities)[:4])), len(whole)):
        parts, _ = followed(capabilities, whole[:cut])
        alike(parts, capabilities, whole)


def test_a_row_that_is_long_is_left_to_the_tracker() -> None:
    """Else one that comes in many pieces would be put together for each of them."""
    long = stream(*result_set(NEW)[:3]) + packet(4, b"\xfd\x00\x00\x10" + bytes(0x100000))
    parts, passed = followed(NEW, long[:100], long[100:70_000])
    assert (parts.goes_on, parts.end) == (False, None)
    assert passed == long[: parts.passed_bytes]
    continued = stream(*result_set(NEW)[:3]) + MAX_PAYLOAD_BYTES.to_bytes(3, "little") + b"\x04"
    parts, _ = followed(NEW, continued, bytes(70_000))
    assert (parts.goes_on, parts.end) == (False, None)


def test_what_is_held_is_less_than_a_row() -> None:
    whole = stream(*result_set(NEW, *(bytes(100) for _ in range(1_000))))
    parts, _ = followed(NEW, *(whole[at : at + 1_000] for at in range(0, 50_000, 1_000)))
    assert len(parts.held) < 104
