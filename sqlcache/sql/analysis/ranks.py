"""Whether full-text scores decide which rows a query gives, or in what order.

InnoDB's count the rows that there are, those that nobody has committed among them: they change, and
change back, with no write that anybody is told of. Rows that match come by their scores where no
ORDER BY says otherwise; in boolean mode often, too, but there no manual promises it.

Source: https://dev.mysql.com/doc/refman/9.4/en/fulltext-natural-language.html; that rows which are
rolled back later change the order was found by asking MySQL 9.7 and MariaDB 10.11.
"""

from collections.abc import Sequence

from sqlcache.sql.analysis.lookaround import closings
from sqlcache.sql.lexer import Token, word_set

_LIMITS = word_set("LIMIT FETCH")
# What gives other values where rows come in another order.
_BY_ORDER = word_set("ANY_VALUE GROUP OVER GROUP_CONCAT JSON_ARRAYAGG JSON_OBJECTAGG ST_COLLECT")


def are_by_score(tokens: Sequence[Token]) -> bool:
    """Whether they do in a query that has a MATCH as a condition, perhaps in a subquery."""
    words = [token.word for token in tokens]
    if "MATCH" not in words:
        return False
    depths = _depths(tokens)
    limits = [depth for word, depth in zip(words, depths, strict=True) if word in _LIMITS]
    ordered = any(word == "ORDER" and not depth for word, depth in zip(words, depths, strict=True))
    if _all_boolean(tokens, words):
        return bool(limits) and (any(limits) or not ordered)
    if limits:
        return True
    return not (_only_counts(tokens, words) or (ordered and _BY_ORDER.isdisjoint(words)))


def _depths(tokens: Sequence[Token]) -> list[int]:
    depths: list[int] = []
    depth = 0
    for token in tokens:
        depth -= token.is_operator(b")")
        depths.append(depth)
        depth += token.is_operator(b"(")
    return depths


def _all_boolean(tokens: Sequence[Token], words: Sequence[str]) -> bool:
    closed_at = closings(tokens)
    ends = [closed_at.get(at + 1, 0) for at, word in enumerate(words) if word == "AGAINST"]
    boolean = [words[max(end - 3, 0) : end] == ["IN", "BOOLEAN", "MODE"] for end in ends]
    return len(boolean) >= words.count("MATCH") and all(boolean)


def _only_counts(tokens: Sequence[Token], words: Sequence[str]) -> bool:
    """Whether a number of rows is all that it gives."""
    if words[:2] != ["SELECT", "COUNT"] or words.count("SELECT") > 1 or "GROUP" in words:
        return False
    end = closings(tokens).get(2, len(words))
    after = words[end + 1 : end + 4]
    return "FROM" in after[:2] or (after[:1] == ["AS"] and "FROM" in after)
