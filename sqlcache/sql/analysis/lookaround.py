"""Looking forth and back from a place in a query's tokens."""

from collections.abc import Sequence

from sqlcache.sql.analysis.cursor import NAMES
from sqlcache.sql.lexer import Kind, Token

VALUES = (Kind.PARAMETER, Kind.NUMBER, Kind.STRING)
COMPARISONS = frozenset((b"=", b"<=>", b"<>", b"!=", b"<", b"<=", b">", b">="))
NOTHING = Token(Kind.OTHER, b"", 0)
"""What stands before the first token and behind the last."""


def closings(tokens: Sequence[Token]) -> dict[int, int]:
    """For each parenthesis that is closed, by its index: the index of the one that does."""
    closed_at: dict[int, int] = {}
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.is_operator(b"("):
            opened.append(at)
        elif token.is_operator(b")") and opened:
            closed_at[opened.pop()] = at
    return closed_at


class Lookaround:
    """The tokens of a query, no hints among them."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._listed: list[tuple[int, int]] = []

    def _list_around(self, at: int) -> tuple[int, int]:
        """Where the values and commas begin and end that stand without a gap around there."""
        if not self._listed:
            self._listed = [(0, 0)] * len(self._tokens)
            start = 0
            for place in range(len(self._tokens) + 1):
                if not self._is_listed(place):
                    self._listed[start:place] = [(start, place)] * (place - start)
                    start = place + 1
        return self._listed[at]

    def _is_listed(self, at: int) -> bool:
        token = self._token(at)
        return token.kind in VALUES or token.is_operator(b",")

    def _token(self, at: int) -> Token:
        return self._tokens[at] if 0 <= at < len(self._tokens) else NOTHING

    def _ends(self, at: int, before: frozenset[str]) -> bool:
        """Whether what stands before it is over there: by a parenthesis or comma, the query's end,
        or one of the words that it may stand `before`."""
        token = self._token(at)
        closed = token.is_operator(b")") or token.is_operator(b",") or token is NOTHING
        return closed or token.word in before

    def _path_to(self, at: int) -> int:
        """Where the dotted path begins whose last name stands there."""
        while self._token(at - 1).text == b"." and self._token(at - 2).kind in NAMES:
            at -= 2
        return at

    def _compares(self, at: int) -> bool:
        """Whether a comparison with an operator stands there."""
        token = self._token(at)
        return token.kind is Kind.OPERATOR and token.text in COMPARISONS
