"""Takes the literals out of a plain text, so that texts alike but for these are served alike.

Much cheaper than the lexer, and sure of less: what is refused here is for that.
"""

import re

NUMBER = b"\1"
STRING = b"\2"

LONGEST_BYTES = 4_096
_LITERAL = re.compile(
    rb"((?<![\w$'`\"\x80-\xff])'[^'\\]*(?:''[^'\\]*)*'"
    rb"|(?<![\w$.'`\"\x80-\xff])[0-9]+(?:\.[0-9]*)?(?![\w$.'`\"\x80-\xff]))"
)
_ODD = re.compile(rb"[^\t\n\r -~\1\2]|[\"#@\\?;$'{}\[\]~]|--|/\*")
_NAME = re.compile(rb"`[A-Za-z0-9_]+`")


def without_literals(text: bytes) -> tuple[bytes, bytes] | None:
    """The text with `NUMBER` and `STRING` for its literals, and these, joined by commas.

    Two texts that differ in the second only are split by any dialect at the same places, and have
    the same tokens but for the literals. None for what is not plain enough to be sure of that:
    comments, escapes, other quotes, bytes that are no UTF-8.
    """
    if len(text) > LONGEST_BYTES:
        return None
    parts = _LITERAL.split(text)
    literals = parts[1::2]
    parts[1::2] = [STRING if literal[0] == 0x27 else NUMBER for literal in literals]
    shape = b"".join(parts)
    if _ODD.search(shape) or shape.count(NUMBER) + shape.count(STRING) != len(literals):
        return None
    if b"`" in shape and b"`" in _NAME.sub(b"", shape):
        return None
    told = b",".join(literals)
    return (shape, told) if _is_utf8(told) else None


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
