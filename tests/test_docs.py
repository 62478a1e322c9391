"""docs/settings.md lists all settings, and no more: `python -m tests.test_docs` writes it."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from sqlcache.metrics import Metrics
from sqlcache.rules import declared_of, policy_of
from sqlcache.settings import (
    SHORT_NAMES,
    RoutineSettings,
    RuleSettings,
    Settings,
    from_arguments,
    load,
)

_TOML = re.compile(r"```toml\n(.*?)```", re.DOTALL)
DOCS = Path(__file__).parents[1] / "docs"
HEAD = """# Settings

Each setting can be given, the later of these winning, in `sqlcache.toml` (or the file that
`--config` or `SQLCACHE_CONFIG` names), in the environment as `SQLCACHE_SECTION__NAME`, and some as
a flag; rules and routines in the environment as JSON, in `SQLCACHE_RULES` and `SQLCACHE_ROUTINES`.
`sqlcache check-config` with the same flags prints every value and where it came from, or says what
is wrong; with `--connect` it also asks MySQL and memcached, and whether the account of
`upstream.url` has the rights it needs: `GRANT SELECT, SHOW VIEW, TRIGGER ON *.*`.

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
        parts.append("\n| name | flag | default | meaning |\n| --- | --- | --- | --- |\n")
        for name, value in model.model_fields.items():
            automatic = value.default is None and f"{section}.{name}" in may_be_auto
            default = "`auto`" if automatic else _default(value.default)
            flag = flags.get(f"{section}.{name}", "")
            shown = f"`{flag}`" if flag else ""
            parts.append(
                f"| `{value.alias or name}` | {shown} | {default} | {value.description} |\n"
            )
    return "".join(parts)


def _default(value: object) -> str:
    if value is PydanticUndefined:
        return "required"
    return "none" if value is None else f"`{value}`"


def test_the_settings_page_says_what_the_settings_are() -> None:
    assert (DOCS / "settings.md").read_text() == settings_page()


def test_what_the_documents_name_is_there() -> None:
    """Metrics, and the tests that how-it-works.md calls as witnesses."""
    pages = [*DOCS.glob("*.md"), DOCS.parent / "README.md"]
    text = "".join(page.read_text() for page in pages)
    exposed = Metrics().render().decode()
    assert [name for name in re.findall(r"`(sqlcache_\w+)`", text) if name not in exposed] == []
    tests = "".join(file.read_text() for file in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in tests] == []


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


def test_the_python_in_the_documents_is_python() -> None:
    for page in [*DOCS.glob("*.md"), DOCS.parent / "README.md"]:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            compile(block, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


if __name__ == "__main__":
    (DOCS / "settings.md").write_text(settings_page())
