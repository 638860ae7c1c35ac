"""A Ray cluster on loopback: a head, and nodes that are only processes. Run as a program, so that no test imports Ray.

add {"num_cpus": 1, "resources": {}}  → the node's number       remove NUMBER  → removed; the node's processes die
    replicas NAME                         → the deployment's replicas by their state
"""

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from support.processes import Lines

IS_INSTALLED: Final = importlib.util.find_spec("ray") is not None and sys.platform == "linux"
ENVIRONMENT: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # addresses are 127.0.0.1, not that of the network
    "RAY_DEDUP_LOGS": "0",
}
_STORE_BYTES: Final = 80 * 2**20
_DEADLINE_S: Final = 480
"""Time for a command; a deployment took 40 s alone, and over 120 s beside other tests."""


class RayCluster:
    """The program, as the tests use it."""

    def __init__(self, lines: Lines, address: str, folder: Path) -> None:
        self._lines, self.address, self.folder = lines, address, folder

    def add(self, **options: Any) -> int:
        """Adds a node, and returns its number."""
        return int(self._lines.ask(f"add {json.dumps(options)}"))

    def remove(self, node: int) -> None:
        """Kills a node with all its processes."""
        assert self._lines.ask(f"remove {node}") == "removed"

    def replicas(self, deployment: str) -> dict[str, int]:
        """Returns the number of replicas in each state, such as `RUNNING`."""
        states: dict[str, int] = json.loads(self._lines.ask(f"replicas {deployment}"))
        return states


@contextlib.contextmanager
def running(**head: Any) -> Iterator[RayCluster]:
    """A cluster with a head; all its processes end with the block.

    Args:
        **head: Options of the head, such as `num_cpus`.
    """
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short: Ray's sockets are in it
    (folder / "ray").mkdir()  # for the file of the current cluster's address, whose folder Ray does not create
    own = {"PYTHONPATH": "tests", "RAY_ADDRESS": "", "RAY_TMPDIR": str(folder)}
    environment = {**os.environ, **ENVIRONMENT, **own}
    command = [sys.executable, "-m", "support.ray_cluster", json.dumps(head), str(folder)]
    with (folder / "cluster.log").open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
    lines = Lines(process)
    try:
        yield RayCluster(lines, lines.read(), folder)
    finally:
        process.communicate(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def dragoman(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command that connects to the cluster."""
    command = [sys.executable, "-m", "dragoman", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S)


def main() -> None:
    """Starts the cluster, and obeys until standard input ends."""
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints messages of its own
    folder = sys.argv[2]
    common = {"object_store_memory": _STORE_BYTES, "temp_dir": folder}
    head = {**common, "include_dashboard": False, "node_ip_address": "127.0.0.1", **json.loads(sys.argv[1])}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes: list[Any] = []
    ray.init(address=cluster.address, namespace="serve", log_to_driver=False)
    print(cluster.address, file=answers, flush=True)
    for line in sys.stdin:
        command, argument = line.split(maxsplit=1)
        if command == "add":
            nodes.append(cluster.add_node(**common, node_ip_address="127.0.0.1", **json.loads(argument)))
            print(len(nodes) - 1, file=answers, flush=True)
        elif command == "replicas":
            deployed = serve.status().applications["dragoman"].deployments[argument.strip()]
            print(
                json.dumps({str(state): number for state, number in deployed.replica_states.items()}),
                file=answers,
                flush=True,
            )
        else:
            cluster.remove_node(nodes[int(argument)], allow_graceful=False)
            print("removed", file=answers, flush=True)
    serve.shutdown()
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
