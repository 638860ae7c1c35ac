"""Replaces text by meaningless text of the same shape.

    Please read /home/ada/notes.txt  →  Qzwkvy kbmn /hqtm/vko/wjcxb.pdq
    {"name": "Read", "arguments": {"path": "/home/ada"}}  →  {"name": "Read", "arguments": {"path": "/hqtm/vko"}}

Every character is replaced by one of the same kind with as many bytes; punctuation, white space, escapes, and names to
keep are not changed. The same word always becomes the same word and different words become different ones, so code that
reads the text or searches for repetitions in it behaves as before. The original words cannot be recovered without the
`salt`, which is random and discarded.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import blake2b, shake_128
from typing import Final, Literal, NamedTuple

_PIECE: Final = re.compile(r"(?P<escape>\\+u[0-9a-fA-F]{4}|\\+.)|(?P<word>\w+)", re.DOTALL)
_PART: Final = re.compile(r"(?P<letters>[^\W0-9_]+)|(?P<digits>[0-9]+)")
_TOKEN: Final = re.compile(
    r'"(?P<string>(?:[^"\\\n]|\\.)*+)(?:"|\\?$)(?P<key>\s*:)?|[\[{]|[\]}]|(?P<number>[0-9]+(?:\.[0-9]+)?)(?:[eE][+-]?[0-9]+)?',
    re.MULTILINE,
)
"""A string that is cut off, such as the last one of a broken stream, counts too."""
_OUTERMOST: Final = 2
"""Depth of the members of the outermost object."""
_OF_BYTES: Final = {2: (0x3B1, 17), 3: (0x4E00, 5000), 4: (0x20000, 5000)}
"""Letters by the length of their UTF-8: Greek, Han and Han again; the first letter and how many are used."""


class Anonymizer:
    """Replaces words in texts."""

    def __init__(self, keep: Iterable[str], salt: bytes) -> None:
        """Args:
        keep: Texts whose words are not replaced.
        salt: Random bytes; the same salt gives the same words.
        """
        self._keep = {word for text in keep for word in re.findall(r"\w+", text)}
        self._salt = salt

    def anonymize(self, text: str) -> str:
        """Returns a text of the same length and shape."""
        return _PIECE.sub(self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        if word := match["word"]:
            return word if word in self._keep else _PART.sub(self._replace_part, word)
        escape = match[0]
        if "u" in escape[:-1] and not 0xD800 <= int(escape[-4:], 16) < 0xE000:
            return f"{escape[:-4]}{0x4E00 + self._number(escape) % 5000:04x}"
        return escape

    def _replace_part(self, match: re.Match[str]) -> str:
        part = match[0]
        if match["digits"]:
            first = part[0] if part[0] == "0" else str(1 + self._number(part) % 9)
            return first + "".join(str(n % 10) for n in self._bytes(part[1:] + "#", len(part) - 1))
        return "".join(map(_similar_letter, part, self._bytes(part, len(part))))

    def _number(self, text: str) -> int:
        return int.from_bytes(self._bytes(text, 4))

    def _bytes(self, text: str, count: int) -> bytes:
        word = blake2b(text.lower().encode("utf-8", "surrogatepass"), key=self._salt)
        return shake_128(word.digest()).digest(count)


class KeepRules(NamedTuple):
    """Which parts of JSON are not changed, by the names of members."""

    kept_strings: Mapping[str, re.Pattern[str]] = {}
    """Strings that stay if the pattern matches all of them."""
    kept_containers: Collection[str] = ()
    """Objects and lists that stay; only as members of the outermost object."""
    replaced_members: Collection[str] = ()
    """Members in those objects and lists that are changed nevertheless."""
    replaced_containers: Collection[str] = ()
    """Objects in which everything is changed, also names of members and numbers."""
    user_named: Collection[str] = ()
    """Objects whose members have names that a user chose; the names above do not apply to them."""


KEEP_NOTHING: Final = KeepRules()


def map_strings(text: str, change: Callable[[str], str], rules: KeepRules = KEEP_NOTHING) -> str:
    """Returns JSON, or pieces of JSON with other text between them, with its strings changed.

    Strings of consecutive members with the same name, as in a stream, are changed as one text.

    Args:
        text: The JSON.
        change: Returns a text of the same length.
        rules: What is not changed.
    """
    runs: dict[str, list[_Found]] = {}
    for each_string in _strings(text, rules):
        runs.setdefault(each_string.name, []).append(each_string)
    changed: list[tuple[_Found, str]] = []
    for run in runs.values():
        joined, at = change("".join(text[each.start : each.end] for each in run)), 0
        for each in run:
            changed.append((each, joined[at : at + each.end - each.start]))
            at += each.end - each.start
    out, done = [], 0
    for each, string in sorted(changed):
        out += [text[done : each.start], string]
        done = each.end
    return "".join([*out, text[done:]])


class _Found(NamedTuple):
    start: int
    end: int
    name: str
    """Of the member whose value it is; for names of members, the name after a space; for numbers, the position."""


class _Open(NamedTuple):
    """An object or a list that is not closed yet."""

    name: str = ""
    """Of the member whose value it is."""
    treatment: Literal["", "keep", "replace"] = ""


def _strings(text: str, rules: KeepRules) -> Iterator[_Found]:
    """The contents of the strings, and the numbers, that are to be changed."""
    above = [_Open()]
    name = ""
    for token in _TOKEN.finditer(text):
        lexeme, outer = token[0], above[-1]
        if lexeme[0] in "[{":
            above.append(_open(outer, name, lexeme == "{", len(above), rules))
        elif lexeme[0] in "]}":
            above.pop()
            above = above or [_Open()]
        elif token["number"]:
            if outer.treatment == "replace":
                yield _Found(*token.span("number"), f"\0{token.start()}")
        elif token["key"]:
            name = token["string"]
            if outer.treatment == "replace":
                yield _Found(*token.span("string"), f" {name}")
            continue
        elif not _is_unchanged(outer, name or outer.name, token["string"], rules):
            yield _Found(*token.span("string"), name or outer.name)
        name = ""


def _open(outer: _Open, name: str, is_object: bool, depth: int, rules: KeepRules) -> _Open:
    label = name or outer.name
    if outer.treatment == "keep":
        return _Open(
            label, "replace" if name in rules.replaced_members and outer.name not in rules.user_named else "keep"
        )
    if not outer.treatment and depth == _OUTERMOST and name in rules.kept_containers:
        return _Open(label, "keep")
    return _Open(label, "replace" if name in rules.replaced_containers and is_object else outer.treatment)


def _is_unchanged(outer: _Open, name: str, text: str, rules: KeepRules) -> bool:
    """Whether this string is not changed."""
    if outer.treatment == "keep":
        return name not in rules.replaced_members
    return not outer.treatment and name in rules.kept_strings and bool(rules.kept_strings[name].fullmatch(text))


def _similar_letter(letter: str, chance: int) -> str:
    """A letter of the same kind with as many bytes."""
    if letter.isascii():
        return chr((ord("A") if letter.isupper() else ord("a")) + chance % 26)
    first, count = _OF_BYTES.get(len(letter.encode("utf-8", "surrogatepass")), (ord(letter), 1))
    return chr(first + chance % count)
