"""Words that say nothing, in place of words that do, of the same shape.

    Please read /home/ada/notes.txt  →  Qzwkvy kbmn /hqtm/vko/wjcxb.pdq
    {"name": "Read", "arguments": {"path": "/home/ada"}}  →  {"name": "Read", "arguments": {"path": "/hqtm/vko"}}

Every character stays one of its kind and of as many bytes; punctuation, white space and escapes stay what they are, and
so do names that are to be kept. The same word becomes the same word throughout, another becomes another, so that what
reads the text, and looks for what stands in it twice, does what it did. Which word it was cannot be told without the
`salt`, which is chance and thrown away.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import blake2b, shake_128
from typing import Final, Literal, NamedTuple

_PIECE: Final = re.compile(r"(?P<escape>\\+u[0-9a-fA-F]{4}|\\+.)|(?P<word>\w+)", re.DOTALL)
_PART: Final = re.compile(r"(?P<letters>[^\W0-9_]+)|(?P<digits>[0-9]+)")
_TOKEN: Final = re.compile(
    r'"(?P<said>(?:[^"\\\n]|\\.)*+)(?:"|\\?$)(?P<key>\s*:)?|[\[{]|[\]}]|(?P<number>[0-9]+(?:\.[0-9]+)?)(?:[eE][+-]?[0-9]+)?',
    re.MULTILINE,
)
"""A string that is cut off, as the last of a stream that broke, is one too."""
_OUTERMOST: Final = 2
"""As many are open within the outermost object."""
_OF_BYTES: Final = {2: (0x3B1, 17), 3: (0x4E00, 5000), 4: (0x20000, 5000)}
"""Letters whose UTF-8 is so long: Greek, Han and Han again; the first and how many."""


class Anonymizer:
    """Fills texts in."""

    def __init__(self, keep: Iterable[str], salt: bytes) -> None:
        """`keep`: texts whose words stay."""
        self._keep = {word for text in keep for word in re.findall(r"\w+", text)}
        self._salt = salt

    def anonymize(self, text: str) -> str:
        """As long a text, of the same shape."""
        return _PIECE.sub(self._replace, text)

    def _replace(self, found: re.Match[str]) -> str:
        if word := found["word"]:
            return word if word in self._keep else _PART.sub(self._replace_part, word)
        escape = found[0]
        if "u" in escape[:-1] and not 0xD800 <= int(escape[-4:], 16) < 0xE000:
            return f"{escape[:-4]}{0x4E00 + self._number(escape) % 5000:04x}"
        return escape

    def _replace_part(self, found: re.Match[str]) -> str:
        part = found[0]
        if found["digits"]:
            first = part[0] if part[0] == "0" else str(1 + self._number(part) % 9)
            return first + "".join(str(n % 10) for n in self._bytes(part[1:] + "#", len(part) - 1))
        return "".join(map(_similar_letter, part, self._bytes(part, len(part))))

    def _number(self, text: str) -> int:
        return int.from_bytes(self._bytes(text, 4))

    def _bytes(self, text: str, count: int) -> bytes:
        word = blake2b(text.lower().encode("utf-8", "surrogatepass"), key=self._salt)
        return shake_128(word.digest()).digest(count)


class KeepRules(NamedTuple):
    """What of JSON stays as it is, by names of members."""

    kept: Mapping[str, re.Pattern[str]] = {}
    """Strings that stay where the whole of them is so."""
    whole: Collection[str] = ()
    """Objects and lists that stay; only members of the outermost object."""
    prose: Collection[str] = ()
    """What does not stay in those after all."""
    free: Collection[str] = ()
    """Objects of which nothing stays: names of members and numbers are changed too."""
    named: Collection[str] = ()
    """Objects whose members have names that somebody chose, so none of those above is one."""


KEEP_NOTHING: Final = KeepRules()


def map_strings(text: str, change: Callable[[str], str], spared: KeepRules = KEEP_NOTHING) -> str:
    """JSON, or pieces of it with whatever between, with its strings changed; `change` keeps their lengths.

    What goes on in the next member of the same name, as in a stream, is one text.
    """
    runs: dict[str, list[_Found]] = {}
    for found in _strings(text, spared):
        runs.setdefault(found.name, []).append(found)
    made: list[tuple[_Found, str]] = []
    for run in runs.values():
        joined, at = change("".join(text[each.start : each.end] for each in run)), 0
        for each in run:
            made.append((each, joined[at : at + each.end - each.start]))
            at += each.end - each.start
    out, done = [], 0
    for each, said in sorted(made):
        out += [text[done : each.start], said]
        done = each.end
    return "".join([*out, text[done:]])


class _Found(NamedTuple):
    start: int
    end: int
    name: str
    """Of the member whose value it is; for names of members, that with a blank before it; for numbers, its place."""


class _Open(NamedTuple):
    """An object or a list that is not closed yet."""

    name: str = ""
    """Of the member whose value it is."""
    how: Literal["", "whole", "free"] = ""


def _strings(text: str, spared: KeepRules) -> Iterator[_Found]:
    """The insides of the strings, and the numbers, that are to be changed."""
    above = [_Open()]
    name = ""
    for token in _TOKEN.finditer(text):
        said, outer = token[0], above[-1]
        if said[0] in "[{":
            above.append(_open(outer, name, said == "{", len(above), spared))
        elif said[0] in "]}":
            above.pop()
            above = above or [_Open()]
        elif token["number"]:
            if outer.how == "free":
                yield _Found(*token.span("number"), f"\0{token.start()}")
        elif token["key"]:
            name = token["said"]
            if outer.how == "free":
                yield _Found(*token.span("said"), f" {name}")
            continue
        elif not _is_kept(outer, name or outer.name, token["said"], spared):
            yield _Found(*token.span("said"), name or outer.name)
        name = ""


def _open(outer: _Open, name: str, is_object: bool, depth: int, spared: KeepRules) -> _Open:
    label = name or outer.name
    if outer.how == "whole":
        return _Open(label, "free" if name in spared.prose and outer.name not in spared.named else "whole")
    if not outer.how and depth == _OUTERMOST and name in spared.whole:
        return _Open(label, "whole")
    return _Open(label, "free" if name in spared.free and is_object else outer.how)


def _is_kept(outer: _Open, name: str, said: str, spared: KeepRules) -> bool:
    """Whether this string does."""
    if outer.how == "whole":
        return name not in spared.prose
    return not outer.how and name in spared.kept and bool(spared.kept[name].fullmatch(said))


def _similar_letter(letter: str, chance: int) -> str:
    """A letter of the same kind, and as many bytes."""
    if letter.isascii():
        return chr((ord("A") if letter.isupper() else ord("a")) + chance % 26)
    first, count = _OF_BYTES.get(len(letter.encode("utf-8", "surrogatepass")), (ord(letter), 1))
    return chr(first + chance % count)
