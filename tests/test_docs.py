"""docs/settings.md is the list of all settings, and no more: `python -m tests.test_docs` writes it."""

from pathlib import Path

from pydantic_core import PydanticUndefined

from sqlcache.metrics import Metrics
from sqlcache.settings import SHORT_NAMES, Settings

DOCS = Path(__file__).parents[1] / "docs"
HEAD = """# Settings

Each setting can be given, the later of these winning, in `sqlcache.toml` (or the file that `--config`
names), in the environment as `SQLCACHE_SECTION__NAME`, and some as a flag. `sqlcache check-config`
with the same flags prints every value and where it came from, or says what is wrong.

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
    for section, field in Settings.model_fields.items():
        model = field.annotation
        assert model is not None
        parts.append(f"\n## [{section}]\n\n{(model.__doc__ or '').strip()}\n")
        parts.append("\n| name | flag | default | meaning |\n| --- | --- | --- | --- |\n")
        for name, value in model.model_fields.items():
            default = _default(value.default)
            flag = flags.get(f"{section}.{name}", "")
            shown = f"`{flag}`" if flag else ""
            parts.append(f"| `{name}` | {shown} | {default} | {value.description} |\n")
    return "".join(parts)


def _default(value: object) -> str:
    if value is PydanticUndefined:
        return "required"
    return "none" if value is None else f"`{value}`"


def test_the_settings_page_says_what_the_settings_are() -> None:
    assert (DOCS / "settings.md").read_text() == settings_page()


def test_metrics_that_the_documents_name_exist() -> None:
    named = {"sqlcache_pending_bumps"}
    text = "".join(page.read_text() for page in DOCS.glob("*.md"))
    exposed = Metrics().render().decode()
    assert all(name in text and name in exposed for name in named)


if __name__ == "__main__":
    (DOCS / "settings.md").write_text(settings_page())
