"""Which strings a server takes for the same, under the collations whose columns tell answers
apart."""

import itertools

from sqlcache.demo.servers import PrivateSqlServer
from sqlcache.plan.pins import PLAIN
from sqlcache.sql.facts import COLLATIONS

CHARACTERS = [chr(code) for code in range(1, 128) if PLAIN.fullmatch(bytes((code,)))]
"""Those of plain strings."""
LETTERS = (
    *("ch", "ll", "lj", "nj", "dz", "ij", "ae", "oe"),
    *("ss", "aa", "cs", "gy", "ny", "sz", "ng", "ngw"),
)
"""What some language takes for a letter, to stand between others."""


def test_plain_strings_are_the_same_but_for_their_letters_case(
    upstream: PrivateSqlServer, schema: str
) -> None:
    words = {*CHARACTERS, *map("".join, itertools.product(CHARACTERS, repeat=2))}
    around = itertools.product("a-1", LETTERS, "a-1")
    words |= {first + between + last for first, between, last in around}
    rows = ",".join(f"('{word}')" for word in sorted(words))
    upstream.sql(
        "CREATE TABLE words (w VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY);"
        f"INSERT INTO words VALUES {rows}",
        schema,
    )
    full = "FULL_COLLATION_NAME" if upstream.name == "mariadbd" else "COLLATION_NAME"
    told = upstream.sql(
        f"SELECT DISTINCT {full}, CHARACTER_SET_NAME"
        " FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
    )
    tried = [each for each in told if COLLATIONS.fullmatch(str(each[0]).lower())]
    assert len(tried) > 15
    for collation, characters in tried:
        same = upstream.sql(
            f"SELECT MIN(LOWER(w)), MAX(LOWER(w)) FROM words"
            f" GROUP BY CONVERT(w USING {characters}) COLLATE {collation}"
            " HAVING MIN(LOWER(w)) <> MAX(LOWER(w))",
            schema,
        )
        assert same == (), collation


def test_some_are_the_same_under_others(upstream: PrivateSqlServer) -> None:
    """So the test above can fail."""
    collation = "utf8mb4_lithuanian_ci"
    assert not COLLATIONS.fullmatch(collation)
    ((same,),) = upstream.sql(f"SELECT CONVERT('i' USING utf8mb4) COLLATE {collation} = 'y'")
    assert same == 1
