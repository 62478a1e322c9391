"""The catalog: what lies behind the names of tables."""

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import pytest

from sqlcache.sql.catalog import Catalog, reads
from sqlcache.sql.catalog.server import Server
from sqlcache.sql.catalog.stored import Stored
from sqlcache.sql.facts import (
    BaseTable,
    Cascade,
    Facts,
    Relation,
    Sequence,
    StoredRoutine,
    Trigger,
    View,
    VirtualColumn,
)
from sqlcache.sql.names import TableName, TableRef
from sqlcache.sql.routines import Routine, watched_words
from sqlcache.sql.statement import ADDS, ANYTHING, DELETES, Changes


def app(name: str) -> TableName:
    return TableName("app", name)


def innodb(*names: str) -> list[Relation]:
    return [BaseTable(app(name), "InnoDB") for name in names]


def computed(*expressions: bytes) -> BaseTable:
    """The table t with virtual columns."""
    columns = tuple(VirtualColumn(f"v{at}", text) for at, text in enumerate(expressions))
    return BaseTable(app("t"), "InnoDB", columns)


def view(name: str, body: str) -> View:
    return View(app(name), body.encode(), watched_words(body.encode()))


def trigger(table: str, body: str, sql_mode: str = "") -> Trigger:
    return Trigger(app(table), body.encode(), sql_mode, words=watched_words(body.encode()))


def cascade(parent: str, child: str, **rest: Any) -> Cascade:
    return Cascade(app(parent), app(child), **rest)


def sets(*columns: str) -> Changes:
    return Changes(frozenset(columns))


ID, UP = frozenset({"id"}), frozenset({"up"})


def catalog(
    relations: Iterable[Relation] = (),
    *,
    triggers: Iterable[Trigger] = (),
    cascades: Iterable[Cascade] = (),
    functions: Iterable[str] = (),
    routines: Iterable[StoredRoutine] = (),
    **rest: Any,
) -> Catalog:
    settings = {"flavour": "mysql", "version": (9, 7, 0), "lower_case_table_names": 0, **rest}
    server = Server(**settings)
    facts = Facts(relations, triggers, cascades)
    return Catalog.of(server, facts, Stored.of(server, functions, routines))


def written(known: Catalog, *names: str, **told: Changes) -> set[str] | None:
    """The names a write to these tables of `app` reaches, those of other schemas in full."""
    named = {app(name): changes for name, changes in told.items()}
    closure = known.writes.closure([*map(app, names), *named], named.items())
    if closure is None:
        return None
    return {name if schema == "app" else f"{schema}.{name}" for schema, name in closure}


class TestResolve:
    def test_a_bare_name_belongs_to_the_default_schema(self) -> None:
        assert catalog().server.resolve(TableRef(None, "t"), "app") == app("t")

    def test_a_name_with_a_schema_ignores_the_default_schema(self) -> None:
        assert catalog().server.resolve(TableRef("other", "t"), "app") == TableName("other", "t")

    def test_a_bare_name_without_a_default_schema_is_no_table(self) -> None:
        assert catalog().server.resolve(TableRef(None, "t"), None) is None

    def test_case_tells_tables_apart_where_the_server_compares_bytes(self) -> None:
        assert catalog().server.resolve(TableRef("App", "T"), None) == TableName("App", "T")

    @pytest.mark.parametrize("setting", [1, 2])
    def test_case_is_lost_where_the_server_compares_lower_case(self, setting: int) -> None:
        known = catalog(lower_case_table_names=setting)
        assert known.server.resolve(TableRef("App", "T"), None) == app("t")
        assert known.server.resolve(TableRef(None, "T"), "APP") == app("t")

    def test_a_final_sigma_and_a_dotted_i_are_lowered_as_the_server_does(self) -> None:
        assert catalog(lower_case_table_names=1).server.fold("ΟΔΟΣ İ") == "οδοσ i"

    def test_a_catalog_of_any_spelling_finds_its_tables_by_the_folded_name(self) -> None:
        known = catalog(
            [BaseTable(TableName("App", "T"), "InnoDB"), view("V", "select 1 from `App`.`T`")],
            lower_case_table_names=2,
            triggers=[Trigger(TableName("App", "T"), b"insert into LOG values (1)")],
        )
        assert known.reads.closure([app("v")]).tables == {app("v"), app("t")}
        assert known.reads.is_transactional(TableName("APP", "T"))


class TestReadsOfBaseTables:
    @pytest.mark.parametrize("engine", ["InnoDB", "MyISAM", "Aria", "ROCKSDB", "TokuDB", "ARCHIVE"])
    def test_tables_whose_rows_only_statements_change_are_cacheable(self, engine: str) -> None:
        closure = catalog([BaseTable(app("t"), engine)]).reads.closure([app("t")])
        assert closure.cacheable
        assert closure.reason is None
        assert not closure.may_write
        assert closure.tables == closure.base_tables == {app("t")}
        assert closure.schemas == {"app"}

    @pytest.mark.parametrize(
        "engine",
        [
            "MRG_MYISAM",
            "FEDERATED",
            "CONNECT",
            "SPIDER",
            "BLACKHOLE",
            "MEMORY",
            "CSV",
            "ndbcluster",
        ],
    )
    def test_tables_of_other_engines_are_not_cacheable(self, engine: str) -> None:
        closure = catalog([BaseTable(app("t"), engine)]).reads.closure([app("t")])
        assert not closure.cacheable
        assert engine in str(closure.reason)

    def test_a_table_the_server_cannot_open_is_not_cacheable(self) -> None:
        assert not catalog([BaseTable(app("t"), None)]).reads.closure([app("t")]).cacheable

    def test_an_unknown_name_is_not_cacheable(self) -> None:
        closure = catalog(innodb("t")).reads.closure([app("t"), app("nowhere")])
        assert closure.reason == "app.nowhere is not a table known to the catalog"
        assert not closure.may_write

    def test_a_sequence_is_not_cacheable(self) -> None:
        closure = catalog([Sequence(app("s"))]).reads.closure([app("s")])
        assert closure.reason == "app.s is a sequence"

    @pytest.mark.parametrize("schema", ["mysql", "INFORMATION_SCHEMA", "performance_schema", "sys"])
    def test_system_schemas_are_not_cacheable_even_when_listed(self, schema: str) -> None:
        name = TableName(schema, "t")
        assert not catalog([BaseTable(name, "InnoDB")]).reads.closure([name]).cacheable

    def test_a_column_computed_from_the_clock_makes_its_table_not_cacheable(self) -> None:
        table = computed(b"`a` + 1", b"current_timestamp()")
        closure = catalog([table], flavour="mariadb").reads.closure([app("t")])
        assert not closure.cacheable
        assert "app.t" in str(closure.reason)

    def test_columns_computed_from_the_row_alone_leave_a_table_cacheable(self) -> None:
        table = computed(b"`a` + 1", rb"concat('it\'s',`b`)")
        assert catalog([table]).reads.closure([app("t")]).cacheable

    def test_a_schema_beside_another_is_named_too(self) -> None:
        other = TableName("other", "t")
        known = catalog([*innodb("t"), BaseTable(other, "InnoDB")])
        assert known.reads.closure([app("t"), other]).schemas == {"app", "other"}


class TestReadsOfViews:
    def test_a_view_depends_on_its_base_tables_and_on_itself(self) -> None:
        known = catalog([*innodb("t"), view("v", "select `app`.`t`.`a` AS `a` from `app`.`t`")])
        closure = known.reads.closure([app("v")])
        assert closure.cacheable
        assert closure.base_tables == {app("t")}
        assert closure.views == {app("v")}
        assert closure.tables == {app("t"), app("v")}

    def test_nested_views_are_opened_all_the_way_down_and_across_schemas(self) -> None:
        known = catalog(
            [
                *innodb("t", "u"),
                View(TableName("inner", "v"), b"select `app`.`t`.`a` AS `a` from `app`.`t`"),
                view(
                    "w",
                    "select `v`.`a` AS `a` from (`inner`.`v` join `app`.`u`"
                    " on((`v`.`a` = `app`.`u`.`a`)))",
                ),
                view("x", "select `w`.`a` AS `a` from `app`.`w`"),
            ]
        )
        closure = known.reads.closure([app("x")])
        assert closure.cacheable
        assert closure.base_tables == {app("t"), app("u")}
        assert closure.views == {app("x"), app("w"), TableName("inner", "v")}
        assert closure.schemas == {"app", "inner"}

    def test_a_common_table_expression_in_a_body_is_no_table(self) -> None:
        body = (
            "with `c` as (select `app`.`t`.`a` AS `a` from `app`.`t`)"
            " select `c`.`a` AS `a` from `c`"
        )
        closure = catalog([*innodb("t"), view("v", body)]).reads.closure([app("v")])
        assert closure.cacheable
        assert closure.base_tables == {app("t")}

    def test_a_view_with_a_function_of_the_clock_is_not_cacheable(self) -> None:
        known = catalog([*innodb("t"), view("v", "select now() AS `n` from `app`.`t`")])
        closure = known.reads.closure([app("v")])
        assert not closure.cacheable
        assert str(closure.reason).startswith("view app.v: ")
        assert not closure.may_write

    def test_a_view_over_a_stored_function_is_not_cacheable_and_may_write(self) -> None:
        known = catalog(
            [
                *innodb("t"),
                view("v", "select `f`(`app`.`t`.`a`) AS `f(a)` from `app`.`t`"),
                view("w", "select `v`.`f(a)` AS `x` from `app`.`v`"),
            ]
        )
        for name in ("v", "w"):
            closure = known.reads.closure([app(name)])
            assert not closure.cacheable
            assert closure.may_write

    def test_a_stored_function_hides_a_function_the_server_does_not_have(self) -> None:
        body = view("v", "select upper(`app`.`t`.`a`) AS `u` from `app`.`t`")
        assert catalog([*innodb("t"), body]).reads.closure([app("v")]).cacheable
        closure = catalog([*innodb("t"), body], functions=["Upper"]).reads.closure([app("v")])
        assert not closure.cacheable
        assert closure.may_write

    def test_a_function_only_the_server_prints_is_not_cacheable_but_writes_nothing(self) -> None:
        body = (
            "select rollup_group_item(`app`.`t`.`a`,0) AS `a`,count(0) AS `n` from `app`.`t`"
            " group by `app`.`t`.`a` with rollup"
        )
        closure = catalog([*innodb("t"), view("v", body)]).reads.closure([app("v")])
        assert not closure.cacheable
        assert not closure.may_write

    def test_a_view_of_a_system_schema_is_not_cacheable(self) -> None:
        known = catalog([view("v", "select `mysql`.`user`.`User` AS `u` from `mysql`.`user`")])
        assert not known.reads.closure([app("v")]).cacheable

    def test_a_view_over_a_dropped_table_is_not_cacheable(self) -> None:
        known = catalog([view("v", "select `app`.`gone`.`a` AS `a` from `app`.`gone`")])
        assert not known.reads.closure([app("v")]).cacheable

    def test_a_body_that_does_not_parse_is_not_cacheable_and_may_write(self) -> None:
        closure = catalog([view("v", "select 'unclosed from `app`.`t`")]).reads.closure([app("v")])
        assert not closure.cacheable
        assert closure.may_write

    def test_a_hidden_body_is_not_cacheable_and_may_write(self) -> None:
        closure = catalog([View(app("v"), None)]).reads.closure([app("v")])
        assert not closure.cacheable
        assert closure.may_write

    def test_a_view_with_a_hidden_body_is_there_all_the_same(self) -> None:
        known = catalog([View(app("v"), None), view("w", "select 1 AS `a`")])
        assert known.knows(app("v"))
        assert [known.hides(app(name)) for name in ("v", "w", "x")] == [True, False, False]

    def test_views_that_name_each_other_end(self) -> None:
        known = catalog(
            [
                view("v", "select `w`.`a` AS `a` from `app`.`w`"),
                view("w", "select `v`.`a` AS `a` from `app`.`v`"),
            ]
        )
        assert known.reads.closure([app("v")]).views == {app("v"), app("w")}


class TestWrites:
    def test_a_plain_table_is_all_that_is_written(self) -> None:
        assert written(catalog(innodb("t", "u")), "t") == {"t"}

    def test_an_unknown_target_is_kept(self) -> None:
        assert written(catalog(), "nowhere") == {"nowhere"}

    def test_nothing_written_is_nothing(self) -> None:
        assert catalog(innodb("t")).writes.closure([]) == frozenset()

    def test_a_write_to_a_view_reaches_the_tables_under_it(self) -> None:
        known = catalog(
            [
                *innodb("t", "u"),
                view("v", "select `app`.`t`.`a` AS `a` from `app`.`t`"),
                view("w", "select `v`.`a` AS `a` from `app`.`v` where (`v`.`a` > 0)"),
            ]
        )
        assert written(known, "w") == {"w", "v", "t"}

    def test_a_json_duality_view_reaches_its_tables_although_its_body_is_no_plain_sql(self) -> None:
        body = (
            "select json_duality_object( WITH (INSERT,UPDATE,DELETE) '_id':`app`.`t`.`id`) AS"
            " `Name_exp_1` from `app`.`t`"
        )
        known = catalog([*innodb("t"), view("v", body)])
        assert written(known, "v") == {"v", "t"}
        assert not known.reads.closure([app("v")]).cacheable
        assert not known.reads.closure([app("v")]).may_write

    def test_a_write_to_a_view_with_a_hidden_body_may_reach_anything(self) -> None:
        assert written(catalog([View(app("v"), None)]), "v") is None

    def test_a_write_to_a_view_over_a_stored_function_may_reach_anything(self) -> None:
        known = catalog([*innodb("t"), view("v", "select `f`(1) AS `x` from `app`.`t`")])
        assert written(known, "v") is None

    @pytest.mark.parametrize("engine", ["MRG_MYISAM", "FEDERATED", "CONNECT", "SPIDER", None])
    def test_an_engine_that_stores_rows_elsewhere_may_reach_anything(
        self, engine: str | None
    ) -> None:
        assert written(catalog([BaseTable(app("t"), engine)]), "t") is None

    @pytest.mark.parametrize("engine", ["MyISAM", "MEMORY", "CSV", "BLACKHOLE"])
    def test_an_engine_with_its_own_rows_reaches_itself_alone(self, engine: str) -> None:
        assert written(catalog([BaseTable(app("t"), engine)]), "t") == {"t"}

    def test_an_unknown_table_may_be_a_merge_table(self) -> None:
        merged = BaseTable(app("m"), "MyISAM"), BaseTable(TableName("mysql", "s"), "MyISAM")
        known = catalog([*innodb("t"), *merged])
        assert known.writes.by_unknown == frozenset({app("m")})
        assert known.writes.schemas_by_unknown == frozenset({"app"})
        assert catalog(innodb("t")).writes.by_unknown == frozenset()

    def test_an_unknown_table_may_be_of_any_engine_that_there_is(self) -> None:
        leading = catalog(innodb("t"), has_leading_engines=True)
        assert leading.writes.by_unknown is None
        assert leading.writes.schemas_by_unknown is None

    def test_an_account_that_sees_too_little_makes_every_write_reach_anything(self) -> None:
        known = catalog(innodb("t"), triggers_visible=False)
        assert written(known, "t") is None
        assert known.reads.closure([app("t")]).cacheable

    def test_an_account_that_sees_too_little_makes_no_view_cacheable(self) -> None:
        known = catalog(
            [*innodb("t"), view("v", "select `app`.`t`.`a` AS `a` from `app`.`t`")],
            triggers_visible=False,
        )
        assert not known.reads.closure([app("v")]).cacheable


class TestTriggers:
    def test_a_trigger_writes_what_it_names(self) -> None:
        known = catalog(
            innodb("t", "log", "u"), triggers=[trigger("t", "insert into log values (NEW.a)")]
        )
        assert written(known, "t") == {"t", "log"}
        assert written(known, "u") == {"u"}

    def test_a_chain_of_triggers_is_followed_to_its_end(self) -> None:
        known = catalog(
            innodb("a", "b", "c", "d"),
            triggers=[
                trigger("a", "insert into b values (1)"),
                trigger("b", "begin if NEW.x > 1 then update c set x = x + 1; end if; end"),
                trigger("c", "delete from d where x = OLD.x"),
                trigger("d", "insert into a values (1)"),
            ],
        )
        assert written(known, "b") == {"a", "b", "c", "d"}

    def test_every_trigger_of_a_table_counts(self) -> None:
        known = catalog(
            innodb("t", "x", "y"),
            triggers=[
                trigger("t", "insert into x values (1)"),
                trigger("t", "insert into y values (1)"),
            ],
        )
        assert written(known, "t") == {"t", "x", "y"}

    def test_a_trigger_writes_into_other_schemas(self) -> None:
        log = TableName("audit", "log")
        known = catalog(
            [*innodb("t", "log"), BaseTable(log, "InnoDB")],
            triggers=[trigger("t", "insert into audit.log (a) values (NEW.a)")],
        )
        assert written(known, "t") == {"t", "audit.log"}

    def test_a_bare_name_belongs_to_the_schema_of_the_trigger(self) -> None:
        other, log = TableName("other", "t"), TableName("other", "log")
        known = catalog(
            [*innodb("log"), BaseTable(other, "InnoDB"), BaseTable(log, "InnoDB")],
            triggers=[Trigger(other, b"insert into log values (1)")],
        )
        assert known.writes.closure([other]) == frozenset({other, log})

    def test_a_table_named_with_its_column_is_seen(self) -> None:
        known = catalog(
            innodb("t", "u"), triggers=[trigger("t", "update u set `app`.`u`.`a` = app.u.b")]
        )
        assert written(known, "t") == {"t", "u"}

    def test_a_trigger_that_writes_a_view_reaches_the_tables_under_it(self) -> None:
        known = catalog(
            [*innodb("t", "u"), view("v", "select `app`.`u`.`a` AS `a` from `app`.`u`")],
            triggers=[trigger("t", "insert into v values (1)")],
        )
        assert written(known, "t") == {"t", "v", "u"}

    @pytest.mark.parametrize(
        "body",
        [
            "call work()",
            "begin declare x int; call app.work(x); end",
            "set @a = stored_thing(NEW.a)",
            "set @a = app.stored_thing(NEW.a)",
            "set @a = app.upper(NEW.a)",
            "insert into u values ('unclosed)",
        ],
    )
    def test_a_trigger_that_runs_what_cannot_be_seen_may_reach_anything(self, body: str) -> None:
        known = catalog(innodb("t", "u"), triggers=[trigger("t", body)])
        assert written(known, "t") is None
        assert written(known, "u") == {"u"}

    def test_a_trigger_that_calls_a_name_known_as_stored_may_reach_anything(self) -> None:
        body = trigger("t", "set @a = upper(NEW.a)")
        assert written(catalog(innodb("t"), triggers=[body]), "t") == {"t"}
        assert written(catalog(innodb("t"), triggers=[body], functions=["UPPER"]), "t") is None

    def test_column_lists_declarations_and_control_flow_are_no_calls(self) -> None:
        body = """begin
            declare n tinyint(1) default 0; declare d datetime(6); declare k integer(3);
            if (NEW.a > 1) then insert into history (a, b) values (NEW.a, upper(NEW.b));
            elseif (NEW.a < 0) then replace `app`.`audit` (a) values (coalesce(OLD.a, 1));
            end if;
            repeat set n = n + 1; until (n > 3) end repeat;
            while (n > 0) do set n = n - 1; end while;
        end"""
        known = catalog(
            innodb("t", "history", "audit"), triggers=[trigger("t", body, "STRICT_ALL_TABLES")]
        )
        assert written(known, "t") == {"t", "history", "audit"}

    def test_a_body_is_read_in_its_own_sql_mode(self) -> None:
        body = 'insert into "u" values (1)'
        ansi = catalog(innodb("t", "u"), triggers=[trigger("t", body, "REAL_AS_FLOAT,ANSI_QUOTES")])
        assert written(ansi, "t") == {"t", "u"}

    def test_a_body_of_backslashes_that_escape_nothing_is_read_so(self) -> None:
        body = r"begin set @a = 'c:\'; insert into u values ('x'); end"
        known = catalog(
            innodb("t", "u"), triggers=[trigger("t", body, "NO_BACKSLASH_ESCAPES,ANSI_QUOTES")]
        )
        assert written(known, "t") == {"t", "u"}

    def test_a_body_in_oracle_mode_may_reach_anything_since_it_calls_without_call(self) -> None:
        known = catalog(
            innodb("t"),
            flavour="mariadb",
            triggers=[trigger("t", "begin work; end", "PIPES_AS_CONCAT,ORACLE")],
        )
        assert written(known, "t") is None

    def test_a_versioned_comment_in_a_body_may_hold_any_code(self) -> None:
        known = catalog(
            innodb("t", "u"), triggers=[trigger("t", "begin /*!50000 delete from u */; end")]
        )
        assert written(known, "t") is None


class TestForeignKeys:
    def test_children_and_grandchildren_are_written(self) -> None:
        known = catalog(innodb("a", "b", "c", "d"), cascades=[cascade("a", "b"), cascade("b", "c")])
        assert written(known, "a") == {"a", "b", "c"}
        assert written(known, "c") == {"c"}

    def test_a_table_that_refers_to_itself_ends(self) -> None:
        assert written(catalog(innodb("t"), cascades=[cascade("t", "t")]), "t") == {"t"}

    def test_a_cycle_ends(self) -> None:
        known = catalog(
            innodb("a", "b", "c"),
            cascades=[cascade("a", "b"), cascade("b", "c"), cascade("c", "a")],
        )
        assert written(known, "b") == {"a", "b", "c"}

    def test_only_who_deletes_or_sets_what_is_referred_to_writes_children(self) -> None:
        known = catalog(innodb("a", "b"), cascades=[cascade("a", "b", referred=ID, columns=UP)])
        for changes in (ADDS, sets("x"), sets("up")):
            assert written(known, a=changes) == {"a"}
        for changes in (DELETES, sets("x", "id"), Changes(None), ANYTHING):
            assert written(known, a=changes) == {"a", "b"}

    def test_where_it_is_not_known_to_what_it_refers_any_column_is_followed(self) -> None:
        known = catalog(innodb("a", "b"), cascades=[cascade("a", "b")])
        assert written(known, a=ADDS) == {"a"}
        assert written(known, a=sets("x")) == {"a", "b"}

    @pytest.mark.parametrize("refuses", ["RESTRICT", "NO ACTION"])
    def test_each_rule_is_followed_for_itself(self, refuses: str) -> None:
        keys: dict[str, Any] = {"referred": ID, "columns": UP}
        deleted = catalog(innodb("a", "b"), cascades=[cascade("a", "b", on_update=refuses, **keys)])
        assert written(deleted, a=DELETES) == {"a", "b"}
        assert written(deleted, a=Changes(None)) == {"a"}
        moved = catalog(innodb("a", "b"), cascades=[cascade("a", "b", on_delete=refuses, **keys)])
        assert written(moved, a=DELETES) == {"a"}
        assert written(moved, a=sets("id")) == {"a", "b"}

    @pytest.mark.parametrize("rule", ["SET NULL", "SET DEFAULT"])
    def test_a_key_that_is_set_to_null_is_followed_as_one_that_is_set(self, rule: str) -> None:
        known = catalog(
            innodb("a", "b", "of_key", "of_other", "of_rows"),
            cascades=[
                cascade("a", "b", on_delete=rule, referred=ID, columns=UP),
                cascade("b", "of_key", on_delete="RESTRICT", referred=UP),
                cascade("b", "of_other", on_delete="RESTRICT", referred=ID),
                cascade("b", "of_rows", on_update="RESTRICT", referred=UP),
            ],
        )
        assert written(known, a=DELETES) == {"a", "b", "of_key"}

    def test_rows_that_are_deleted_with_others_are_followed_as_such(self) -> None:
        known = catalog(
            innodb("a", "b", "of_key", "of_rows"),
            cascades=[
                cascade("a", "b", referred=ID, columns=UP),
                cascade("b", "of_key", on_delete="RESTRICT", referred=UP),
                cascade("b", "of_rows", on_update="RESTRICT", referred=UP),
            ],
        )
        assert written(known, a=DELETES) == {"a", "b", "of_rows"}
        assert written(known, a=sets("id")) == {"a", "b", "of_key"}

    def test_a_table_that_is_reached_twice_is_followed_for_both(self) -> None:
        known = catalog(
            innodb("a", "b", "c"),
            cascades=[
                cascade("a", "b", referred=ID, columns=UP),
                cascade("b", "c", referred=UP, on_delete="RESTRICT"),
            ],
        )
        assert written(known, a=DELETES) == {"a", "b"}
        assert written(known, a=DELETES, b=sets("up")) == {"a", "b", "c"}
        assert written(known, "b", a=DELETES) == {"a", "b", "c"}

    def test_a_table_that_refers_to_itself_is_followed_up_to_the_end(self) -> None:
        known = catalog(
            innodb("t", "c"),
            cascades=[
                cascade("t", "t", referred=ID, columns=UP),
                cascade("t", "c", referred=UP, on_delete="RESTRICT"),
            ],
        )
        assert written(known, t=sets("id")) == {"t", "c"}
        assert not known.writes.are_as_told(app("t"), sets("id"))
        assert known.writes.are_as_told(app("t"), ADDS)

    def test_a_trigger_on_the_table_may_set_any_column(self) -> None:
        known = catalog(
            innodb("a", "b"),
            cascades=[cascade("a", "b", referred=ID)],
            triggers=[trigger("a", "SET NEW.id = 1")],
        )
        assert written(known, a=ADDS) == {"a", "b"}

    def test_what_the_server_sets_along_is_followed(self) -> None:
        table = BaseTable(app("a"), "InnoDB", set_along=ID)
        known = catalog([table, *innodb("b")], cascades=[cascade("a", "b", referred=ID)])
        assert written(known, a=sets("x")) == {"a", "b"}
        assert written(known, a=ADDS) == {"a"}

    def test_of_a_table_that_is_not_known_any_column_may_be_set_along(self) -> None:
        known = catalog(innodb("b"), cascades=[cascade("a", "b", referred=ID)])
        assert written(known, a=sets("x")) == {"a", "b"}

    def test_through_a_view_any_column_may_be_set(self) -> None:
        body = "select `app`.`a`.`id` AS `x` from `app`.`a`"
        known = catalog([*innodb("a", "b"), view("v", body)], cascades=[cascade("a", "b")])
        assert written(known, v=ADDS) == {"v", "a", "b"}

    def test_a_child_in_another_schema_is_written(self) -> None:
        child = TableName("other", "child")
        known = catalog(
            [*innodb("t"), BaseTable(child, "InnoDB")], cascades=[Cascade(app("t"), child)]
        )
        assert written(known, "t") == {"t", "other.child"}

    def test_triggers_of_children_count(self) -> None:
        known = catalog(
            innodb("parent", "child", "log"),
            cascades=[cascade("parent", "child")],
            triggers=[trigger("child", "insert into log values (1)")],
        )
        assert written(known, "parent") == {"parent", "child", "log"}

    def test_cascades_of_what_a_trigger_writes_count(self) -> None:
        known = catalog(
            innodb("t", "parent", "child"),
            cascades=[cascade("parent", "child")],
            triggers=[trigger("t", "delete from parent")],
        )
        assert written(known, "t") == {"t", "parent", "child"}


class TestTransactions:
    def test_the_engine_decides(self) -> None:
        known = catalog([BaseTable(app("t"), "InnoDB"), BaseTable(app("m"), "MyISAM")])
        assert known.reads.is_transactional(app("t"))
        assert not known.reads.is_transactional(app("m"))

    def test_an_engine_called_transactional_by_the_server_is(self) -> None:
        known = catalog(
            [BaseTable(app("t"), "ROCKSDB")], transactional_engines=frozenset({"rocksdb"})
        )
        assert known.reads.is_transactional(app("t"))

    def test_unknown_tables_and_sequences_are_not(self) -> None:
        known = catalog([Sequence(app("s"))])
        assert not known.reads.is_transactional(app("s"))
        assert not known.reads.is_transactional(app("nowhere"))

    def test_a_view_is_when_all_its_tables_are(self) -> None:
        known = catalog(
            [
                *innodb("t"),
                BaseTable(app("m"), "MyISAM"),
                view("v", "select `app`.`t`.`a` AS `a` from `app`.`t`"),
                view("w", "select `v`.`a` AS `a` from (`app`.`v` join `app`.`m`)"),
            ]
        )
        assert known.reads.is_transactional(app("v"))
        assert not known.reads.is_transactional(app("w"))


def procedure(name: str, body: str, schema: str = "app", **rest: Any) -> StoredRoutine:
    rest["words"] = watched_words(body.encode())
    return StoredRoutine(TableName(schema, name), is_function=False, body=body.encode(), **rest)


def function(name: str, body: str, schema: str = "app") -> StoredRoutine:
    return StoredRoutine(TableName(schema, name), is_function=True, body=body.encode())


class TestReach:
    """What a CALL of `app.p` may write."""

    @staticmethod
    def called(*routines: StoredRoutine, **rest: Any) -> set[str] | None:
        known = catalog(innodb("t", "u"), routines=routines, **rest)
        reach = known.code.reach(TableRef(None, "p"), (), "app")
        return None if reach is None else {name for _, name in reach.tables}

    def test_it_is_the_tables_its_body_names(self) -> None:
        assert self.called(procedure("P", "UPDATE t SET v = UPPER(v)")) == {"t"}

    def test_it_goes_on_through_what_the_body_calls(self) -> None:
        last = function("f", "BEGIN DELETE FROM u; RETURN 1; END")
        assert self.called(procedure("p", "CALL q()"), procedure("q", "SELECT f()"), last) == {"u"}
        assert self.called(procedure("p", "CALL p()")) == set()

    def test_a_name_that_nobody_has_writes_nothing(self) -> None:
        assert self.called(procedure("p", "SELECT new_built_in(1)")) == set()
        assert self.called(procedure("p", "SELECT f(1)"), functions=["F"]) is None

    @pytest.mark.parametrize(
        "body",
        [
            "CALL q()",
            "CALL sys.x()",
            "SELECT f\u00e9()",
            "SELECT other.f()",
            "DELETE FROM elsewhere.t",
        ],
    )
    def test_what_is_not_known_may_write_anything(self, body: str) -> None:
        assert self.called(procedure("p", body)) is None

    def test_what_may_not_be_seen_or_changes_more_than_rows_may_write_anything(self) -> None:
        hidden = StoredRoutine(app("p"), is_function=False, body=None)
        assert self.called(hidden) is None
        assert self.called(procedure("p", "DO 1", unruly=True)) is None
        assert self.called(procedure("p", "DO 1"), triggers_visible=False) is None

    def test_a_package_may_have_the_name_of_a_schema(self) -> None:
        known = procedure("p", "CALL b.q()"), procedure("q", "DO 1", "b")
        assert self.called(*known, functions=["c"]) == set()
        assert self.called(*known, functions=["B"]) is None

    def test_an_alias_is_no_schema(self) -> None:
        assert self.called(procedure("p", "UPDATE t AS o JOIN u SET o.v = u.v")) == {"t", "u"}

    def test_it_tells_which_schemas_define_it(self) -> None:
        known = catalog(routines=[procedure("p", "CALL b.q()"), procedure("q", "DO 1", "b")])
        reach = known.code.reach(TableRef(None, "p"), (), "app")
        assert reach is not None
        assert reach.schemas == {"app", "b"}


@pytest.mark.parametrize(
    "body", ["SIGNAL SQLSTATE '1' SET mysql_errno = 1", "EXECUTE s", "CALL sys.x()"]
)
def test_code_that_raises_errors_as_it_likes_is_known(body: str) -> None:
    assert catalog(routines=[procedure("p", body)]).code.may_feign_errors
    assert catalog(triggers=[trigger("t", body)]).code.may_feign_errors
    assert not catalog(routines=[procedure("p", "UPDATE t SET v = 1")]).code.may_feign_errors
    assert catalog([View(app("v"), None)]).code.may_feign_errors


def test_what_asks_for_the_statement_before_is_known() -> None:
    known = catalog(
        [*innodb("t", "u"), view("v", "select found_rows() AS `a`"), View(app("hidden"), None)],
        triggers=[trigger("t", "SET @a = ROW_COUNT()")],
    ).code
    assert known.looks_back([app("v")], ()) == {b"FOUND_ROWS"}
    assert known.looks_back([app("hidden")], ()) == {b"FOUND_ROWS", b"ROW_COUNT"}
    assert known.looks_back([app("u")], [app("t")]) == {b"ROW_COUNT"}
    assert not known.looks_back([app("t")], [app("u")])


def test_a_view_that_locks_leaves_something() -> None:
    relations = [view("v", "select get_lock('a',1) AS `a`"), view("w", "select 1 AS `get_locks`")]
    known = catalog([*relations, View(app("hidden"), None)]).code
    leaves = [known.may_leave_something([app(name)], ()) for name in ("v", "w", "hidden")]
    assert leaves == [True, False, True]


class TestSnapshots:
    def test_another_rule_of_a_foreign_key_makes_another_catalog(self) -> None:
        known = [
            catalog(innodb("t"), cascades=[cascade("t", "t", **rest)])
            for rest in ({}, {"on_delete": "RESTRICT"}, {"referred": ID}, {"columns": UP})
        ]
        assert all(one != other for one, other in combinations(known, 2))

    def test_a_child_that_is_read_again_leads_no_more_where_its_key_is_gone(self) -> None:
        known = catalog(innodb("a", "b"), cascades=[cascade("a", "b", referred=ID)])
        again = known.renewed([app("b")], (), Facts(innodb("b")))
        assert not again.writes.leads(app("a"))
        assert written(again, "a") == {"a"}

    def test_one_in_which_more_is_known_leaves_the_one_before_as_it_was(self) -> None:
        known = catalog(innodb("a", "b"), triggers=[trigger("a", "delete from b")])
        key, added = cascade("b", "c"), trigger("a", "delete from c")
        again = known.renewed([app("c")], (), Facts(innodb("c"), [added], [key]))
        assert written(again, "a") == {"a", "b", "c"}
        assert written(known, "a") == {"a", "b"}
        assert again != known

    def test_catalogs_of_the_same_facts_in_any_order_are_equal(self) -> None:
        triggers = [trigger("t", "delete from u"), trigger("t", "delete from t")]
        one = catalog(innodb("t", "u"), triggers=triggers, functions=["F"])
        other = catalog(innodb("u", "t"), triggers=triggers[::-1], functions=["f"])
        assert one == other

    @pytest.mark.parametrize(
        "change",
        [
            {"relations": [BaseTable(app("t"), "MyISAM")]},
            {"triggers": [trigger("t", "delete from t")]},
            {"cascades": [cascade("t", "t")]},
            {"relations": [BaseTable(app("t"), "InnoDB", set_along=ID)]},
            {"functions": ["f"]},
            {"routines": [procedure("p", "DO 1")]},
            {"triggers_visible": False},
        ],
    )
    def test_any_fact_that_differs_makes_another_catalog(self, change: dict[str, Any]) -> None:
        assert catalog(**{"relations": innodb("t"), **change}) != catalog(innodb("t"))

    def test_its_schemas_are_those_with_something_in_them(self) -> None:
        known = catalog([*innodb("t"), Sequence(TableName("Other", "s"))], lower_case_table_names=1)
        assert known.schemas == {"app", "other"}


def test_a_trigger_that_calls_a_declared_function_writes_what_that_writes() -> None:
    triggers = [trigger("orders", "SET NEW.v = count_up(NEW.id)")]
    tables = innodb("orders", "counters")
    writes = frozenset({TableRef("app", "counters")})
    declared = [Routine("app", "count_up", writes=writes)]
    assert written(catalog(tables, triggers=triggers), "orders") is None
    known = catalog(tables, triggers=triggers, functions=["count_up"], declared=frozenset(declared))
    assert written(known, "orders") == {"orders", "counters"}


def test_a_views_body_is_analysed_once_for_all_catalogs() -> None:
    view = View(TableName("s", "v"), b"select `s`.`t`.`once` AS `once` from `s`.`t`")
    before = reads._analysed.cache_info().misses
    for _ in range(5):
        known = catalog([BaseTable(TableName("s", "t"), "InnoDB"), view])
        assert known.reads.closure([view.name]).cacheable
    assert reads._analysed.cache_info().misses - before == 1


def code_names(text: str | None, **settings: Any) -> bool:
    body = b"select f() AS `a`"
    views = [View(app("calls"), body), View(app("odd one"), body)]
    views.append(View(app("plain"), b"select `app`.`t`.`a` AS `a` from `app`.`t`"))
    known = {"flavour": "mariadb", "functions": ["f", "a b", "x`y"], **settings}
    return catalog([*innodb("t"), *views], **known).code.may_be_called_by(text)


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("SELECT ROUND(1.5, F())", True),
        ("SELECT ROUND(1.5, app . f())", True),
        ("SELECT /*!50000f()*/", True),
        ("SELECT `a b`()", True),
        ("SELECT `x``y`()", True),
        ("SELECT * FROM Calls", True),
        ("SELECT * FROM `odd one`", True),
        ("SELECT '\u00e9'", True),
        (None, True),
        ("SELECT 1" + " " * 100_000, True),
        ("SELECT * FROM plain, t", False),
        ("SELECT off, f1, ff FROM t", False),
    ],
)
def test_a_text_may_call_what_it_names(text: str | None, may: bool) -> None:
    assert code_names(text) is may
    assert not code_names(text, functions=[])
    assert code_names(text, triggers_visible=False)


def test_of_views_that_a_text_does_not_name_none_is_read() -> None:
    views = [View(app(f"v{n}"), b"select f(%d) AS `a`" % n) for n in range(200)]
    known = catalog(views, flavour="mariadb", functions=["f"])
    before = reads._analysed.cache_info()
    assert not known.code.may_be_called_by("SELECT 1")
    assert reads._analysed.cache_info() == before
