"""The MySQL client/server protocol: bytes and values in, bytes and values out.

Only `connection` does I/O, with `sockets`, `transport` and `tls`. Everything else can be called
with any bytes, cut anywhere, and either answers or raises `ProtocolError`.

Source: dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html and
mariadb.com/kb/en/clientserver-protocol/ (MariaDB's differences are marked where they matter).
"""
