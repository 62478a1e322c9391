"""docs/settings.md lists all settings, docs/metrics.md all metrics, and no more: `python -m
tests.test_docs` writes both."""

import ast
import inspect
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import PydanticUndefined
from pydantic_core.core_schema import IsInstanceSchema

from sqlcache.metric_kinds import Declaration
from sqlcache.metrics import Metrics, declarations
from sqlcache.rules import declared_of, policy_of
from sqlcache.settings import RoutineSettings, RuleSettings, Settings
from sqlcache.settings.sources import SHORT_NAMES, from_arguments, load
from sqlcache.sql.policy import read_shape

_TOML = re.compile(r"```toml\n(.*?)```", re.DOTALL)
DOCS = Path(__file__).parents[1] / "docs"
HEAD = """# Settings

Each setting can be given, the later of these winning, in `sqlcache.toml` (or the file that
`--config` or `SQLCACHE_CONFIG` names), in the environment as `SQLCACHE_SECTION__NAME`, and some as
a flag. Those have a short name in the environment, too: `proxy.tls_key` is `--tls-key`,
`SQLCACHE_TLS_KEY` or `SQLCACHE_PROXY__TLS_KEY`; both of the latter at once are refused, as given
twice. There nodes are a list with commas, `SQLCACHE_MEMCACHED=10.0.0.5:11211,10.0.0.6:11211`, and
rules and routines JSON, in `SQLCACHE_RULES` and `SQLCACHE_ROUTINES`. A number of bytes may be given
as `"64MiB"`, or with KiB or GiB.
A setting that there is not is refused; a variable that only begins with `SQLCACHE_` is a warning.
`sqlcache check-config` with the same flags prints every value and where it came from, or says what
is wrong; with `--connect` it also asks MySQL and memcached, whether the tables and schemas that
rules name are there, and whether the account of `upstream.url` has
[the rights it needs](install.md#before-an-account-and-a-memcached), also to follow the
[binary log](binlog.md).

```toml
[upstream]
url = "mysql://sqlcache:secret@127.0.0.1:3306"

[memcached]
nodes = ["127.0.0.1:11211", "127.0.0.1:11212"]

[cache]
ttl_s = 600
```
"""


def settings_page() -> str:
    """The page, from the settings themselves."""
    flags = {path: f"--{name.replace('_', '-')}" for name, path in SHORT_NAMES.items()}
    parts = [HEAD]
    may_be_auto = from_arguments(
        {"upstream.url": "mysql://cat@127.0.0.1", "memcached.nodes": "memory"}
    ).automatic()
    sections: dict[str, Any] = {n: f.annotation for n, f in Settings.model_fields.items()}
    lists = {"rules": RuleSettings, "routines": RoutineSettings}
    for section, model in {**sections, **lists}.items():
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        title = f"[[{section}]]" if section in lists else f"[{section}]"
        parts.append(f"\n## {title}\n\n{inspect.getdoc(model)}\n")
        parts.append("\n| name | flag | default | limits | meaning |\n")
        parts.append("| --- | --- | --- | --- | --- |\n")
        limits = model.model_json_schema(schema_generator=_Limits)["properties"]
        for name, value in model.model_fields.items():
            automatic = f"{section}.{name}" in may_be_auto
            default = "auto" if automatic and value.default is None else value.default
            flag = flags.get(f"{section}.{name}", "")
            shown = f"`{flag}`" if flag else ""
            called = value.alias or name
            within = _limits(limits[called]) + (", or `auto`" if automatic else "")
            parts.append(
                f"| `{called}` | {shown} | {_default(default)} | {within} | {value.description} |\n"
            )
    return "".join(parts)


class _Limits(GenerateJsonSchema):
    def is_instance_schema(self, schema: IsInstanceSchema) -> JsonSchemaValue:
        return {}  # of an address or URL: its text has a form, and no limits

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        pass  # of defaults that are no JSON: they have a column of their own


def _limits(schema: JsonSchemaValue) -> str:
    schema = schema.get("anyOf", [schema])[0]
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if "pattern" in schema:
        return f"`{schema['pattern']}`"
    unit = " characters" if "minLength" in schema else ""
    least = schema.get("minimum", schema.get("minLength"))
    above = schema.get("exclusiveMinimum")
    most = schema.get("maximum")
    if least is None and above is None:
        assert most is None
        return ""
    begin = f"above {above:.0f}," if least is None else f"{least:.0f}"
    return f"{begin} to {most:.0f}" if most is not None else f"{begin} or more{unit}"


def _default(value: object) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "none"
    # As in TOML, which writes all these as JSON does.
    return f"`{json.dumps(value, default=str)}`"


METRICS_HEAD = """# Metrics

What `/metrics` at `admin.listen` shows Prometheus, of all processes of one `serve` together: gauges
are summed, too. [docker/prometheus](../docker/prometheus) has alerts on them,
[docker/grafana](../docker/grafana) a dashboard, and [operations](operations.md#alerts) what to do
when one fires.

Counters never fall while the `serve` runs, and begin at 0 with it. Histograms are in seconds, in
classes of 10 µs, 25 µs, 50 µs and so on to 5 s: `…_bucket`, `…_sum` and `…_count`. Labels have few
values: nothing that clients send is one.

`sqlcache_build_info` has the running version, and whether its kernel is compiled.

| name | unit | what it is | normal | else |
| --- | --- | --- | --- | --- |
"""
_METRIC = re.compile(r"\b(?:sqlcache|process)_\w+")


def metrics_page() -> str:
    """The page, from the declarations."""
    return METRICS_HEAD + "".join(_metric_row(name, each) for name, each in declarations())


def _metric_row(name: str, declared: Declaration) -> str:
    ending = "_total" if declared.kind == "counter" else ""
    label = f"{{{declared.label}}}" if declared.label else ""
    texts = (declared.help, declared.normal, declared.otherwise)
    told = [declared.unit, *(_METRIC.sub(r"`\g<0>`", text) for text in texts)]
    return f"| `{declared.exposed(name)}{ending}{label}` | {' | '.join(told)} |\n"


def anchors(page: Path) -> set[str]:
    """What GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ +(.+?) *$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_the_metrics_page_says_what_the_metrics_are() -> None:
    assert (DOCS / "metrics.md").read_text() == metrics_page()


def test_every_metric_says_its_unit_what_is_normal_and_what_to_do() -> None:
    for name, each in declarations():
        assert all((each.unit, each.normal, each.otherwise)), name
        assert each.help.endswith("."), name
        assert "|" not in each.help + each.normal + each.otherwise, name
        assert len(each.help) < 200, name


def test_what_the_pages_link_to_is_there() -> None:
    broken = []
    for page in [*DOCS.glob("*.md"), *DOCS.parent.glob("*.md")]:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            path, _, anchor = link.partition("#")
            if "://" in link:
                continue
            target = (page.parent / path).resolve() if path else page
            there = target.exists() and (not anchor or anchor in anchors(target))
            broken += [] if there else [f"{page.name}: {link}"]
    assert broken == []


def test_the_readme_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)", (DOCS.parent / "README.md").read_text()))
    assert {page.name for page in DOCS.glob("*.md")} - linked == set()


def test_the_readme_has_each_module_and_folder_of_the_code() -> None:
    _, _, section = (DOCS.parent / "README.md").read_text().partition("\n## The code\n")
    rows = re.findall(r"^\| (`sqlcache/[^|]+) \|", section, re.MULTILINE)
    named = re.findall(r"`(?:sqlcache/)?([\w.]+/?)`", "".join(rows))
    there = {
        f"{each.name}/" if each.is_dir() else each.name
        for each in (DOCS.parent / "sqlcache").iterdir()
        if each.suffix == ".py" or each.joinpath("__init__.py").exists()
    }
    assert sorted(named) == sorted(there - {"__init__.py", "__main__.py"})


def test_the_settings_page_says_what_the_settings_are() -> None:
    assert (DOCS / "settings.md").read_text() == settings_page()


def test_defaults_are_shown_as_the_file_has_them() -> None:
    shown = re.findall(r"^\| `\w+` \| [^|]* \| `(.+?)` \|", settings_page(), re.MULTILINE)
    assert {"false", '"127.0.0.1:3307"', '"auto"', "[]"} < set(shown)
    for value in shown:
        tomllib.loads(f"value = {value}")


def test_limits_are_shown_as_the_settings_have_them() -> None:
    rows = [line.split(" | ") for line in settings_page().splitlines() if line.startswith("| `")]
    limits = {(row[0].strip("| `"), row[3].strip()) for row in rows}
    assert {
        ("workers", "1 to 256, or `auto`"),
        ("max_statement_bytes", "1024 or more"),
        ("timeout_s", "above 0, to 86400"),
        ("outage_s", "2 to 86400"),
        ("secret", "16 or more characters"),
        ("schema", "1 or more characters"),
        ("data_set", "`^[!-~]{1,64}$`"),
        ("mode", "`on`, `shadow`, `off`"),
        ("max_staleness_ms", "0 to 86400000"),
        ("url", ""),
    } <= limits


def test_what_the_documents_name_is_there() -> None:
    """Metrics, and the tests that how-it-works.md calls as witnesses."""
    pages = [*DOCS.glob("*.md"), DOCS.parent / "README.md"]
    text = "".join(page.read_text() for page in pages)
    exposed = Metrics().render().decode()
    assert [name for name in re.findall(r"`(sqlcache_\w+)`", text) if name not in exposed] == []
    tests = "".join(file.read_text() for file in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in tests] == []


def bypass_reasons() -> set[str]:
    """Whatever `went_past` may be given: what the code makes causes and `Bypass`es of."""
    trees = [ast.parse(file.read_text()) for file in DOCS.parent.glob("sqlcache/**/*.py")]
    constants: dict[str, str] = {
        target.id: assigned.value.value
        for tree in trees
        for assigned in tree.body
        if isinstance(assigned, ast.Assign)
        if isinstance(assigned.value, ast.Constant) and isinstance(assigned.value.value, str)
        for target in assigned.targets
        if isinstance(target, ast.Name)
    }
    found: set[str] = set()
    for each in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(each, ast.Call) and each.args and _names_a_reason(each.func):
            match each.args[0]:
                case ast.Constant(value=str(reason)):
                    found.add(reason)
                case ast.Name(id="reason"):
                    pass  # by a function below
                case ast.Name(id=name):
                    found.add(constants[name])
                case other:
                    raise AssertionError(ast.unparse(other))
        elif isinstance(each, ast.FunctionDef) and each.name in (
            "bypass_reason",
            "_find_hindrance",
        ):
            returned = (part.value for part in ast.walk(each) if isinstance(part, ast.Return))
            found |= {
                value.value
                for value in returned
                if isinstance(value, ast.Constant) and isinstance(value.value, str)
            }
    return found


def _names_a_reason(called: ast.expr) -> bool:
    return ast.unparse(called) in ("NotCacheable", "NotCacheable.since", "Bypass")


def test_the_reasons_of_bypasses_are_those_that_the_page_explains() -> None:
    page = (DOCS / "caching-rules.md").read_text()
    _, _, section = page.partition("### The reasons in the metrics\n")
    section, _, _ = section.partition("\n### ")
    explained = re.findall(r"^\| `([^|`]+)` \| \S", section.partition("--- |")[2], re.MULTILINE)
    assert sorted(explained) == sorted(bypass_reasons())


def test_the_runbook_of_bypasses_and_its_alert_speak_of_reasons_that_there_are() -> None:
    """And the runbook of none that the alert leaves out."""
    rules = (DOCS.parent / "docker" / "prometheus" / "sqlcache.rules.yaml").read_text()
    (left_out,) = re.findall(r'reason!~"([^"]+)"', rules)
    assert set(left_out.split("|")) <= bypass_reasons()
    page = (DOCS / "operations.md").read_text()
    _, _, runbook = page.partition("### SqlcacheBypassesDominate\n")
    runbook, _, _ = runbook.partition("\n### ")
    named = {" ".join(each.split()) for each in re.findall(r"(?<!\*)\*(\w[^*]*)\*(?!\*)", runbook)}
    assert len(named) > 5, "else this shows nothing"
    assert named <= bypass_reasons() - set(left_out.split("|"))


def test_the_examples_of_settings_are_right(tmp_path: Path) -> None:
    examples = [e for page in DOCS.glob("*.md") for e in _TOML.findall(page.read_text())]
    assert len(examples) > 3, "else this shows nothing"
    for example in examples:
        file = tmp_path / "sqlcache.toml"
        file.write_text(example)
        flags = {"upstream": "mysql://cat@127.0.0.1:1", "memcached": ["memory"]}
        settings = load(file, {}, flags if "[upstream]" not in example else {}).settings
        policy_of(settings)
        declared_of(settings)


def test_explained_statements_are_in_the_form_that_explain_prints() -> None:
    page = (DOCS / "caching-rules.md").read_text()
    examples = re.findall(r'^\$ sqlcache explain "(.+)" .*\nstatement  (.+)$', page, re.MULTILINE)
    assert len(examples) > 2, "else this shows nothing"
    for statement, shown in examples:
        assert read_shape(statement).decode() == shown


def test_the_python_in_the_documents_is_python() -> None:
    for page in [*DOCS.glob("*.md"), DOCS.parent / "README.md"]:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            compile(block, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_what_the_pages_install_is_the_checkout_or_what_that_wants() -> None:
    """By the name alone a registry gives whatever somebody has put there by that name."""
    root = DOCS.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {
        canonicalize_name(Requirement(line).name)
        for line in sum(extras.values(), project["dependencies"])
    }
    files = [*DOCS.glob("*.md"), *root.glob("*.md"), *root.glob("examples/*.py")]
    files += root.glob("sqlcache/**/*.py")
    commands = [
        shlex.split(command, comments=True)
        for file in files
        for command in re.findall(r"pip install ([^`\"\n]+)", file.read_text())
    ]
    assert len(commands) > 5, "else this shows nothing"
    for command in commands:
        for each in [word for word in command if not word.startswith("-")]:
            if each.startswith("."):
                assert set(re.findall(r"\w+", each)) <= set(extras), each
            else:
                assert canonicalize_name(Requirement(each).name) in wanted, each


def test_what_the_pages_and_manifests_run_is_built_from_the_checkout() -> None:
    """Or comes from a registry that is the reader's own."""
    pages = [*DOCS.glob("*.md"), *DOCS.parent.glob("*.md")]
    pages += DOCS.parent.joinpath("docker").rglob("*.yaml")
    text = "".join(page.read_text() for page in pages)
    places = re.findall(r"([\w./-]*)\bsqlcache:\d+\.\d", text)
    assert set(places) - {"", "REGISTRY/", "registry.example.com/"} == set()
    assert len(places) > 5, "else this shows nothing"


if __name__ == "__main__":
    (DOCS / "settings.md").write_text(settings_page())
    (DOCS / "metrics.md").write_text(metrics_page())
