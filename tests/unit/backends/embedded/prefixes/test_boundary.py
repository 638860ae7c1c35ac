import pytest

from dragoman import formats
from dragoman.backends.embedded.prefixes.boundary import PrefixBoundary, common_chars, constant_first
from dragoman.backends.text_mode.chat_template import ChatTemplate
from dragoman.core.messages import Message, Request, Text, Tool
from support.chat_templates import CHATML, HERMES_TEMPLATE

SYSTEM = Message("system", (Text("Keep to the point. " * 80),))
TOOL = Tool("find", "Finds files. " * 100, '{"type": "object", "properties": {"name": {"type": "string"}}}')
CONTROL = ("<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "[TOOLS]", "[/TOOLS]")
TOOLS_LAST = """{% for m in messages %}{% if m.role == "assistant" %}{{ m.content }}{% else %}
{% if loop.last %}[TOOLS]<tool_call>{{ tools | tojson }}[/TOOLS]{% endif %}[INST]{{ m.content }}[/INST]{% endif %}
{% endfor %}"""


def boundary(source: str) -> tuple[PrefixBoundary, ChatTemplate]:
    template = ChatTemplate(source, "<s>", "</s>", CONTROL)
    return PrefixBoundary(template, formats.get("hermes")), template


def prefix(source: str, *messages: Message, tools: tuple[Tool, ...] = ()) -> str:
    found, template = boundary(source)
    request = Request("m", messages, tools)
    text = template.render(request, formats.get("hermes")).text
    end = found.constant_chars(request, text)
    assert found.constant_chars(request, text) == end
    return text[:end]


def user(text: str) -> Message:
    return Message("user", (Text(text),))


@pytest.mark.parametrize("said", ["Hello", "?", "", "?" * 20, "<|im_start|>user\nHello", "Keep to the point."])
@pytest.mark.parametrize("source", [CHATML, HERMES_TEMPLATE, ""], ids=["chatml", "hermes", "none"])
def test_prefix_ends_before_first_user_message(source: str, said: str) -> None:
    found = prefix(source, SYSTEM, user(said), tools=(TOOL,))
    assert found == prefix(source, SYSTEM, user("Something else"), tools=(TOOL,))
    assert found.rstrip().endswith("<|im_end|>")
    assert found.count("<|im_start|>") == 1
    assert "Keep to the point." in found
    assert '"find"' in found or "find" in found


def test_prefix_is_that_of_longer_conversation() -> None:
    first = prefix(CHATML, SYSTEM, user("Hello"))
    assert prefix(CHATML, SYSTEM, user("Hello"), Message("assistant", (Text("Hi"),)), user("More")) == first


def test_other_system_text_has_other_prefix() -> None:
    found, template = boundary(CHATML)
    longer = Message("system", (Text(SYSTEM.parts[0].text + "And more."),))  # type: ignore[union-attr]
    for system in (SYSTEM, longer, SYSTEM):
        request = Request("m", (system, user("Hi")))
        text = template.render(request, formats.get("hermes")).text
        assert text[: found.constant_chars(request, text)].count(system.parts[0].text) == 1  # type: ignore[union-attr]


def test_tools_next_to_last_message_are_not_constant() -> None:
    said = (SYSTEM, user("Hello"), Message("assistant", (Text("Hi"),)), user("More"))
    assert "[TOOLS]" not in prefix(TOOLS_LAST, *said, tools=(TOOL,))


@pytest.mark.parametrize("source", [CHATML, HERMES_TEMPLATE], ids=["chatml", "hermes"])
def test_examples_are_not_part_of_saved_prefixes(source: str) -> None:
    tool = Tool(TOOL.name, TOOL.description, TOOL.parameters, examples=('{"name": "a-private-name"}',))
    assert "a-private-name" not in prefix(source, SYSTEM, user("Hello"), tools=(tool,))
    context = Message("user", (Text("<context>\nfolders\n</context>"), Text("Hello")))
    assert "a-private-name" not in prefix(source, SYSTEM, context, tools=(tool,))


def test_prompt_without_system_text_and_tools_has_no_prefix() -> None:
    assert prefix(CHATML, user("Hello " * 500)) == ""


def test_short_system_text_is_no_prefix() -> None:
    assert prefix(CHATML, Message("system", (Text("Be brief."),)), user("Hello " * 500)) == ""


@pytest.mark.parametrize(
    ("a", "b", "length"), [("", "", 0), ("a", "", 0), ("abc", "abd", 2), ("abc", "abc", 3), ("abc", "x", 0)]
)
def test_common_chars(a: str, b: str, length: int) -> None:
    assert common_chars(a, b) == common_chars(b, a) == length
    assert common_chars(a * 1000 + "x", a * 1000 + "y") == len(a) * 1000


REMINDER = Text("<system-reminder>\nToday is Friday. " + "The folder has a file. " * 20 + "\n</system-reminder>")


def test_context_of_agent_belongs_to_prefix() -> None:
    found = prefix(CHATML, SYSTEM, Message("user", (REMINDER, Text("My secret"))))
    assert "Today is Friday" in found
    assert "secret" not in found
    assert found == prefix(CHATML, SYSTEM, Message("user", (REMINDER, Text("?"))))


@pytest.mark.parametrize(
    "parts",
    [
        (Text("My secret"), REMINDER),
        (Text("<system-reminder>Hi</system-reminder> My secret <system-reminder>x</system-reminder>"), Text("x")),
        (Text("<system-reminder>My secret"), Text("x</system-reminder>")),
        (Text("<system-reminder>My secret</system-reminder>"),),
        (Text("<b>My secret</b>"), Text("x")),
    ],
)
def test_text_of_user_does_not_belong_to_prefix(parts: tuple[Text, ...]) -> None:
    assert prefix(CHATML, SYSTEM, Message("user", parts)) == prefix(CHATML, SYSTEM, user("Hello"))


def test_system_messages_before_first_response_come_first() -> None:
    rules, more = Message("developer", (Text("Rules"),)), Message("system", (Text("More"),))
    asked, reply = user("Hello"), Message("assistant", (Text("Hi"),))
    moved = constant_first(Request("m", (SYSTEM, asked, rules, reply, user("Go on"), more)))
    assert moved.messages == (SYSTEM, rules, asked, reply, user("Go on"), more)
    first = constant_first(Request("m", (SYSTEM, asked, rules)))
    assert moved.messages[:3] == first.messages
