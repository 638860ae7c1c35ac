"""What servers and vendors take as the JSON Schema of a tool, or of a reply, as data; `schema/adapt.py` makes it so.

    OPENAI              Chat Completions and Responses, not strict
    OPENAI_STRICT       the same with `strict: true`
    ANTHROPIC           Messages: `input_schema` of a tool
    ANTHROPIC_STRICT    a tool with `strict: true`, and `output_config.format`
    GEMINI              Google's OpenAI-compatible endpoint, and what goes on to it
    LLAMA_CPP           llama.cpp's server, whose GBNF grammars are made of all tools of a request at once
    LM_STUDIO           that, and its own check of the root
    OLLAMA              which reads schemas into a type of its own, so that words unknown there are lost
    VLLM                vLLM with XGrammar, or LLGuidance where that lacks a word

Sources, all as of 2026-11:

    OpenAI      https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
                root: https://github.com/langchain-ai/langchainjs/issues/9804
                lookaround, also where not strict: https://github.com/vercel/ai/pull/21037
                no `properties`: https://github.com/wakehacker/wake-ai/pull/16
    Anthropic   root: https://github.com/anthropics/claude-code/issues/5319
                names: https://github.com/anthropics/claude-code/issues/79418
                strict: https://platform.claude.com/docs/en/build-with-claude/structured-outputs, and
                `transform_schema` in the anthropic package 2.12
    Gemini      https://cloud.google.com/vertex-ai/docs/reference/rest/v1beta1/FunctionDeclaration (Schema)
                words: https://github.com/pizza-bot-app/pizza-bot/issues/62
                formats: https://github.com/hideya/langchain-mcp-tools-ts/issues/36
                enums: https://github.com/weave-os/router/pull/65
                several types: https://github.com/lukacf/meerkat/pull/95
    llama.cpp   patterns: https://github.com/ggml-org/llama.cpp/issues/27580, 26930 and pull 5978
                lengths: its issues 25746 and 25923
    LM Studio   https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/2254,
                https://github.com/astrid-runtime/astrid/pull/80
    Ollama      https://github.com/ollama/ollama/issues/10328
    LLGuidance  1.9.1, run; patterns: https://docs.rs/regex-syntax (no lookaround)
    vLLM        https://github.com/vllm-project/vllm/issues/12131; lookaround: tests/test_adapt.py
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

from dragoman.core.errors import ConfigError, one_of, quote

COMBINED: Final = frozenset({"oneOf", "anyOf", "allOf"})
SAID: Final = frozenset({"title", "description", "default", "examples"})
"""Words that say something of a value to the model, and hold it to nothing."""


@dataclass(frozen=True, slots=True)
class Target:
    """What one kind of server takes. As it is by default: any JSON Schema."""

    name: str
    object_root: bool = False
    """The root must be `"type": "object"`, and no reference."""
    properties: bool = False
    """Such a root must have `properties`."""
    root_lacks: frozenset[str] = frozenset()
    """Words that may stand anywhere but at the root."""
    words: frozenset[str] | None = None
    """All the words that it takes; None: any."""
    lacks: frozenset[str] = frozenset()
    """Words that may stand nowhere."""
    references: bool = True
    """`$ref` may stay; else what it refers to is put in its place, and `{}` where that holds itself."""
    types: Literal["list", "nullable"] = "list"
    """How a value of several types is said: a list of them; or `nullable` and `anyOf`, as OpenAPI 3.0 has it."""
    formats: frozenset[str] | None = None
    """The values of `format` that it takes; None: any."""
    patterns: Literal["any", "regular", "plain"] = "any"
    """`regular`: no lookaround, no `\\b`, nothing referred back to. `plain`: from `^` to `$`, and no `\\d` either."""
    names: str = ""
    """A regular expression that the names of the root's properties must match."""
    enums: Literal["any", "strings"] = "any"
    items: bool = False
    """An array must state its `items`."""
    repeats: int | None = None
    """The largest length or number of items that it takes."""
    few_items: bool = False
    """`minItems` may be 0 or 1 only."""
    maps: bool = True
    """`additionalProperties` may be a schema."""
    flags: bool = True
    """`true` and `false` may stand for a schema."""
    closed: bool = False
    """Objects must have `"additionalProperties": false`: this narrows what the model may write."""
    required: bool = False
    """Objects must require all their properties: one that may be left out may be null instead."""


_SCALARS: Final = frozenset({"type", "enum", "properties", "required", "items", "anyOf"}) | SAID
_STRICT: Final = _SCALARS | {"additionalProperties", "const", "pattern", "format", "$ref", "$defs", "definitions"}
_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_TIMES: Final = frozenset({"date-time", "time", "date", "duration"})
_HOSTS: Final = frozenset({"email", "hostname", "ipv4", "ipv6", "uuid"})

OPENAI: Final = Target(
    "openai",
    object_root=True,
    properties=True,
    root_lacks=COMBINED | {"enum", "not"},
    patterns="regular",
    items=True,
)
OPENAI_STRICT: Final = replace(
    OPENAI,
    name="openai_strict",
    words=(_STRICT | _BOUNDS | {"minItems", "maxItems"}) - {"default", "examples"},
    formats=_TIMES | _HOSTS,
    maps=False,
    flags=False,
    closed=True,
    required=True,
)
ANTHROPIC: Final = Target("anthropic", object_root=True, root_lacks=COMBINED, names=r"[a-zA-Z0-9_.-]{1,64}")
ANTHROPIC_STRICT: Final = replace(
    ANTHROPIC,
    name="anthropic_strict",
    words=(_STRICT | {"minItems"}) - {"default", "examples"},
    references=False,
    formats=_TIMES | _HOSTS | {"uri"},
    patterns="regular",
    few_items=True,
    maps=False,
    flags=False,
    closed=True,
)
GEMINI: Final = Target(
    "gemini",
    object_root=True,
    properties=True,
    root_lacks=COMBINED | {"enum"},
    words=(_SCALARS | {"nullable", "format", "minItems", "maxItems", "minimum", "maximum"}) - {"default", "examples"},
    references=False,
    types="nullable",
    formats=frozenset({"date-time", "float", "double", "int32", "int64"}),
    enums="strings",
    items=True,
    flags=False,
)
LLAMA_CPP: Final = Target("llama_cpp", patterns="plain", repeats=1999)
LM_STUDIO: Final = replace(LLAMA_CPP, name="lm_studio", object_root=True, properties=True)
OLLAMA: Final = replace(
    LLAMA_CPP, name="ollama", object_root=True, properties=True, root_lacks=COMBINED, references=False
)
VLLM: Final = Target("vllm", patterns="regular")
XGRAMMAR: Final = replace(VLLM, name="xgrammar", lacks=frozenset({"propertyNames"}))
"""What structural tags are made of; names that it holds may have raw control characters in them (0.2.8, run)."""
LLGUIDANCE: Final = Target("llguidance", lacks=frozenset({"minProperties"}), patterns="regular")
"""What grammars are made of. Of the properties that a schema states, its `minProperties` counts only required ones."""

TARGETS: Final = {
    each.name: each
    for each in (OPENAI, OPENAI_STRICT, ANTHROPIC, ANTHROPIC_STRICT, GEMINI, LLAMA_CPP, LM_STUDIO, OLLAMA, VLLM)
}
RELAXING: Final = {name: each for name, each in TARGETS.items() if not each.closed}
"""Those for which no valid value is lost."""


def relaxing(name: str) -> Target:
    """The target of this name, of those for which no valid value is lost.

    Raises: ConfigError: there is none; the message offers the nearest.
    """
    if name not in RELAXING:
        raise ConfigError(f"unknown server {quote(name)}{one_of(name, RELAXING, 'expected ')}")
    return RELAXING[name]
