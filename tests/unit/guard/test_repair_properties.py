"""Properties of repairs for generated schemas and arguments, with errors as models make them."""

import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dragoman.core.messages import Tool
from dragoman.guard.arguments import Arguments
from dragoman.guard.policy import ARGUMENT_REPAIRS
from dragoman.guard.validation.compiled_schema import CompiledSchema, compile_schema
from dragoman.guard.verdict import Verdict, judge_call
from support.repairs import repair_one
from support.sampling import exhaustive
from support.schema_samples import Made

VALID = 3_000 if exhaustive() else 500
INVALID = 1500 if exhaustive() else 300
SEED = st.integers(0, 2**63)


def made(seed: int) -> Made:
    return Made(Random(seed))


def of(each: Made) -> CompiledSchema:
    return CompiledSchema(json.dumps(each.schema))


def fits(schema: Any, value: Any) -> bool:
    """Validates with another validator than the one that the repair uses."""
    return bool(Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).is_valid(value))


def test_valid_call_is_never_changed() -> None:
    for seed in range(VALID):
        each = made(seed)
        written = each.text(each.value)
        assert judge_call(Tool("t", parameters=json.dumps(each.schema)), written, ARGUMENT_REPAIRS) == Verdict(
            written
        ), seed


@given(SEED)
def test_generated_value_matches_its_schema(seed: int) -> None:
    each = made(seed)
    assert fits(each.schema, each.value)
    assert Arguments(json.dumps(each.value)).valid(compile_schema(json.dumps(each.schema))) is True


def repaired_cases(seeds: range, slips: int) -> Iterator[tuple[Made, list[str], Any, Any]]:
    """Yields (generated call, expected steps, value with errors, repaired call); skips values that are still valid."""
    for seed in seeds:
        each = made(seed)
        steps, slipped = each.slipped(slips)
        schema = of(each)
        written = each.text(slipped)
        if not Arguments(written).valid(schema):
            found = repair_one(written, schema)
            yield each, steps, slipped, found and (found.arguments, found.repairs)


def test_errors_are_reverted_and_nothing_else_changes() -> None:
    """The result is the original value, or None."""
    undone: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for slips in (1, 3):
        for each, steps, slipped, found in repaired_cases(range(INVALID), slips):
            tried.update(steps)
            if found:
                assert json.loads(found[0]) == each.value, (each.schema, slipped)
                undone.update(steps)
    assert set(tried) == set(ARGUMENT_REPAIRS) - {"split_into_calls", "fill_default", "to_null"}
    assert undone == tried


def mismatched(seed: int) -> tuple[Made, Any]:
    """Returns a schema, and arguments for another schema, or with many errors, or both."""
    each, other = made(seed), made(seed // 2 + 1)
    slipped = each.slipped(9)[1]
    return each, other.value | slipped if isinstance(slipped, dict) and seed % 2 else slipped


@given(SEED)
def test_repaired_call_always_matches_schema(seed: int) -> None:
    each, written = mismatched(seed)
    if found := repair_one(json.dumps(written), of(each)):
        assert fits(each.schema, json.loads(found.arguments))


@given(SEED)
def test_repair_is_idempotent(seed: int) -> None:
    each, written = mismatched(seed)
    if found := repair_one(json.dumps(written), of(each)):
        assert judge_call(Tool("t", parameters=json.dumps(each.schema)), found.arguments, ARGUMENT_REPAIRS) == Verdict(
            found.arguments
        )


@given(SEED, st.sets(st.sampled_from(ARGUMENT_REPAIRS)))
def test_disabled_repair_is_never_applied(seed: int, steps: set[str]) -> None:
    each, written = mismatched(seed)
    verdict = judge_call(Tool("t", parameters=json.dumps(each.schema)), json.dumps(written), steps)
    assert steps.issuperset(verdict.repairs)
    assert verdict.valid or verdict.arguments == json.dumps(written)


def leaves(value: Any) -> Iterator[Any]:
    """Yields all values that are neither a list nor an object."""
    match value:
        case dict() | list():
            for each in value.values() if isinstance(value, dict) else value:
                yield from leaves(each)
        case _:
            yield value


def readings(value: Any) -> Iterator[Any]:
    """Yields the values that a part of the arguments may be read as."""
    yield from leaves(value)
    for leaf in leaves(value):
        if not isinstance(leaf, str):
            yield json.dumps(leaf)
            continue
        try:
            yield from readings(json.loads(leaf.lower() if leaf.lower() in ("true", "false", "null") else leaf))
        except ValueError:
            yield None if leaf.lower() == "none" else leaf
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield json.dumps(part, separators=(",", ":"), ensure_ascii=False)
        yield from readings(part) if isinstance(part, dict | list) else ()


def schema_values(schema: Any) -> Iterator[Any]:
    """Yields the enum values, constants and defaults of a schema."""
    if isinstance(schema, list):
        for each in schema:
            yield from schema_values(each)
    elif isinstance(schema, dict):
        for name, each in schema.items():
            yield from leaves(each) if name in ("enum", "const", "default") else schema_values(each)


@given(SEED)
def test_repair_invents_no_value(seed: int) -> None:
    """Each value was written by the model, or is in the schema."""
    each, written = mismatched(seed)
    if found := repair_one(json.dumps(written), of(each)):
        known = {json.dumps(leaf) for leaf in (*readings(written), *schema_values(each.schema))}
        assert {json.dumps(leaf) for leaf in leaves(json.loads(found.arguments))} <= known


@pytest.mark.every
@settings(max_examples=20_000)
@given(SEED)
def test_repair_properties_for_many_more_seeds(seed: int) -> None:
    each, written = mismatched(seed)
    if found := repair_one(json.dumps(written), of(each)):
        assert fits(each.schema, json.loads(found.arguments))
        assert repair_one(found.arguments, of(each)) == (found.arguments, ())
        known = {json.dumps(leaf) for leaf in (*readings(written), *schema_values(each.schema))}
        assert {json.dumps(leaf) for leaf in leaves(json.loads(found.arguments))} <= known
