"""Runs tau2's tasks on a server, and prints a line of JSON for each.

    PYTHON -P solo.py '{"base_url": …, "model": …, "stored": […], "tasks": …}'

PYTHON is that of an environment with tau2, which lacks Dragoman: this file imports nothing else of the project.
"""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

DOMAIN = "mock"
"""The other domain with such tasks, telecom, needs 9,900 tokens for policy and tools."""
REPLY_TOKENS = 400
MAX_STEPS = 20
"""Responses and results of a task after which it ends."""
TIMEOUT_S = 240


def runs(settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the run of each task that has a ticket and needs no message of a user.

    Args:
        settings: `base_url` and `model`, `stored`: ids of tasks that are skipped, `tasks`: maximum number of others.
    """
    from tau2.agent.llm_agent import LLMSoloAgent
    from tau2.registry import registry

    solvable = [each for each in registry.get_tasks_loader(DOMAIN)() if LLMSoloAgent.check_valid_task(each)]
    missing = [each for each in solvable if each.id not in settings["stored"]]
    for task in missing[: settings["tasks"]]:
        yield _run(task, settings)


def _run(task: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    from tau2.agent import llm_agent
    from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation
    from tau2.orchestrator.orchestrator import Orchestrator
    from tau2.registry import registry
    from tau2.user.user_simulator import DummyUser

    responses: list[tuple[dict[str, int], list[tuple[str, str]]]] = []
    generate = llm_agent.generate

    def recorded(**request: Any) -> Any:
        response = generate(**request)
        calls = [(call.name, json.dumps(call.arguments)) for call in response.tool_calls or ()]
        responses.append((response.usage or {}, calls))
        return response

    environment = registry.get_env_constructor(DOMAIN)(solo_mode=True)
    sampling = {"temperature": 0, "max_tokens": REPLY_TOKENS}
    server = {"api_base": settings["base_url"], "api_key": "none", "timeout": TIMEOUT_S, "num_retries": 0}
    model, options = f"openai/{settings['model']}", {**sampling, **server, "max_retries": 0}
    agent = llm_agent.LLMSoloAgent(environment.get_tools(), environment.get_policy(), task, model, options)
    limits = {"max_steps": MAX_STEPS, "solo_mode": True}
    simulation = Orchestrator(DOMAIN, agent, DummyUser(), environment, task, **limits)
    reward = 0.0
    try:
        with mock.patch.object(llm_agent, "generate", recorded):
            finished = simulation.run()
        reward = evaluate_simulation(finished, task, EvaluationType.ALL, True, DOMAIN).reward
        end = str(finished.termination_reason.value)
    except ValueError:  # of tau2 for a response without a call, and for arguments that are not an object
        end = "text" if responses and not responses[-1][1] else "invalid arguments"
    return {
        "task": task.id,
        "reward": reward,
        "end": end,
        "responses": len(responses),
        "input_tokens": sum(usage.get("prompt_tokens", 0) for usage, _ in responses),
        "output_tokens": sum(usage.get("completion_tokens", 0) for usage, _ in responses),
        "calls": [call for _, calls in responses for call in calls],
    }


if __name__ == "__main__":
    lines = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for run in runs(json.loads(sys.argv[1])):
            print(json.dumps(run), file=lines, flush=True)
