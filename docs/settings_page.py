"""The page of all settings, and their JSON Schema: written from the settings' own types and descriptions."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from dragoman.config import json_schema

DOCS = Path(__file__).parent
EXAMPLE = DOCS / "configuration.toml"
TYPES = {"boolean": "`true`, `false`", "array": "list of strings", "object": "table"}
"""What the page calls the types of JSON Schema whose names differ."""

INTRO = """\
Settings come from one TOML file, `~/.config/dragoman/config.toml`, or the file that `--config FILE` or the variable
`DRAGOMAN_CONFIG` names. No file is required. Environment variables override the file, and command-line options override
both. A running gateway [applies most changes](reload.md) by itself; the others need a restart.

- `dragoman serve --print-config` prints the effective settings and where each comes from. It also reports problems
  that would prevent the start, such as missing models and files, and exits.
- An **environment variable** exists for each setting except those of tables whose names you choose, such as
  `[upstreams.NAME]`, and `[model_aliases]`: `DRAGOMAN_`, the table, `_`, and the key, in capitals. `port` in
  `[server]` is `DRAGOMAN_SERVER_PORT`. Separate the items of a list with commas. An empty variable is an error.
- An unknown table, key or variable is an error that names the nearest one.
- **Editors** complete and check the file with its JSON Schema. Make `#:schema ./schema.json` the first line of the
  file; in VS Code the extension Even Better TOML reads it, in other editors taplo.

```console
$ dragoman serve --print-schema > ~/.config/dragoman/schema.json
```

## Example

```toml
{example}```

"""

NOTES = {
    "server": """\
Entries of `allowed_hosts` may have a scheme and a port, which are ignored: `mybox`, `mybox:8484` and `https://mybox`
are the same. Web pages on these hosts and on loopback addresses get CORS headers; their preflight requests need no
key.""",
    "upstreams": """\
Each server has a table of its own, `[upstreams.NAME]` ([upstream servers](servers.md)). `dragoman serve --upstream URL`
adds one with the name `upstream`.""",
    "mcp": """\
Each server has a table of its own, `[mcp.NAME]` ([MCP](mcp.md)).""",
    "routes": """\
Each rule is a table of its own, `[[routes]]` ([routing](routing.md)).""",
    "keys": """\
Each key has a table of its own, `[keys.NAME]`, here or in a keys file ([API keys](keys.md)).""",
    "prices": """\
Each pattern of model names has a table of its own, such as `[prices."gpu/qwen*"]` ([prices](limits.md#prices)).""",
    "ray_deployments": """\
Each deployment has a table of its own, `gateway`, `claude_cli`, `shared_models`, or a model's name ([Ray](ray.md)).""",
    "formats": """\
Each format has a table of its own, `[formats.NAME]` ([plug-ins](plugins.md)); `call_format` of a server names it.""",
    "backends": """\
Each backend of an installed package has a table of its own, `[backends.NAME]` ([plug-ins](plugins.md)). `plugin` names
its entry point; the other settings are those of the package.
""",
    "model_aliases": """\
Maps the name that a client requests to the name of a model, or to several: if a request to the first fails, the next
one is used. `BACKEND/MODEL` selects the backend.

```toml
[model_aliases]
"gpt-4o" = "smollm2-135m"
"coder" = ["lan/qwen3-coder", "openrouter/qwen3-coder"]
```
""",
}


def page(note: str) -> str:
    """Returns docs/configuration.md."""
    definitions = json_schema()["$defs"]
    tables = definitions["Config"]["properties"].items()
    sections = "\n".join(_section(name, table, definitions) for name, table in tables)
    return f"# Configuration\n\n{note}{INTRO.format(example=EXAMPLE.read_text())}{sections}"


def _section(name: str, part: dict[str, Any], definitions: dict[str, Any]) -> str:
    inner_part = part.get("additionalProperties") or part.get("items") or {}
    reference = part.get("$ref") or inner_part.get("$ref", "")
    table = definitions.get(reference.rpartition("/")[2])
    text = [
        f"## {name}",
        "",
        *([table["description"], ""] if table else []),
        *([NOTES[name], ""] if name in NOTES else []),
    ]
    if table:
        text += [*_settings(table)]
        for key, field in table["properties"].items():
            if inner := definitions.get(field.get("$ref", "").rpartition("/")[2]):
                text += ["", f"### {name}.{key}", "", inner["description"], "", *_settings(inner)]
        text += ["", f"```toml\n{_example(name)}```", ""]
    return "\n".join(text)


def _settings(table: dict[str, Any]) -> Iterator[str]:
    """Yields a list item for each setting; a table would break the names within words on narrow screens."""
    for key, field in table["properties"].items():
        if "$ref" in field:
            continue  # a table of its own
        default = "required" if key in table.get("required", ()) else f"default `{_toml(field.get('default'))}`"
        yield f"- **`{key}`**: {_type(field)}; {default}. {_linked(field['description'])}"


def _type(field: dict[str, Any]) -> str:
    """Returns the type of a setting with its limits or its allowed values."""
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"] if value)
    if "anyOf" in field:
        kinds = [each for each in field["anyOf"] if each.get("type") != "null"]
        return ", ".join(map(_type, kinds))
    kind = TYPES.get(field["type"], field["type"])
    limits = []
    if "minimum" in field and "maximum" in field:
        limits.append(f"{field['minimum']} to {field['maximum']}")
    elif "minimum" in field:
        limits.append(f"at least {field['minimum']}")
    elif "exclusiveMinimum" in field:
        limits.append(f"above {field['exclusiveMinimum']}")
        limits += [f"at most {field['maximum']}"] if "maximum" in field else []
    return ", ".join([kind, *limits])


def _example(name: str) -> str:
    """Returns the tables of this section in the example file."""
    parts = re.split(r"(?m)^(?=\[)", EXAMPLE.read_text())
    chosen = [part.strip() for part in parts if re.match(rf"\[+{name}[.\]]", part)]
    assert chosen, f"{EXAMPLE.name} has no example of [{name}]"
    return "\n\n".join(chosen) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "unset" if value is None else msgspec.json.encode(value).decode()


def _linked(text: str) -> str:
    """Returns the text with each page that it names as a link."""
    return re.sub(
        r"docs/([a-z-]+)\.md", lambda page: f"[{page[1].replace('-', ' ')}]({page[0].removeprefix('docs/')})", text
    )
