"""aiomysql, which everything here imports from this place.

As it is imported it asks for the name of the process's user, and fails where there is none: in a
container under a number that no account has, as of Python 3.13.
"""

import getpass
import os

try:
    getpass.getuser()
except (KeyError, OSError):
    os.environ["LOGNAME"] = "sqlcache"
    try:
        import aiomysql as aiomysql
    finally:
        del os.environ["LOGNAME"]
else:
    import aiomysql as aiomysql

FieldDescriptorPacket = aiomysql.connection.FieldDescriptorPacket
MysqlPacket = aiomysql.connection.MysqlPacket
MySQLResult = aiomysql.connection.MySQLResult

__all__ = ["FieldDescriptorPacket", "MySQLResult", "MysqlPacket", "aiomysql"]
