"""Lines of TOML, for people to read and change."""

import json
from collections.abc import Mapping


def assignment(name: str, value: object) -> str:
    """`name = value`, of a text, a number, a truth or a list of these."""
    return f"{name} = {_value(value)}"


def table(name: str, values: Mapping[str, object]) -> str:
    """One more table of a list of them."""
    return "\n".join([f"[[{name}]]", *(assignment(*item) for item in values.items())])


def _value(value: object) -> str:
    # All these are written as in JSON, but for one character that JSON lets stand.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
