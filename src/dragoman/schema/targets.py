"""Describes which JSON Schemas servers and vendors accept for tools and responses (applied by `schema/adapt.py`).

    OPENAI              Chat Completions and Responses, not strict
    OPENAI_STRICT       the same with `strict: true`
    ANTHROPIC           Messages: `input_schema` of a tool
    ANTHROPIC_STRICT    a tool with `strict: true`, and `output_config.format`
    GEMINI              Google's OpenAI-compatible endpoint, and proxies to it
    LLAMA_CPP           llama.cpp's server, which compiles all tools of a request into one GBNF grammar
    LM_STUDIO           llama.cpp, and a check of the root
    OLLAMA              Ollama, which decodes schemas into its own type, so that unknown keywords are lost
    VLLM                vLLM with XGrammar, or LLGuidance for keywords that XGrammar does not support

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
                keywords: https://github.com/pizza-bot-app/pizza-bot/issues/62
                formats: https://github.com/hideya/langchain-mcp-tools-ts/issues/36
                enums: https://github.com/weave-os/router/pull/65
                several types: https://github.com/lukacf/meerkat/pull/95
    llama.cpp   patterns: https://github.com/ggml-org/llama.cpp/issues/27580, 26930 and pull 5978
                lengths: its issues 25746 and 25923
    LM Studio   https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/2254,
                https://github.com/astrid-runtime/astrid/pull/80
    Ollama      https://github.com/ollama/ollama/issues/10328
    LLGuidance  1.9.1, tested; patterns: https://docs.rs/regex-syntax (no lookaround)
    vLLM        https://github.com/vllm-project/vllm/issues/12131; lookaround: tests/unit/schema/test_adapt.py
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

from dragoman.core.errors import ConfigError, one_of, quote

COMBINED: Final = frozenset({"oneOf", "anyOf", "allOf"})
ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples"})
"""Keywords that describe a value to the model and do not restrict it."""


@dataclass(frozen=True, slots=True)
class Target:
    """What one kind of server accepts. The defaults accept any JSON Schema."""

    name: str
    object_root: bool = False
    """The root must be `"type": "object"`, not a reference."""
    properties: bool = False
    """Such a root must have `properties`."""
    root_unsupported: frozenset[str] = frozenset()
    """Keywords that are accepted everywhere except at the root."""
    keywords: frozenset[str] | None = None
    """All accepted keywords; None: any."""
    unsupported: frozenset[str] = frozenset()
    """Keywords that are not accepted anywhere."""
    references: bool = True
    """`$ref` is accepted; else it is replaced by its target, and by `{}` if it is recursive."""
    types: Literal["list", "nullable"] = "list"
    """How several types are written: as a list; or as `nullable` and `anyOf`, as in OpenAPI 3.0."""
    formats: frozenset[str] | None = None
    """The accepted values of `format`; None: any."""
    patterns: Literal["any", "regular", "plain"] = "any"
    """`regular`: no lookaround, `\\b` or backreferences. `plain`: also anchored by `^` and `$`, and no `\\d`."""
    names: str = ""
    """Regular expression that the names of the root's properties must match; "" for any name."""
    enums: Literal["any", "strings"] = "any"
    items: bool = False
    """Arrays must have `items`."""
    repeat_limit: int | None = None
    """The largest accepted length or number of items; None: any."""
    max_min_items_1: bool = False
    """`minItems` may be 0 or 1 only."""
    maps: bool = True
    """`additionalProperties` may be a schema."""
    flags: bool = True
    """`true` and `false` are accepted as schemas."""
    closed: bool = False
    """Objects must have `"additionalProperties": false`. This restricts what the model may write."""
    required: bool = False
    """Objects must require all properties. Optional properties become nullable."""


_SCALARS: Final = frozenset({"type", "enum", "properties", "required", "items", "anyOf"}) | ANNOTATIONS
_STRICT: Final = _SCALARS | {"additionalProperties", "const", "pattern", "format", "$ref", "$defs", "definitions"}
_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_TIMES: Final = frozenset({"date-time", "time", "date", "duration"})
_HOSTS: Final = frozenset({"email", "hostname", "ipv4", "ipv6", "uuid"})

OPENAI: Final = Target(
    "openai",
    object_root=True,
    properties=True,
    root_unsupported=COMBINED | {"enum", "not"},
    patterns="regular",
    items=True,
)
OPENAI_STRICT: Final = replace(
    OPENAI,
    name="openai_strict",
    keywords=(_STRICT | _BOUNDS | {"minItems", "maxItems"}) - {"default", "examples"},
    formats=_TIMES | _HOSTS,
    maps=False,
    flags=False,
    closed=True,
    required=True,
)
ANTHROPIC: Final = Target("anthropic", object_root=True, root_unsupported=COMBINED, names=r"[a-zA-Z0-9_.-]{1,64}")
ANTHROPIC_STRICT: Final = replace(
    ANTHROPIC,
    name="anthropic_strict",
    keywords=(_STRICT | {"minItems"}) - {"default", "examples"},
    references=False,
    formats=_TIMES | _HOSTS | {"uri"},
    patterns="regular",
    max_min_items_1=True,
    maps=False,
    flags=False,
    closed=True,
)
GEMINI: Final = Target(
    "gemini",
    object_root=True,
    properties=True,
    root_unsupported=COMBINED | {"enum"},
    keywords=(_SCALARS | {"nullable", "format", "minItems", "maxItems", "minimum", "maximum"})
    - {"default", "examples"},
    references=False,
    types="nullable",
    formats=frozenset({"date-time", "float", "double", "int32", "int64"}),
    enums="strings",
    items=True,
    flags=False,
)
LLAMA_CPP: Final = Target("llama_cpp", patterns="plain", repeat_limit=1999)
LM_STUDIO: Final = replace(LLAMA_CPP, name="lm_studio", object_root=True, properties=True)
OLLAMA: Final = replace(
    LLAMA_CPP, name="ollama", object_root=True, properties=True, root_unsupported=COMBINED, references=False
)
VLLM: Final = Target("vllm", patterns="regular")
XGRAMMAR: Final = replace(VLLM, name="xgrammar", unsupported=frozenset({"propertyNames"}))
"""The engine of structural tags. Constrained names may contain raw control characters (0.2.8, tested)."""
LLGUIDANCE: Final = Target("llguidance", unsupported=frozenset({"minProperties"}), patterns="regular")
"""The engine of llguidance grammars. Its `minProperties` counts only the required ones of the stated properties."""

TARGETS: Final = {
    each.name: each
    for each in (OPENAI, OPENAI_STRICT, ANTHROPIC, ANTHROPIC_STRICT, GEMINI, LLAMA_CPP, LM_STUDIO, OLLAMA, VLLM)
}
RELAXING_TARGETS: Final = {name: each for name, each in TARGETS.items() if not each.closed}
"""The targets whose adapted schemas accept every valid value."""


def get_target(name: str) -> Target:
    """Returns the target of this name, from `RELAXING_TARGETS`.

    Raises:
        ConfigError: The name is unknown. The message suggests the nearest one.
    """
    if name not in RELAXING_TARGETS:
        raise ConfigError(f"unknown server {quote(name)}{one_of(name, RELAXING_TARGETS, 'expected ')}")
    return RELAXING_TARGETS[name]
