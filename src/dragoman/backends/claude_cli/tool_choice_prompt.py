"""The tool choice as text, since the CLI has no setting for it, and what a response must then contain."""

from typing import NamedTuple

from dragoman.core.messages import ToolChoice


class ReplyRequirement(NamedTuple):
    """What a response must contain; without it the model is re-asked once, and any second response is sent."""

    call: bool = False
    """A tool call."""
    name: str = ""
    """The name of the required tool."""
    reply: bool = False
    """A reply that matches the schema, or a call."""
    text: bool = False
    """No call."""

    @property
    def reask_message(self) -> str:
        """The message that re-asks the model."""
        if self.text:
            return "No tool may be called now, and this call was not run. Answer in words."
        if self.name:
            return f"Call the tool {self.name} now, and write nothing else. No other call is run."
        return "You called no tool. Call one now, and write nothing else."

    @property
    def missing_part(self) -> str:
        """What is missing, for the warning."""
        if self.text:
            return "a tool was called where none may be"
        if self.name:
            return "the tool that was named was not called"
        return "no tool was called where one must be" if self.call else "there is no reply of the schema"


def reply_requirement(choice: ToolChoice, *, tools: bool, schema: bool) -> ReplyRequirement:
    """Returns what the response must contain.

    Args:
        choice: the request's tool choice.
        tools: whether there are tools.
        schema: whether there is a schema of the reply.
    """
    needs_call = tools and choice.mode in ("required", "named")
    return ReplyRequirement(
        call=needs_call,
        name=choice.name if needs_call else "",
        reply=schema and not needs_call,
        text=tools and choice.mode == "none",
    )


def tool_choice_instruction(choice: ToolChoice) -> str:
    """Returns the text that follows the system prompt, or "" if the choice is free."""
    sentences = []
    match choice.mode:
        case "none":
            sentences.append("Answer this turn in words. Call no tool, whatever was called before.")
        case "required":
            sentences.append("Answer this turn by calling at least one tool, and write no words before it.")
        case "named":
            sentences.append(f"Answer this turn by calling the tool {choice.name}, and write no words before it.")
        case "auto":
            pass
    if not choice.parallel_tool_calls and choice.mode != "none":
        sentences.append("Call one tool at most in a turn.")
    return " ".join(sentences)
