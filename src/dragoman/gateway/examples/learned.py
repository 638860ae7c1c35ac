"""What is stored of examples: those of an API key, and those that a conversation began with."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from dragoman.core.messages import JsonText, Tool

_ID_BYTES: Final = 12


class LearnedExample(msgspec.Struct, frozen=True, array_like=True):
    """The arguments of a call that worked."""

    arguments: JsonText
    learned_s: float
    """Seconds since 1970."""


class KeyExamples(msgspec.Struct, frozen=True, array_like=True):
    """The examples of one API key, by tool; the tool that learned an example last is the last one."""

    tools: Mapping[str, tuple[LearnedExample, ...]] = {}

    @property
    def count(self) -> int:
        """The number of examples."""
        return sum(map(len, self.tools.values()))

    @property
    def chars(self) -> int:
        """The characters of all examples."""
        return sum(len(each.arguments) for examples in self.tools.values() for each in examples)

    def after(self, time_s: float) -> "KeyExamples":
        """Returns the examples that were learned after this time."""
        if all(each.learned_s > time_s for examples in self.tools.values() for each in examples):
            return self
        recent = {
            key: tuple(each for each in examples if each.learned_s > time_s) for key, examples in self.tools.items()
        }
        return KeyExamples({key: examples for key, examples in recent.items() if examples})

    def with_example(self, key: str, example: LearnedExample, max_per_tool: int, max_tools: int) -> "KeyExamples":
        """Returns the examples with one more, in place of its tool's oldest; the same object if its tool has it.

        None stays because it was the first: a client can claim of any call that it worked.

        Args:
            key: The key of the tool.
            example: The example.
            max_per_tool: Maximum examples of a tool.
            max_tools: Maximum tools; the one that has learned nothing for the longest time is removed.
        """
        known = self.tools.get(key, ())
        if any(each.arguments == example.arguments for each in known):
            return self
        others = {other: examples for other, examples in self.tools.items() if other != key}
        while len(others) >= max_tools:
            del others[next(iter(others))]
        return KeyExamples({**others, key: (*known, example)[-max_per_tool:]})


class ConversationExamples(msgspec.Struct, frozen=True, array_like=True):
    """The examples that a conversation began with: their arguments, by the keys of their tools."""

    began_s: float
    """Seconds since 1970."""
    tools: Mapping[str, tuple[JsonText, ...]] = {}


def digest(*texts: str) -> str:
    """Returns a hash of texts, which may contain lone surrogates."""
    encoded = (text.encode(errors="surrogatepass") for text in texts)
    return blake2b(b"".join(b"%d:%b" % (len(data), data) for data in encoded), digest_size=_ID_BYTES).hexdigest()


def tool_key(tool: Tool) -> str:
    """Returns the key of a tool: other parameters make it another tool."""
    return digest(tool.name, tool.parameters)


def tool_keys(tools: Iterable[Tool]) -> dict[str, str]:
    """Returns the keys of the tools that the client runs, by their names."""
    return {tool.name: tool_key(tool) for tool in tools if tool.kind == "function"}
