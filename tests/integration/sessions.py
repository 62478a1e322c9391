"""What tests of the traps of sessions make first: a table, and an account."""

MAKE = (
    "CREATE TABLE t (a INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20), c CHAR(5),"
    " at TIMESTAMP NULL);"
    " INSERT INTO t VALUES (1, 'x', 'a', '2020-06-01 12:00:00'), (2, 'é', 'b', NULL),"
    " (3, 'X', 'A', '2021-01-03 12:00:00')"
)
USER = "CREATE USER '{user}'@'%' IDENTIFIED BY 'p'"
