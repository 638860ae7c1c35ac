"""Which agents are asked how many calls they need."""

import pytest

from dragoman.backends.embedded.questions.call_decision import may_decide
from dragoman.backends.embedded.questions.call_plan import may_plan
from dragoman.core.messages import Message, Request, Text, Tool

RUN_COMMANDS = """
Bash bash sh zsh shell local_shell powershell pwsh cmd exec exec_command docker_exec run_command runCommand run_commands
execute_command execute_commands execute execute_code run_code code_execution code_interpreter python run_python
python_repl computer computer_use terminal run_in_terminal run_terminal_cmd command process start_process kill_process
start_processes write_stdin BashOutput execute-script RunShellCommand
"""
OTHERS = """
get_terminal_gates send_voice_command process_refund process_order execute_trade execute_payment run_report
search_python_docs get_computer_price start_return finish_order list_commands get_zip_code flash_sale
"""


def asked(name: str) -> bool:
    request = Request("m", (Message("user", (Text("Hello!"),)),), (Tool("get_weather", ""), Tool(name, "")))
    assert may_decide(request) == may_plan(request)
    return may_decide(request)


@pytest.mark.parametrize(
    "name",
    RUN_COMMANDS.split(),
)
def test_agents_that_run_commands_are_not_asked(name: str) -> None:
    assert not asked(name)


@pytest.mark.parametrize(
    "name",
    OTHERS.split(),
)
def test_agents_with_other_tools_are_asked(name: str) -> None:
    assert asked(name)
