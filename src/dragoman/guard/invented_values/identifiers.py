"""Which arguments of a call are identifiers, by the tool's schema and by the value.

An identifier refers to something that exists: `user_id`, `order_number`, the path of a file that is read. The names of
new things are not: what a call creates, and keys that only the caller uses.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from string import ascii_lowercase
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from dragoman.core.messages import Tool
from dragoman.guard.careful_words import word_set

Kind: TypeAlias = Literal["id", "name", "path", "contact"]
"""`name`: the name of a person or thing in the place of its id. `contact`: an address or a number that a call stores or
uses."""
MAX_VALUE_CHARS: Final = 200
_MAX_DEPTH: Final = 5
MAX_LEAVES: Final = 500
"""Values of a call that are looked at."""
MAX_REQUIRED_IDS: Final = 5
"""Ids that a tool needs, of which a way to find them is looked for."""
EXAMPLE_MARKS: Final = r"such as|e\.g\.|for example|for instance|example:"
"""Matches what comes before an example."""
_MAX_DESCRIPTION_CHARS: Final = 300
_NAME_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


CREATING: Final = word_set(
    "add append create generate init insert make mkdir new put register store touch upload write plan todo"
)
"""Verbs of tools that make something, whose id the model may choose."""
_FILE_CREATING: Final = CREATING | word_set("download export log save submit")
_FILE_VERBS: Final = word_set(
    "cat copy delete diff edit get head move open patch read remove rename replace rm show stat tail update view"
)
_FILE_NAMES: Final = word_set("path filepath filename file")
_CONTACT_NAMES: Final = word_set("street address postcode zip zipcode phone telephone mobile iban")
_CONTACT_VERBS: Final = CREATING | word_set("book call change dial edit order pay save send set ship submit update")
"""Verbs of tools that must not get a made-up address."""
_TARGET_WORDS: Final = word_set("destination dest dst target to new output out")
_ID_ENDINGS: Final = word_set("id ids uuid uuids guid guids identifier identifiers")
_SHAPED_ENDINGS: Final = word_set("code codes key keys token tokens number numbers no ref reference sku handle")
"""Endings of names that hold an identifier if the value looks like one."""
_NOT_REFERENCES: Final = word_set(
    "idempotency request correlation trace span nonce session tool call timezone tz locale language lang country "
    "currency region model voice color colour font airport station unit mime postal zip area dial status exit error "
    "page line max min total row column version port phone street house week season count limit random source "
    "primary foreign sort api access secret public private cache node cell tab postcode license"
)
"""Words in a name: its values are the caller's own, come from general knowledge, or are not references."""
_FREE_DESCRIPTION: Final = re.compile(
    r"\b(?:choose (?:an?|any|your)|generate|invent|random|new (?:unique )?(?:id|identifier|uuid)|your own|arbitrary"
    r"|any (?:string|unique|id|identifier)|to create|unique (?:id|identifier|name) for (?:this|the new))\b",
    re.IGNORECASE,
)
_ID_DESCRIPTION: Final = re.compile(r"\W*(?:the |a |an )?(?:\w+ ){0,3}(?:id|identifier|uuid|guid)s?\b", re.IGNORECASE)
_PLAIN: Final = re.compile(
    r"\d{1,2}|(?=\d*[a-z])[a-z\d]{1,3}|v?\d{1,3}(?:\.\d{1,3})+|[a-z]{2}(?:[-_][A-Za-z]{2,4})?"
    r"|true|false|null|none|all|any|me|self|default|current|latest|primary|root"
    r"|\d{4}-\d\d(?:-\d\d.*)?|\d\d?[:.]\d\d.*|https?://.*",
    re.IGNORECASE | re.DOTALL,
)
"""Matches values that are implied by the user's words or by general knowledge: small numbers, short codes, dates."""
_NAME: Final = re.compile(r"[A-Z][\w'.-]*(?: [A-Z][\w'.-]*){1,4}")
_CODE_SHAPE: Final = re.compile(r"(?=[^\s]*\d{2})[A-Za-z]{0,12}[-_#:/]?[\w-]{2,60}")
_PLACEHOLDER: Final = re.compile(
    r"<[^<>]+>|\{\{?[^{}]+\}?\}|\$\{?\w+\}?|(?:your|the|some)[_-]\w+|.*_here", re.IGNORECASE
)
PLACEHOLDER_FOLDER: Final = re.compile(r"/?(?:path/to|your/path)(?![\w-])(?:/[\w.-]+)*", re.IGNORECASE)
_PLACEHOLDER_PATH: Final = re.compile(r"/?(?:path/to|your/path)/.*", re.IGNORECASE | re.DOTALL)
_KNOWN_FILES: Final = re.compile(
    r"readme.*|licen[cs]e.*|changelog.*|contributing.*|(?:package|tsconfig|composer)\.json|pyproject\.toml|setup\.(?:py|cfg)"
    r"|makefile|dockerfile|requirements.*\.txt|cargo\.toml|go\.mod|\..*|claude\.md|agents\.md|(?:index|main|app)\.\w+"
    r"|(?:lib|mod)\.rs|conftest\.py|__(?:init|main)__\.py",
    re.IGNORECASE,
)
"""Matches names of files that projects usually have."""
_SYSTEM_PATH: Final = re.compile(r"/(?:etc|var/log|proc)/.*", re.DOTALL)
_NUMBERED_NAME: Final = re.compile(r"([A-Z]{1,5}|[a-z])[-_.]?\d{1,5}[A-Za-z]?")
"""Matches `ISO9001` and `h264`, names that are general knowledge, and ids such as `ORD-123`, whose letters abbreviate
what they identify.
"""
_SHORT_NUMBERED_NAME: Final = re.compile(r"[A-Za-z]+(?:\d{1,3}|[-_.]\d{1,2})[A-Za-z]?")
_EXAMPLES: Final = re.compile(rf"\b(?:{EXAMPLE_MARKS}|like)(?P<examples>[^;\n]*)", re.IGNORECASE)
_REPOSITORY: Final = re.compile(r"[A-Za-z][\w.-]*/[A-Za-z][\w.-]*")
_PUBLISHED: Final = word_set("repo repository model dataset package image")
"""What has names of the form `owner/name`."""


_ENDINGS: Final = _ID_ENDINGS | _SHAPED_ENDINGS | _FILE_NAMES
_ENTITY: Final = re.compile(
    r"\b([A-Za-z]+)(?:'s)? (?:id|identifier|uuid|guid)s?\b"
    r"|\b(?:id|identifier|uuid)s? (?:of|for) (?:the |an? )?([A-Za-z]+)",
    re.IGNORECASE,
)
_NO_ENTITY: Final = word_set("the a an unique this its valid numeric string internal existing exact")


class IdentifierValue(NamedTuple):
    """A value of a call that refers to something that exists."""

    name: str
    """The name of the parameter."""
    value: str
    kind: Kind
    entity: frozenset[str]
    """Words for what it identifies, such as `user`."""
    description: str
    """The description of the parameter."""


def name_words(name: str) -> tuple[str, ...]:
    """Returns the words of a name, in lower case: `userId` and `user_id` are the same."""
    return tuple(word.lower() for word in _NAME_WORD.findall(name))


def singular(word: str) -> str:
    """Returns the word without the ending of a plural."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


def find_identifiers(tool: Tool, arguments: Any) -> list[IdentifierValue]:
    """Returns the values of these arguments that are identifiers.

    Args:
        tool: The tool that is called.
        arguments: The decoded arguments.
    """
    schema = schema_of(tool.parameters)
    tool_words = name_words(tool.name)
    creates = _has_creating_command(arguments)
    out: list[IdentifierValue] = []
    for name, value, rule in islice(leaves(arguments, schema, "", 0), MAX_LEAVES):
        found = _identifier(tool_words, name, value, rule, creates=creates)
        if found:
            out.append(found)
    return out


def required_ids(tool: Tool) -> list[IdentifierValue]:
    """Returns the first ids, without values, that every call of a tool needs, by the names of its parameters."""
    schema = schema_of(tool.parameters)
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return []
    out: list[IdentifierValue] = []
    for name in required[:MAX_LEAVES]:
        rule = properties.get(name) if isinstance(name, str) else None
        if not isinstance(rule, dict):
            continue
        name_tokens = name_words(name)
        if name_tokens and name_tokens[-1] in _ID_ENDINGS and _NOT_REFERENCES.isdisjoint(name_tokens):
            description = _description(rule)
            entity = _entity(name_words(tool.name), name_tokens, description)
            out.append(IdentifierValue(name, "", "id", entity, description))
            if len(out) == MAX_REQUIRED_IDS:
                break
    return out


def _has_creating_command(arguments: Any) -> bool:
    """Whether an option of the call makes it create something."""
    if not isinstance(arguments, dict):
        return False
    command = next((arguments[key] for key in ("command", "action", "mode", "operation") if key in arguments), "")
    name_tokens = name_words(command) if isinstance(command, str) and len(command) < MAX_VALUE_CHARS else ()
    return arguments.get("old_string") == "" or not _FILE_CREATING.isdisjoint(name_tokens)


def _identifier(
    tool_words: tuple[str, ...], name: str, value: object, rule: Mapping[str, Any], *, creates: bool
) -> IdentifierValue | None:
    text = value if isinstance(value, str) else str(value)
    if not text or len(text) > MAX_VALUE_CHARS or isinstance(value, bool | float) or "\n" in text:
        return None
    if "enum" in rule or "const" in rule or rule.get("default") == value:
        return None
    name_tokens = name_words(name)
    if not name_tokens or (kind := _kind(tool_words, name_tokens, text, rule, creates=creates)) is None:
        return None
    description = _description(rule)
    return IdentifierValue(name, text, kind, _entity(tool_words, name_tokens, description), description)


def _entity(tool_words: tuple[str, ...], name_tokens: tuple[str, ...], description: str) -> frozenset[str]:
    """Words for what the parameter identifies: by its name and description, else by the tool's name."""
    named = [word for word in name_tokens if word not in _ENDINGS]
    described = [word for match in _ENTITY.finditer(description) for word in match.groups() if word]
    return frozenset(singular(word.lower()) for word in [*named, *described] or tool_words[1:]) - _NO_ENTITY


def _kind(
    tool_words: tuple[str, ...], name_tokens: tuple[str, ...], text: str, rule: Mapping[str, Any], *, creates: bool
) -> Kind | None:
    """What the value identifies; None: it is not an identifier."""
    description = _description(rule)
    if name_tokens[-1] in _FILE_NAMES:
        reads = (
            not creates
            and _FILE_CREATING.isdisjoint(tool_words)
            and not _FILE_VERBS.isdisjoint(tool_words)
            and _TARGET_WORDS.isdisjoint(name_tokens)
        )
        return "path" if reads and not _is_usual_path(text) else None
    if not (_CONTACT_NAMES.isdisjoint(name_tokens) or _CONTACT_VERBS.isdisjoint(tool_words)):
        return "contact" if any(map(str.isdigit, text)) and "://" not in text else None
    if not _NOT_REFERENCES.isdisjoint(name_tokens) or _FREE_DESCRIPTION.search(description):
        return None
    is_id = name_tokens[-1] in _ID_ENDINGS or rule.get("format") == "uuid"
    is_shaped = name_tokens[-1] in _SHAPED_ENDINGS or bool(_ID_DESCRIPTION.match(description))
    if not (is_id or (is_shaped and _CODE_SHAPE.fullmatch(text))) or _PLAIN.fullmatch(text):
        return None
    if not CREATING.isdisjoint(tool_words) and (set(name_tokens) - _ID_ENDINGS - _SHAPED_ENDINGS <= set(tool_words)):
        return None  # the id of what the call creates
    if any(char.isspace() for char in text):
        return "name" if is_id and _NAME.fullmatch(text) else None
    return "id"


def _description(rule: Mapping[str, Any]) -> str:
    return str(rule.get("description", ""))[:_MAX_DESCRIPTION_CHARS]


def _is_usual_path(path: str) -> bool:
    last = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    if _PLACEHOLDER_PATH.fullmatch(path):
        return False
    is_usual = _KNOWN_FILES.fullmatch(last) or _SYSTEM_PATH.fullmatch(path)
    return not last or any(char in path for char in "*?[") or bool(is_usual) or "://" in path


def is_placeholder(found: IdentifierValue) -> bool:
    """Returns whether the model wrote what should be filled in, such as `<user_id>` or `path/to/file`."""
    if found.kind == "path":
        return bool(_PLACEHOLDER_PATH.fullmatch(found.value))
    same_as_name = name_words(found.value) == name_words(found.name)
    return same_as_name or bool(_PLACEHOLDER.fullmatch(found.value))


def is_public_name(found: IdentifierValue) -> bool:
    """Returns whether the value can be general knowledge: one word such as `bitcoin`, or the name of a repository.

    If the parameter's description has an example such as `D-1000`, a single word is not such an identifier.
    """
    if found.kind == "path" or is_placeholder(found):
        return False
    if found.entity & _PUBLISHED and _REPOSITORY.fullmatch(found.value):
        return True
    rest = found.value[1:]
    is_word = found.value.isalpha() and (rest == rest.lower() or found.value.isupper())
    return is_word and not _has_example(found.description)


def is_example(found: IdentifierValue) -> bool:
    """Returns whether the value was copied from an example in its parameter's description: "such as D-1000"."""
    for match in _EXAMPLES.finditer(found.description):
        for word in _bare_words(match["examples"]):
            if word == found.value:
                return True
            if word not in ("and", "or", "") and not _CODE_SHAPE.fullmatch(word):
                break
    return False


def _has_example(description: str) -> bool:
    return any(map(_CODE_SHAPE.fullmatch, _bare_words(description)))


def _bare_words(text: str) -> list[str]:
    """Returns the words of a text without the punctuation around them."""
    return [each.strip(".,;:()'\"`") for each in text.split()]


def is_numbered_name(found: IdentifierValue) -> bool:
    """Returns whether the value can be general knowledge, such as `ISO9001`.

    The letters before the number do not abbreviate what it identifies, and are not the first that come.
    """
    match = _NUMBERED_NAME.fullmatch(found.value)
    if match is None or _has_example(found.description):
        return False
    letters = match[1].lower()
    is_made_up = letters == "a" or (len(letters) > 1 and letters in ascii_lowercase)
    return not is_made_up and not any(_abbreviates(letters, word) for word in (*found.entity, *name_words(found.name)))


def has_short_number(name: str) -> bool:
    """Returns whether a numbered name is too short for an id: `A4`, `h264`, `F-16`."""
    return _SHORT_NUMBERED_NAME.fullmatch(name) is not None


def _abbreviates(letters: str, word: str) -> bool:
    """Whether a word begins with the first of these letters, and has the others in their order."""
    rest = iter(word)
    return word.startswith(letters[0]) and all(letter in rest for letter in letters)


def leaves(
    value: object, rule: Mapping[str, Any], name: str, depth: int
) -> Iterator[tuple[str, object, Mapping[str, Any]]]:
    """Yields each text and integer with the name of its member and its schema.

    Args:
        value: The decoded JSON.
        rule: Its schema.
        name: The name of the member that contains it.
        depth: How deep it is in the arguments.
    """
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        properties = rule.get("properties")
        for key, inner in value.items():
            inner_rule = properties.get(key) if isinstance(properties, dict) else None
            yield from leaves(inner, inner_rule if isinstance(inner_rule, dict) else {}, key, depth + 1)
    elif isinstance(value, list):
        items = rule.get("items")
        inner_rule = {"description": rule.get("description", ""), **items} if isinstance(items, dict) else {}
        for inner in value:
            yield from leaves(inner, inner_rule, name, depth + 1)
    elif isinstance(value, str | int):
        yield name, value, rule


@lru_cache(256)
def schema_of(parameters: str) -> Mapping[str, Any]:
    """Returns the decoded schema of a tool; an empty one if it is not valid."""
    try:
        schema = json.loads(parameters)
    except (ValueError, RecursionError):
        return {}
    return schema if isinstance(schema, dict) else {}
