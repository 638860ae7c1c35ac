"""Wording: phrases that comments, docstrings and messages avoid, and what to write instead.

Only prose is searched: code, and the expressions inside f-strings, are not. A phrase is found across wrapped lines and
adjacent string literals.
"""

import io
import re
import tokenize
from collections.abc import Iterator

from .finding import Finding

# Pattern -> what to write instead. A space matches any white space, and case is ignored.
WORDING = {
    "amiss": "wrong, invalid",
    "heed(s|ed|ing)?": "honour, support",
    "anew": "again; rebuilt, regenerated",
    "of late": "recently",
    "likewise": "also",
    "once more": "again; retried (the same request), re-asked (the model is shown its error)",
    "nobody": "name the subject and negate the verb: the client does not …",
    "somebody": "the client, the caller, the user",
    "whoever": "the client, the caller, the user",
    "beside": "next to",
    "in the box": "built-in, embedded",
    "servers? behind": "upstream server",
    "pass(es)? unread": "is passed through",
    "made here": "generated",
    "gone on from": "continued",
    "asked again": "retried (the same request), re-asked (the model is shown its error)",
    "tells of|told of": "reports, reported",
    "slips": "JSON errors",
    "pictures?": "image",
    "thoughts": "reasoning",
    "mend(s|ed|ing)?": "repair",
    "(is|are) no(?! longer)": "negate the verb, not the noun: is not a …, are not …",
    "(is|are) (?-i:none)": "negate the verb: is not one, does not have one, is missing",
}
_RULES = [(re.compile(rf"\b(?:{key})\b".replace(" ", r"\s+"), re.I), instead) for key, instead in WORDING.items()]
_ANY = re.compile("|".join(rule.pattern for rule, _ in _RULES), re.I)
_NEGATED = re.compile("(is|are) no", re.I)
_THERE = re.compile(r"\b(there|here)\s+$", re.I)

# Data, not prose: keys, metric labels, column heads, prompts. File -> exact literals, or exact fragments of several
# words.
DATA: dict[str, set[str]] = {
    "src/dragoman/guard/careful_words.py": {"reasoning summary thought thoughts why"},
    "src/dragoman/parsing/define_format.py": {"somebody else runs the tool"},
}

_LITERAL = re.compile(r"""(?s)^([A-Za-z]*)('{3}|"{3}|'|")(.*)\2$""")
_ESCAPE = re.compile(r"(?s)\\.")
_BETWEEN = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
_F_START, _F_MIDDLE, _F_END = (getattr(tokenize, f"FSTRING_{part}", -1) for part in ("START", "MIDDLE", "END"))


class _Prose:
    """Text that was put together from tokens, with the line of each part."""

    def __init__(self) -> None:
        self.text = ""
        self.parts: list[tuple[int, int]] = []

    def add(self, text: str, line: int) -> None:
        self.parts.append((len(self.text), line))
        self.text += text

    def line(self, offset: int) -> int:
        start, line = next(part for part in reversed(self.parts) if part[0] <= offset)
        return line + self.text.count("\n", start, offset)


def prose(source: str) -> Iterator[_Prose]:
    """The comments and string literals of a file: comments of adjoining lines and adjacent literals are one text."""
    comment, literal, depth = _Prose(), _Prose(), 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind, text, (line, _), _, whole = token
        if kind == tokenize.COMMENT:
            if comment.parts and (line != comment.parts[-1][1] + 1 or not whole.lstrip().startswith("#")):
                yield comment
                comment = _Prose()
            comment.add(text.lstrip("#") + "\n", line)
        elif kind in (_F_START, _F_END):
            depth += 1 if kind == _F_START else -1
        elif kind == _F_MIDDLE:
            literal.add(_ESCAPE.sub("  ", text), line)
        elif kind == tokenize.STRING:
            literal.add(_content(text), line)
        elif kind not in _BETWEEN and not depth:
            if literal.parts:
                yield literal
            literal = _Prose()
        elif kind == tokenize.NEWLINE and not depth:
            yield literal
            literal = _Prose()
        elif depth and literal.parts:
            literal.add("…", line)
    yield from (comment, literal)


def _content(token: str) -> str:
    found = _LITERAL.match(token)
    assert found, token
    prefix, _, content = found.groups()
    content = _ESCAPE.sub(lambda escape: "\n\n" if escape[0] == "\\\n" else "  ", content)
    return _without_fields(content) if "f" in prefix.lower() else content


def _without_fields(content: str) -> str:
    """The text with its `{…}` replaced by blanks and `…`; line ends stay, so that lines are still counted."""
    kept, depth = [], 0
    for char in content.replace("{{", "((").replace("}}", "))"):
        depth -= char == "}"
        kept.append(char if char == "\n" or (not depth and char != "{" and char != "}") else "…")
        depth += char == "{"
    return "".join(kept)


def check(path: str, source: str) -> Iterator[Finding]:
    """Yields every phrase of `WORDING` in the file's comments, docstrings and strings."""
    data = DATA.get(path, set())
    for part in prose(source):
        text = part.text
        if text in data or not _ANY.search(text):
            continue
        for fragment in data:
            if " " in fragment:
                text = text.replace(fragment, "…" * len(fragment))
        for rule, instead in _RULES:
            for found in rule.finditer(text):
                words = " ".join(found[0].split())
                if not (_NEGATED.match(words) and _THERE.search(text[: found.start()])):
                    yield Finding(path, part.line(found.start()), repr(words), f"write: {instead}")
