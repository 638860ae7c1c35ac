"""Runs scenarios on a program: a plain agent loop over OpenAI Chat Completions.

Errors of tools are results. Text without a call ends the run, and so does a terminal tool that succeeds.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from bench.accuracy.scenarios.arms import Arm, RunningArm
from bench.accuracy.scenarios.episode import Episode
from bench.accuracy.scenarios.recording import RecordedCall, RecordedTurn, ScenarioRun, digest
from bench.accuracy.scenarios.scenario import ToolScenario

REPLY_TOKENS: Final = 400
MAX_TURNS: Final = 10
LOOP_TURNS: Final = 3
"""Turns with the same calls and results after which a run ends."""
CPU_LIMIT_S: Final = 150.0
"""CPU seconds of a run after which it ends."""
_TIMEOUT_S: Final = 240.0

Post = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Sends a body to the program, and returns its response."""


def post_to(program: RunningArm) -> Post:
    """Returns what sends requests to a program."""

    def post(body: Mapping[str, Any]) -> dict[str, Any]:
        data = json.dumps(body).encode()
        headers = {"content-type": "application/json", "authorization": "Bearer none"}
        request = urllib.request.Request(f"{program.base_url}/v1/chat/completions", data, headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            answer: dict[str, Any] = json.load(response)
            return answer

    return post


def run_scenario(
    scenario: ToolScenario,
    arm_name: str,
    arm: Arm,
    post: Post,
    cpu_s: Callable[[], float],
    sampling: Mapping[str, Any],
) -> ScenarioRun:
    """Runs one scenario and returns its recording.

    Args:
        scenario: the scenario.
        arm_name: name of the arm.
        arm: the arm.
        post: sends a request.
        cpu_s: returns the CPU seconds of the program so far.
        sampling: `model`, `temperature` and `seed` of each request.
    """
    episode = Episode(scenario)
    messages: list[dict[str, Any]] = [{"role": "user", "content": scenario.prompt}]
    tools = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in scenario.tools
    ]
    turns: list[RecordedTurn] = []
    start = cpu_s()
    end = ""
    while not end:
        body = {**sampling, "messages": messages, "tools": tools, "max_tokens": REPLY_TOKENS, **arm.fields(scenario)}
        before = cpu_s()
        try:
            answer = post(body)
        except urllib.error.HTTPError as error:
            end = f"error: {error.code} {error.read(300).decode(errors='replace')}"
            break
        except OSError as error:
            end = f"error: {type(error).__name__}"
            break
        turn = _run_turn(answer, episode, messages, digest(body), round(cpu_s() - before, 2))
        turns.append(turn)
        end = end_of(turns, cpu_s() - start, is_over=episode.is_over)
    return ScenarioRun(arm_name, scenario.name, int(sampling.get("seed", 0)), turns, end)


def end_of(turns: Sequence[RecordedTurn], spent_s: float, *, is_over: bool) -> str:
    """Returns why a run ends after these turns; empty: it continues.

    Args:
        turns: its turns so far.
        spent_s: its CPU seconds.
        is_over: a terminal tool succeeded.
    """
    if is_over:
        return "terminal"
    last = turns[-1].calls
    if not last:
        return "text"
    if len(turns) >= LOOP_TURNS and all(turn.calls == last for turn in turns[-LOOP_TURNS:]):
        return "loop"
    if len(turns) >= MAX_TURNS:
        return "turns"
    return "cpu" if spent_s > CPU_LIMIT_S else ""


def _run_turn(
    answer: Mapping[str, Any], episode: Episode, messages: list[dict[str, Any]], request: str, cpu_s: float
) -> RecordedTurn:
    """Runs the calls of a response, and appends it and their results to the conversation."""
    choice, usage = answer["choices"][0], answer.get("usage") or {}
    message = choice["message"]
    tool_calls = message.get("tool_calls") or []
    text = message.get("content") or ""
    messages.append({"role": "assistant", "content": text, **({"tool_calls": tool_calls} if tool_calls else {})})
    calls: list[RecordedCall] = []
    for call in tool_calls:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        if episode.is_over:
            break
        result = episode.call(name, arguments)
        calls.append(RecordedCall(name, arguments, result))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    tokens = (usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0))
    return RecordedTurn(request, text, calls, choice.get("finish_reason") or "", *tokens, cpu_s)
