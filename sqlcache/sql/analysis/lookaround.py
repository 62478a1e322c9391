"""Looking forth and back from a place in a query's tokens."""

from collections.abc import Sequence

from sqlcache.sql.analysis.cursor import NAMES
from sqlcache.sql.lexer import Kind, Token

COMPARISONS = frozenset((b"=", b"<=>", b"<>", b"!=", b"<", b"<=", b">", b">="))
NOTHING = Token(Kind.OTHER, b"", 0)
"""What stands before the first token and behind the last."""


class Lookaround:
    """The tokens of a query, no hints among them."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens

    def _token(self, at: int) -> Token:
        return self._tokens[at] if 0 <= at < len(self._tokens) else NOTHING

    def _path_to(self, at: int) -> int:
        """Where the dotted path begins whose last name stands there."""
        while self._token(at - 1).text == b"." and self._token(at - 2).kind in NAMES:
            at -= 2
        return at

    def _compares(self, at: int) -> bool:
        """Whether a comparison with an operator stands there."""
        token = self._token(at)
        return token.kind is Kind.OPERATOR and token.text in COMPARISONS
