from sqlcache.cache.tags import ROOT, Tag, read_tags
from sqlcache.sql.names import TableName


def test_an_answer_hangs_on_its_tables_their_schemas_and_everything() -> None:
    tags = read_tags([TableName("shop", "orders"), TableName("shop", "lines")], ["archive"])
    assert tags == (
        ROOT,
        Tag("archive"),
        Tag("shop"),
        Tag("shop", "lines"),
        Tag("shop", "orders"),
    )
