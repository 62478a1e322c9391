"""Answers of the API, held against the schemas that /api/openapi.json has of them."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator


def wrong_with(answer: Any, schema: dict[str, Any]) -> list[str]:
    """What of an answer is not as its schema says."""
    Draft202012Validator.check_schema(schema)
    return [
        f"{error.json_path}: {error.message}"
        for error in Draft202012Validator(schema).iter_errors(answer)
    ]


def answer_of(operation: dict[str, Any], status: int) -> dict[str, Any]:
    """The schema of what an operation answers with this status."""
    responses = operation["responses"]
    said = responses[str(status) if str(status) in responses else f"{status // 100}XX"]
    schema: dict[str, Any] = said["content"]["application/json"]["schema"]
    return schema
