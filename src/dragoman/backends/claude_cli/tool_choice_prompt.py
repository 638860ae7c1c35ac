"""How free the model is to answer, in words: the CLI has no other way to say it. And what an answer must have then."""

from typing import NamedTuple

from dragoman.core.messages import ToolChoice


class ReplyRequirement(NamedTuple):
    """What an answer must have; one without is asked for once more, and the second is given as it comes."""

    call: bool = False
    """A call, before all else."""
    name: str = ""
    """Of this tool."""
    reply: bool = False
    """A reply of the schema, or a call."""
    words: bool = False
    """No call."""

    @property
    def again(self) -> str:
        """What the model is told where an answer has not."""
        if self.words:
            return "No tool may be called now, and this call was not run. Answer in words."
        if self.name:
            return f"Call the tool {self.name} now, and write nothing else. No other call is run."
        return "You called no tool. Call one now, and write nothing else."

    @property
    def missed(self) -> str:
        """What an answer has not, for people."""
        if self.words:
            return "a tool was called where none may be"
        if self.name:
            return "the tool that was named was not called"
        return "no tool was called where one must be" if self.call else "there is no reply of the schema"


def reply_requirement(choice: ToolChoice, *, tools: bool, schema: bool) -> ReplyRequirement:
    """What an answer to such a request must have, where there are tools, and a schema of the reply."""
    must = tools and choice.mode in ("required", "named")
    return ReplyRequirement(
        call=must,
        name=choice.name if must else "",
        reply=schema and not must,
        words=tools and choice.mode == "none",
    )


def tool_choice_instruction(choice: ToolChoice) -> str:
    """What stands behind the system prompt; "" where the model is free."""
    told = []
    match choice.mode:
        case "none":
            told.append("Answer this turn in words. Call no tool, whatever was called before.")
        case "required":
            told.append("Answer this turn by calling at least one tool, and write no words before it.")
        case "named":
            told.append(f"Answer this turn by calling the tool {choice.name}, and write no words before it.")
        case "auto":
            pass
    if not choice.parallel and choice.mode != "none":
        told.append("Call one tool at most in a turn.")
    return " ".join(told)
