"""Prompts of the Berkeley Function Calling Leaderboard, and its checker of the answers.

Both are from the package `bfcl-eval`. It is installed without the eighty packages that it needs to ask vendors' models:
only its checker is imported, with a substitute for its table of models.

Source: https://pypi.org/project/bfcl-eval/ 2026.3.23, `data/`, `eval_checker/ast_eval/ast_checker.py`, and
`model_handler/utils.py` for how its schemas are made into JSON Schema for OpenAI's API.
"""

import importlib.util
import itertools
import json
import random
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from bench.accuracy.cases import Case
from dragoman.core.messages import Message, Text, Tool, ToolCall

CATEGORIES = ("simple_python", "multiple", "parallel", "irrelevance")
SEED = 7
_MODEL = "any"
"""Model name with which its checker accepts an underscore for a dot in a function's name."""


def installed() -> bool:
    """Whether the package is installed."""
    return importlib.util.find_spec("bfcl_eval") is not None


@cache
def cases(each: int) -> tuple[Case, ...]:
    """Returns the first prompts of each category, always in the same order; the categories alternate."""
    in_turn = (row for row_group in zip(*map(_shuffled_rows, CATEGORIES), strict=False) for row in row_group)
    return tuple(map(_case, itertools.islice(in_turn, each * len(CATEGORIES))))


def is_right(case: Case, calls: Sequence[ToolCall]) -> bool:
    """Whether its checker accepts these calls; any call is wrong if no tool is suitable."""
    category = case.id.rpartition("_")[0]
    if category == "irrelevance":
        return not calls
    named_calls = [{call.name: json.loads(call.arguments)} for call in calls]
    if not named_calls or not all(isinstance(arguments, dict) for one in named_calls for arguments in one.values()):
        return False
    checker, python = _checker()
    try:
        verdict = checker(
            _functions(category)[case.id], named_calls, answers(category)[case.id], python, category, _MODEL
        )
    except (TypeError, AttributeError, KeyError, IndexError):
        return False  # it fails on types of values that it does not expect
    return bool(verdict["valid"])


def _shuffled_rows(category: str) -> list[dict[str, Any]]:
    shuffled = list(rows(f"{category}.json"))
    random.Random(f"{SEED} {category}").shuffle(shuffled)
    return shuffled


def truth(case: Case) -> list[ToolCall]:
    """Returns the first listed answer."""
    if case.call_count == "none":
        return []
    calls = [call for each in answers(case.category)[case.id] for call in each.items()]
    return [
        ToolCall(f"call{i}", re.sub(r"\.", "_", name), json.dumps(_first_values(v)))
        for i, (name, v) in enumerate(calls)
    ]


def _first_values(listed: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Returns the first value of each member that is not omitted; members of objects list their own."""
    values = {key: next((v for v in each if v != ""), "") for key, each in listed.items()}
    return {key: _first_value(value) for key, value in values.items() if value not in ("", None)}


def _first_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_first_value(each) for each in value]
    return _first_values(value) if isinstance(value, dict) else value


def _case(row: Mapping[str, Any]) -> Case:
    messages = tuple(Message(m["role"], (Text(m["content"]),)) for m in row["question"][0])
    return Case(row["id"], row["id"].rpartition("_")[0], messages, tuple(map(tool_of, row["function"])))


def tool_of(function: Mapping[str, Any]) -> Tool:
    """Returns the tool of a function of the package, with JSON Schema."""
    name = re.sub(r"\.", "_", function["name"])
    schema = {"type": "object"} | {k: v for k, v in function["parameters"].items() if k not in ("type", "properties")}
    schema["properties"] = {k: _json_schema(v) for k, v in function["parameters"]["properties"].items()}
    return Tool(
        name, f"{function['description']} Note that the provided function is in Python 3 syntax.", json.dumps(schema)
    )


def _json_schema(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """Returns JSON Schema for a parameter's schema, which has names of Python types."""
    kind = parameter.get("type", "")
    out = dict(parameter) | {"type": _types().get(kind, "string")}
    if kind == "float":
        out |= {"format": "float", "description": f"{parameter.get('description', '')} This is a float type value."}
    if "properties" in out:
        out["properties"] = {k: _json_schema(v) for k, v in out["properties"].items()}
    if "items" in out:
        items = dict(out["items"])
        out["items"] = (
            _json_schema(items)
            if "properties" in items or "items" in items
            else items | {"type": _types().get(items.get("type", ""), "string")}
        )
    return out


def folder() -> Path:
    """Returns the folder of the package."""
    found = importlib.util.find_spec("bfcl_eval")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("bfcl-eval is not there: pip install --no-deps --group accuracy")
    return Path(found.submodule_search_locations[0])


@cache
def rows(name: str) -> list[dict[str, Any]]:
    """Returns the prompts of a file."""
    return [json.loads(line) for line in (folder() / "data" / f"BFCL_v4_{name}").read_text().splitlines()]


@cache
def _functions(category: str) -> Mapping[str, Any]:
    return {row["id"]: row["function"] for row in rows(f"{category}.json")}


@cache
def answers(category: str) -> Mapping[str, Any]:
    """Returns the right answers by prompt."""
    path = folder() / "data" / "possible_answer" / f"BFCL_v4_{category}.json"
    return {row["id"]: row["ground_truth"] for row in map(json.loads, path.read_text().splitlines())}


@cache
def _types() -> Mapping[str, str]:
    from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI

    types: Mapping[str, str] = GORILLA_TO_OPENAPI
    return types


@cache
def _checker() -> tuple[Any, Any]:
    models: Any = ModuleType("bfcl_eval.constants.model_config")
    models.MODEL_CONFIG_MAPPING = {_MODEL: SimpleNamespace(underscore_to_dot=True)}
    sys.modules.setdefault(models.__name__, models)
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

    return ast_checker, Language.PYTHON
