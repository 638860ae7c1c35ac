"""Validates spans against the semantic conventions of OpenTelemetry.

`check_names` needs only the package `opentelemetry-semantic-conventions`: names, and the values of enumerations.
`Model` reads the conventions' own YAML, which no package contains: types, requirement levels, kinds of spans. It needs
a checkout of https://github.com/open-telemetry/semantic-conventions at v1.41.1, in the folder that the variable
`SEMANTIC_CONVENTIONS` names; without it, only names are checked:

    git clone --depth 1 --branch v1.41.1 https://github.com/open-telemetry/semantic-conventions .cache/semconv
    SEMANTIC_CONVENTIONS=.cache/semconv .venv/bin/python -m pytest tests/integration/tracing
"""

import importlib
import os
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import opentelemetry.semconv._incubating.attributes as in_development
import opentelemetry.semconv.attributes as stable
import yaml

OWN = "dragoman."
GROUPS = {
    "chat": "span.gen_ai.inference.client",
    "embeddings": "span.gen_ai.embeddings.client",
    "execute_tool": "span.gen_ai.execute_tool.internal",
}
"""Groups of the model by operation."""
TYPES: Mapping[str, Any] = {"string": str, "int": int, "double": float, "boolean": bool}


@cache
def _package() -> tuple[frozenset[str], Mapping[str, frozenset[str]]]:
    """All names of attributes, and the values of enumerations by name of the class."""
    names: set[str] = set()
    values: dict[str, frozenset[str]] = {}
    for package in (stable, in_development):
        for found in pkgutil.iter_modules(package.__path__):
            for name, value in vars(importlib.import_module(f"{package.__name__}.{found.name}")).items():
                if name.isupper() and isinstance(value, str):
                    names.add(value)
                elif isinstance(value, type) and issubclass(value, Enum):
                    values[name] = frozenset(member.value for member in value)
    return frozenset(names), values


def check_names(attributes: Iterable[str]) -> list[str]:
    """The attributes that the package does not have, without Dragoman's own."""
    names, _ = _package()
    return [name for name in attributes if not name.startswith(OWN) and name not in names]


def problems_of(kind: str, attributes: Mapping[str, Any]) -> list[str]:
    """What is wrong with a span, as far as the conventions that are present tell.

    Args:
        kind: The kind of the span: `server`, `client` or `internal`.
        attributes: Its attributes.
    """
    unknown = [f"{name} is unknown" for name in check_names(attributes)]
    operation = attributes.get("gen_ai.operation.name", "")
    group = "span.http.server" if kind == "server" else GROUPS.get(operation, GROUPS["chat"] if operation else "")
    model = _model()
    return unknown if model is None or not group else [*unknown, *model.problems(group, kind, attributes)]


@cache
def _model() -> "Model | None":
    checkout = os.environ.get("SEMANTIC_CONVENTIONS")
    return Model(Path(checkout)) if checkout else None


def values_of(enumeration: str) -> frozenset[str]:
    """The values of an enumeration, such as `GenAiOperationNameValues`."""
    return _package()[1][enumeration]


class Model:
    """The YAML files of one version."""

    def __init__(self, checkout: Path) -> None:
        self.types: dict[str, Any] = {}
        self._groups: dict[str, dict[str, Any]] = {}
        for path in sorted((checkout / "model").rglob("*.yaml")):
            for group in yaml.safe_load(path.read_text()).get("groups", ()):
                self._groups[group["id"]] = group
                for attribute in group.get("attributes", ()):
                    if "id" in attribute and "deprecated" not in attribute:
                        self.types[attribute["id"]] = attribute["type"]

    def attributes_of(self, group: str) -> dict[str, Any]:
        """The requirement level of each attribute of a group, inherited ones included."""
        own = self._groups[group]
        levels = self.attributes_of(own["extends"]) if "extends" in own else {}
        for attribute in own.get("attributes", ()):
            name = attribute.get("ref") or attribute["id"]
            levels[name] = attribute.get("requirement_level") or levels.get(name) or "recommended"
        return levels

    def problems(self, group: str, kind: str, attributes: Mapping[str, Any]) -> Iterator[str]:
        """What is wrong with a span of this group.

        Args:
            group: Such as `span.gen_ai.inference.client`.
            kind: The kind of the span.
            attributes: Its attributes.
        """
        levels = self.attributes_of(group)
        if kind != self._groups[group]["span_kind"]:
            yield f"kind {kind}, not {self._groups[group]['span_kind']}"
        for name, level in levels.items():
            if level == "required" and name not in attributes:
                yield f"{name} is required"
            if level == "opt_in" and name in attributes:
                yield f"{name} is recorded only if the user asks for it"
        for name, value in attributes.items():
            if name.startswith(OWN):
                continue
            if name not in levels:
                yield f"{name} is not an attribute of {group}"
            elif not self._fits(self.types[name], value):
                yield f"{name} is {value!r}, not {self.types[name]}"

    def _fits(self, wanted: Any, value: Any) -> bool:
        if isinstance(wanted, dict):
            return isinstance(value, str)  # an enumeration may have other values
        if wanted == "any":
            return True
        if array := re.fullmatch(r"(\w+)\[\]", wanted):
            return isinstance(value, list | tuple) and all(type(each) is TYPES[array[1]] for each in value)
        return type(value) is TYPES[wanted]
