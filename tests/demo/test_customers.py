from sqlcache.demo import customers
from sqlcache.demo.servers import PrivateMariaDB


def test_rows_have_every_id_once_and_are_always_the_same() -> None:
    made = list(customers.rows(500))
    assert [row[0] for row in made] == list(range(1, 501))
    assert made == list(customers.rows(500))
    assert all(first and last for _, first, last in made)


def test_read_ids_are_always_the_same_and_are_rows_of_the_table() -> None:
    ids = customers.read_ids(1000, 30_000)
    assert ids == customers.read_ids(1000, 30_000)
    assert len(ids) == 1000
    assert all(1 <= number <= 30_000 for number in ids)
    assert len(set(ids)) > 900


def test_the_table_is_the_classic_one_without_an_index(mariadb: PrivateMariaDB) -> None:
    mariadb.sql(f"DROP DATABASE IF EXISTS {customers.SCHEMA}")
    customers.create(mariadb, 12_000)
    columns = mariadb.sql(f"SHOW COLUMNS FROM {customers.TABLE}", customers.SCHEMA)
    assert [(name, kind.partition("(")[0]) for name, kind, *_ in columns] == [
        ("id", "mediumint"),
        ("firstname", "varchar"),
        ("lastname", "varchar"),
    ]
    assert mariadb.sql(f"SHOW INDEX FROM {customers.TABLE}", customers.SCHEMA) == ()
    (counts,) = mariadb.sql(
        f"SELECT COUNT(*), COUNT(DISTINCT id) FROM {customers.TABLE}", customers.SCHEMA
    )
    assert counts == (12_000, 12_000)
    number, first, last = list(customers.rows(7))[-1]
    assert mariadb.sql(customers.select(number), customers.SCHEMA) == ((first, last),)
    mariadb.sql(f"DROP DATABASE {customers.SCHEMA}")
