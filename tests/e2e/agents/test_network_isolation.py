"""Network isolation of agents: they can reach only the gateway."""

import json
import socket
import sys
from pathlib import Path

import pytest
from bench import offline

from support import agents
from support.scripted_backend import plain, served

PROBE = """
import json, socket, sys, urllib.request
url, port = sys.argv[1:]
with urllib.request.urlopen(url + "/health") as answer:
    status = answer.status
with socket.socket() as other:
    refused = other.connect_ex(("127.0.0.1", int(port)))
print(json.dumps({"status": status, "refused": refused != 0, "devices": [name for _, name in socket.if_nameindex()]}))
"""


async def test_isolated_agent_reaches_only_gateway(tmp_path: Path) -> None:
    if not offline.separate_network():
        pytest.skip("the system does not allow network namespaces")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        async with served(plain) as s:
            (seen,) = agents.lines(
                await agents.run(s.url, tmp_path, tmp_path, [sys.executable, "-c", PROBE, s.url, port])
            )
    assert (seen["status"], seen["refused"]) == (200, True)
    assert set(seen["devices"]) <= {"lo", "tunl0", "sit0", "ip6tnl0"}, json.dumps(
        seen
    )  # some kernels create idle tunnels
