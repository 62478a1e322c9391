"""The variables of a server, and of its sessions, that shape answers."""

GLOBALS_THAT_SHAPE_ANSWERS: dict[str, str] = {
    # Encoding of what comes and goes.
    "character_set_client": "how statements are read",
    "character_set_connection": "the character set of literals",
    "character_set_database": "the default schema's character set, where there is no schema",
    "character_set_filesystem": "how LOAD_FILE reads its argument",
    "character_set_results": "the bytes of every text column",
    "character_set_server": "what character_set_client of a client that names none becomes",
    "character_set_collations": "MariaDB 11: the collation of a character set that names none",
    "collation_connection": "how literals compare",
    "collation_database": "as character_set_database",
    "collation_server": "as character_set_server",
    "default_collation_for_utf8mb4": "MySQL: the collation of a utf8mb4 that names none",
    # How text is parsed and expressions are computed.
    "sql_mode": "syntax, errors, padding of CHAR, GROUP BY",
    "old": "MariaDB: answers of old versions",
    "old_mode": "MariaDB: answers of old versions, each on its own",
    "old_passwords": "the answer of PASSWORD()",
    "div_precision_increment": "digits after a division",
    "windowing_use_high_precision": "MySQL: digits of window functions",
    "default_week_format": "WEEK()",
    "lc_time_names": "names of days and months",
    "lc_messages": "texts of errors and warnings",
    "time_zone": "TIMESTAMP columns and the current time",
    "system_time_zone": "what time_zone=SYSTEM means",
    "block_encryption_mode": "MySQL: AES_ENCRYPT and AES_DECRYPT",
    "default_regex_flags": "MariaDB: REGEXP and its relatives",
    "regexp_stack_limit": "MySQL: which patterns are refused",
    "regexp_time_limit": "MySQL: which patterns are refused",
    "max_points_in_geometry": "MySQL: ST_Buffer's precision",
    "ft_boolean_syntax": "MATCH ... IN BOOLEAN MODE",
    "ft_query_expansion_limit": "MATCH ... WITH QUERY EXPANSION",
    "explicit_defaults_for_timestamp": "what a TIMESTAMP column without attributes is",
    "system_versioning_asof": "MariaDB: the point in time at which versioned tables are read",
    "lower_case_table_names": "which names are the same table",
    # How much of an answer there is, and whether there is one.
    "sql_select_limit": "rows",
    "group_concat_max_len": "bytes of GROUP_CONCAT and JSON_ARRAYAGG",
    "max_sort_length": "bytes that ORDER BY looks at",
    "max_allowed_packet": "bytes of a string function's answer",
    "sort_buffer_size": "whether an ORDER BY of long values is refused",
    "max_join_size": "whether a large join is refused",
    "sql_big_selects": "whether a large join is refused",
    "max_statement_time": "MariaDB: whether a slow query is stopped",
    "max_execution_time": "MySQL: whether a slow query is stopped",
    "max_recursive_iterations": "MariaDB: rows of WITH RECURSIVE",
    "cte_max_recursion_depth": "MySQL: whether a deep WITH RECURSIVE is refused",
    "standard_compliant_cte": "MariaDB: which WITH RECURSIVE are refused",
    "resultset_metadata": "MySQL, sessions alone: whether column definitions are sent",
    "sql_buffer_result": "flags of columns",
    "sql_auto_is_null": "what `id IS NULL` finds",
    "sql_notes": "whether notes count as warnings",
    "note_verbosity": "MariaDB: which notes are given",
    "max_error_count": "the warning count",
    "sql_safe_updates": "MySQL: whether it warns of an index that a query cannot use",
    "range_optimizer_max_mem_size": "MySQL: whether it warns of ranges that it does not look into",
    # Order of rows that no ORDER BY decides, and of equal ones: the plan decides it.
    "optimizer_switch": "the plan",
    "optimizer_prune_level": "the plan",
    "optimizer_search_depth": "the plan",
    "optimizer_use_condition_selectivity": "MariaDB: the plan",
    "join_cache_level": "MariaDB: the plan",
    "use_stat_tables": "MariaDB: the plan",
    "use_secondary_engine": "MySQL, sessions alone: the engine that answers",
    # What a transaction sees.
    "autocommit": "whether a session begins inside transactions",
    "transaction_isolation": "which rows a read sees",
    "tx_isolation": "MariaDB's name for it",
    "transaction_read_only": "whether writes are refused",
    "tx_read_only": "MariaDB's name for it",
    "innodb_snapshot_isolation": "MariaDB: whether a write in a snapshot may fail",
    "session_track_transaction_info": "whether answers tell of the transaction's state",
    "completion_type": "whether COMMIT begins the next transaction",
    # What the server writes down of each statement for the session to read.
    "optimizer_trace": "information_schema.OPTIMIZER_TRACE",
    "profiling": "SHOW PROFILES",
    # What is asked of each server, and another process of it may answer otherwise.
    "version": "VERSION()",
    "version_comment": "what a client greets with",
    # What a session does before its first statement, and as whom.
    "init_connect": "statements run for every new session without administrator's rights",
    "activate_all_roles_on_login": "MySQL: the roles, so the rights, of a new session",
    "mandatory_roles": "MySQL: roles everybody has",
    "partial_revokes": "MySQL: what a global right is worth",
    "check_proxy_users": "MySQL: whether who logs in may be taken for another account",
    "mysql_native_password_proxy_users": "MySQL: the same, of those with such a password",
    "sha256_password_proxy_users": "MySQL: the same, of those with such a password",
}
"""Global variables that new sessions inherit, or that all share, and that can change an answer, its
bytes or whether there is one: name, and what it changes. A server lists those it has."""

_WHICH = "WHERE Variable_name IN ({})".format(
    ", ".join(f"'{name}'" for name in GLOBALS_THAT_SHAPE_ANSWERS)
)
GLOBAL_SETTINGS = f"SHOW GLOBAL VARIABLES {_WHICH}"
"""Asks for their values. A SHOW, so that Com_select counts only what clients asked."""

SESSION_SETTINGS = f"SHOW SESSION VARIABLES {_WHICH}"
"""The same for a session that may have values of its own."""
