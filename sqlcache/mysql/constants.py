"""The protocol's numbers, by MySQL's own names."""

from enum import IntEnum
from typing import Final


class Capability:
    """What client and server agree on at login; bits 32 and up are MariaDB's own.

    Source: mysql_com.h, and mariadb.com/kb/en/connection/ for the extended ones.
    Plain numbers, as those of `Status`.
    """

    LONG_PASSWORD: Final = 1 << 0  # for MariaDB: none of the extended ones
    FOUND_ROWS: Final = 1 << 1
    LONG_FLAG: Final = 1 << 2
    CONNECT_WITH_DB: Final = 1 << 3
    NO_SCHEMA: Final = 1 << 4
    COMPRESS: Final = 1 << 5
    ODBC: Final = 1 << 6
    LOCAL_FILES: Final = 1 << 7
    IGNORE_SPACE: Final = 1 << 8
    PROTOCOL_41: Final = 1 << 9
    INTERACTIVE: Final = 1 << 10
    SSL: Final = 1 << 11
    IGNORE_SIGPIPE: Final = 1 << 12
    TRANSACTIONS: Final = 1 << 13
    RESERVED: Final = 1 << 14
    SECURE_CONNECTION: Final = 1 << 15
    MULTI_STATEMENTS: Final = 1 << 16
    MULTI_RESULTS: Final = 1 << 17
    PS_MULTI_RESULTS: Final = 1 << 18
    PLUGIN_AUTH: Final = 1 << 19
    CONNECT_ATTRS: Final = 1 << 20
    PLUGIN_AUTH_LENENC_CLIENT_DATA: Final = 1 << 21
    CAN_HANDLE_EXPIRED_PASSWORDS: Final = 1 << 22
    SESSION_TRACK: Final = 1 << 23
    DEPRECATE_EOF: Final = 1 << 24
    OPTIONAL_RESULTSET_METADATA: Final = 1 << 25
    ZSTD_COMPRESSION_ALGORITHM: Final = 1 << 26
    QUERY_ATTRIBUTES: Final = 1 << 27
    MULTI_FACTOR_AUTHENTICATION: Final = 1 << 28
    CAPABILITY_EXTENSION: Final = 1 << 29
    SSL_VERIFY_SERVER_CERT: Final = 1 << 30
    REMEMBER_OPTIONS: Final = 1 << 31
    MARIADB_PROGRESS: Final = 1 << 32
    MARIADB_COM_MULTI: Final = 1 << 33
    MARIADB_STMT_BULK_OPERATIONS: Final = 1 << 34
    MARIADB_EXTENDED_METADATA: Final = 1 << 35
    MARIADB_CACHE_METADATA: Final = 1 << 36
    MARIADB_BULK_UNIT_RESULTS: Final = 1 << 37


UNFOLLOWED = (
    Capability.COMPRESS
    | Capability.ZSTD_COMPRESSION_ALGORITHM
    | Capability.OPTIONAL_RESULTSET_METADATA
    | Capability.CAPABILITY_EXTENSION
    | Capability.MARIADB_COM_MULTI
    | Capability.MARIADB_CACHE_METADATA
)
"""Not passed on to the server, whatever a client says: their bytes hide the packets, or where a
response ends. Compression is spoken with the client alone, see `frames`."""

FOLLOWED = ((1 << 38) - 1) & ~UNFOLLOWED
"""All that may be passed on; a bit no one has named yet is not followed either."""


class Status:
    """Server status flags, in every OK and EOF packet. Source: mysql_com.h.

    Plain numbers: the arithmetic of flags costs more than all the rest of a hit.
    """

    IN_TRANS: Final = 1 << 0
    AUTOCOMMIT: Final = 1 << 1
    MORE_RESULTS_EXISTS: Final = 1 << 3
    NO_GOOD_INDEX_USED: Final = 1 << 4
    NO_INDEX_USED: Final = 1 << 5
    CURSOR_EXISTS: Final = 1 << 6
    LAST_ROW_SENT: Final = 1 << 7
    DB_DROPPED: Final = 1 << 8
    NO_BACKSLASH_ESCAPES: Final = 1 << 9
    METADATA_CHANGED: Final = 1 << 10
    QUERY_WAS_SLOW: Final = 1 << 11
    PS_OUT_PARAMS: Final = 1 << 12
    IN_TRANS_READONLY: Final = 1 << 13
    SESSION_STATE_CHANGED: Final = 1 << 14


class Command(IntEnum):
    """The first byte of a command packet. Source: my_command.h."""

    SLEEP = 0x00
    QUIT = 0x01
    INIT_DB = 0x02
    QUERY = 0x03
    FIELD_LIST = 0x04
    CREATE_DB = 0x05
    DROP_DB = 0x06
    REFRESH = 0x07
    SHUTDOWN = 0x08
    STATISTICS = 0x09
    PROCESS_INFO = 0x0A
    CONNECT = 0x0B
    PROCESS_KILL = 0x0C
    DEBUG = 0x0D
    PING = 0x0E
    TIME = 0x0F
    DELAYED_INSERT = 0x10
    CHANGE_USER = 0x11
    BINLOG_DUMP = 0x12
    TABLE_DUMP = 0x13
    CONNECT_OUT = 0x14
    REGISTER_SLAVE = 0x15
    STMT_PREPARE = 0x16
    STMT_EXECUTE = 0x17
    STMT_SEND_LONG_DATA = 0x18
    STMT_CLOSE = 0x19
    STMT_RESET = 0x1A
    SET_OPTION = 0x1B
    STMT_FETCH = 0x1C
    DAEMON = 0x1D
    BINLOG_DUMP_GTID = 0x1E
    RESET_CONNECTION = 0x1F
    CLONE = 0x20
    STMT_BULK_EXECUTE = 0xFA  # MariaDB


MAX_PAYLOAD_BYTES = 0xFFFFFF
"""The most one packet holds; a payload of this length or more goes on in the next packet."""

CR_CONN_HOST_ERROR = 2003
CR_SSL_CONNECTION_ERROR = 2026
ER_CON_COUNT_ERROR = 1040
ER_DBACCESS_DENIED = 1044
ER_ACCESS_DENIED = 1045
ER_NO_DB = 1046
ER_UNKNOWN_COM_ERROR = 1047
ER_SERVER_SHUTDOWN = 1053
ER_PARSE_ERROR = 1064
ER_EMPTY_QUERY = 1065
ER_UNKNOWN_ERROR = 1105
ER_HOST_IS_BLOCKED = 1129
ER_HOST_NOT_PRIVILEGED = 1130
ER_TABLEACCESS_DENIED = 1142
ER_COLUMNACCESS_DENIED = 1143
ER_TOO_MANY_ROWS = 1172
ER_NEW_ABORTING_CONNECTION = 1184
ER_TOO_MANY_USER_CONNECTIONS = 1203
ER_USER_LIMIT_REACHED = 1226
ER_WRONG_ARGUMENTS = 1210
ER_SPECIFIC_ACCESS_DENIED = 1227
ER_SUBQUERY_NO_1_ROW = 1242
ER_UNKNOWN_STMT_HANDLER = 1243
ER_SP_DOES_NOT_EXIST = 1305
ER_QUERY_INTERRUPTED = 1317
ER_TRG_DOES_NOT_EXIST = 1360
ER_PROCACCESS_DENIED = 1370
ER_XAER_NOTA = 1397
ER_XAER_INVAL = 1398
ER_XAER_RMFAIL = 1399
ER_XAER_OUTSIDE = 1400
ER_BINLOG_CREATE_ROUTINE_NEED_SUPER = 1419
ER_SIGNAL_EXCEPTION = 1644
ER_DATA_OUT_OF_RANGE = 1690
ER_ACCESS_DENIED_NO_PASSWORD = 1698
ER_MALFORMED_PACKET = 1835
ER_CONNECTION_KILLED = 1927
ER_SERVER_OFFLINE_MODE = 3032
ER_SECURE_TRANSPORT_REQUIRED = 3159
ER_WRONG_COMPRESSION_ALGORITHM_CLIENT = 3922
ER_WRONG_COMPRESSION_LEVEL_CLIENT = 3923
ER_CLIENT_INTERACTION_TIMEOUT = 4031

ERRORS_OF_CLIENTS: Final = range(2000, 3000)
"""What a client gives itself, as where it reaches no server."""

WAS_KILLED: Final = frozenset({ER_SERVER_SHUTDOWN, ER_QUERY_INTERRUPTED, ER_CONNECTION_KILLED})
"""Errors of a statement that say nothing of it: somebody ended this run of it, or this session."""

MOST_OF_ACCOUNT: Final = frozenset({ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED})
"""Errors of a login by which its account has as many connections as it may."""

LETS_NOBODY_IN: Final = frozenset(
    {
        ER_CON_COUNT_ERROR,
        ER_SERVER_SHUTDOWN,
        ER_HOST_IS_BLOCKED,
        ER_HOST_NOT_PRIVILEGED,
        *range(1158, 1162),  # the network failed amid the login
        ER_SERVER_OFFLINE_MODE,
        ER_SECURE_TRANSPORT_REQUIRED,  # where it is of one account, it is ER_ACCESS_DENIED
    }
)
"""Errors at a login that have nothing to do with whose it is."""

DENIALS = frozenset(
    {
        ER_DBACCESS_DENIED,
        ER_ACCESS_DENIED,
        ER_TABLEACCESS_DENIED,
        ER_COLUMNACCESS_DENIED,
        ER_SPECIFIC_ACCESS_DENIED,
        ER_PROCACCESS_DENIED,
        ER_BINLOG_CREATE_ROUTINE_NEED_SUPER,
        ER_ACCESS_DENIED_NO_PASSWORD,
    }
)
"""The errors of who lacks a right."""

REFUSES_PARAMETERS = frozenset({ER_WRONG_ARGUMENTS, ER_MALFORMED_PACKET})
"""Errors of executions whose parameters the server cannot read."""

FAILS_AMID = frozenset(
    {ER_TOO_MANY_ROWS, ER_SUBQUERY_NO_1_ROW, ER_SIGNAL_EXCEPTION, ER_DATA_OUT_OF_RANGE}
)
"""Errors of queries that had begun to look at rows."""
