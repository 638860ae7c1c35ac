"""How free the model is to call tools, in words: the CLI has no other way to say it."""

from dragoman.core.values import ToolChoice


def policy(choice: ToolChoice) -> str:
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
