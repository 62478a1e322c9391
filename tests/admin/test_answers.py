"""The schemas of the API's answers: every field has a sentence, and answers are as they say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sqlcache.admin import answers
from tests.api_schemas import wrong_with

ANSWERS = {
    name: each
    for name, each in vars(answers).items()
    if name[0].isupper() and isinstance(each, dict) and name != "OPENAPI"
}
ENABLED = {"enabled": True, "processes": 2}


def fields(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All that a schema has, at any depth, with their names."""
    for name, each in schema.get("properties", {}).items():
        yield name, each
        yield from fields(each)
    if items := schema.get("items"):
        yield from fields(items)


def test_every_field_is_told_in_a_sentence() -> None:
    assert len(ANSWERS) > 9, "else this shows nothing"
    for name, answer in ANSWERS.items():
        told = list(fields(answer))
        assert told, name
        for field, schema in told:
            assert schema.get("description", "").strip(), f"{name}: {field}"
            assert schema["description"].endswith(".") or answer is answers.SETTINGS, field


@pytest.mark.parametrize(
    "answer",
    [{"enabled": True}, ENABLED | {"more": 1}, ENABLED | {"processes": "two"}, [ENABLED]],
)
def test_what_lacks_a_field_or_has_another_is_wrong(answer: Any) -> None:
    assert wrong_with(ENABLED, answers.ENABLED) == []
    assert wrong_with(answer, answers.ENABLED)
