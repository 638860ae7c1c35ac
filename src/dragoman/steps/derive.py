"""Derives steps from the descriptions of tools."""

from dragoman.core.messages import Steps, Tool


def derive_steps(tools: tuple[Tool, ...], path: str = "") -> Steps | None:
    """Returns the steps that the tools themselves prescribe; None if there are none."""
    return None
