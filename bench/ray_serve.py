"""A Ray cluster of a head and two nodes on loopback, with real small models: what becomes of requests.

    python -m bench.ray_serve [--claude]     four minutes; `--claude`: also the real Claude Code on a model of 1.1 GB

Requests are counted that complete, that fail before their first event (refused) and in mid-stream (cut), while

1. the deployment scales from one replica to two and back,
2. the application is updated, replica by replica,
3. a node with a replica is killed.

The texts of cut streams, which another replica continues, are compared with those of an undisturbed run. The exit
status is 0 if no request was lost. Everything that it starts is stopped at its end.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from bench import claude_code
from support import ray_cluster
from support.http_client import http_client
from support.ports import free_port
from support.ray_cluster import RayCluster
from support.stream_load import Load, ask, streaming, until

MODEL = "smollm2-135m"
CLAUDE_MODEL = claude_code.MODEL
SETTINGS = """
[server]
port = {port}
[embedded]
threads = 1
prefix_cache_mb = 0
context_window = {context_window}
[ray]
models = ["{model}"]
[ray_deployments."{model}"]
min_replicas = {least}
max_replicas = {most}
target_requests = 2
upscale_delay_s = 2
downscale_delay_s = 5
[ray_deployments.gateway]
num_cpus = 0
resource = "head"
"""
SCALE_S = 120.0


class ClusterRun:
    """The cluster, and the settings of its application."""

    def __init__(self, cluster: RayCluster, folder: Path) -> None:
        self.cluster, self._path, self.port = cluster, folder / "config.toml", free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.failed_requests = 0

    def deploy(self, least: int, most: int, context_window: int = 2048, model: str = MODEL) -> float:
        """Deploys, and returns the seconds that it took.

        Args:
            least: minimum number of replicas.
            most: maximum number of replicas.
            context_window: context window of the model; another one changes the application.
            model: the model.
        """
        values = {"least": least, "most": most, "context_window": context_window, "model": model}
        self._path.write_text(SETTINGS.format(port=self.port, **values))
        began_s = time.monotonic()
        ran = ray_cluster.dragoman("deploy", "ray", str(self._path), "--address", self.cluster.address)
        if ran.returncode:
            raise SystemExit(ran.stderr)
        return time.monotonic() - began_s

    async def replicas(self, number: int) -> float:
        """Waits until so many replicas run, and no others, and returns the seconds that it took."""
        began_s = time.monotonic()
        while (states := await asyncio.to_thread(self.cluster.replicas, MODEL)) != {"RUNNING": number}:
            if time.monotonic() - began_s > SCALE_S:
                raise SystemExit(f"expected {number} running replicas, got {states}")
            await asyncio.sleep(0.5)
        return time.monotonic() - began_s

    def report(self, what: str, load: Load) -> None:
        """Prints what became of the requests."""
        self.failed_requests += len(load.refused) + len(load.cut)
        print(
            f"{what}: {load.complete} complete, {len(load.refused)} refused, {len(load.cut)} cut, {load.continued} "
            f"continued; longest wait {load.longest_wait_s:.1f} s",
            flush=True,
        )
        for error in [*load.refused, *load.cut][:4]:
            print(f"  {error}", flush=True)


async def scale(bench: ClusterRun) -> None:
    """One replica becomes two under load, and one again."""
    async with streaming(bench.url, MODEL, 6) as load:
        up_s = await bench.replicas(2)
        await until(lambda load: load.complete >= 20, load)
    bench.report(f"autoscaling 1 to 2 in {up_s:.0f} s", load)
    async with streaming(bench.url, MODEL, 1) as load:
        down_s = await bench.replicas(1)
    bench.report(f"autoscaling 2 to 1 in {down_s:.0f} s, one client", load)


async def update(bench: ClusterRun) -> None:
    """The application is deployed again with another context window."""
    async with streaming(bench.url, MODEL, 4) as load:
        await until(lambda load: load.complete >= 2, load)
        took_s = await asyncio.to_thread(bench.deploy, 2, 2, 1024)
        await bench.replicas(2)
        await until(lambda load, before=load.complete: load.complete >= before + 8, load)
    bench.report(f"rolling update in {took_s:.0f} s", load)


async def lose_node(bench: ClusterRun, node: int) -> None:
    """A node is killed while both of its requests run."""
    async with streaming(bench.url, MODEL, 4) as load:
        await until(lambda load: load.complete >= 2 and load.running == 4, load)
        bench.cluster.remove(node)
        await until(lambda load, before=load.complete: load.complete >= before + 12, load)
    bench.report("killed node", load)
    same = 0
    async with http_client(timeout=SCALE_S) as http:
        for prompt in load.continued_prompts:
            undisturbed = Load()
            await ask(http, bench.url, {"model": MODEL, "max_tokens": 60}, prompt, undisturbed)
            same += undisturbed.texts.get(prompt) == load.texts.get(prompt)
    print(f"{same} of {load.continued} continued texts are those of an undisturbed run", flush=True)


async def run(cluster: RayCluster, folder: Path, *, with_claude: bool) -> int:
    """Runs all parts, and returns the exit status."""
    bench = ClusterRun(cluster, folder)
    nodes = [cluster.add(num_cpus=1) for _ in range(2)]
    print(f"deployed in {bench.deploy(1, 2):.0f} s", flush=True)
    await scale(bench)
    bench.deploy(2, 2)
    await update(bench)
    await lose_node(bench, nodes[0])
    if with_claude:
        cluster.add(num_cpus=1)
        print(f"{CLAUDE_MODEL} deployed in {bench.deploy(1, 1, 8192, CLAUDE_MODEL):.0f} s", flush=True)
        work = folder / "work"
        work.mkdir()
        (work / "notes.txt").write_text(claude_code.NOTES + "\n")
        session = await asyncio.to_thread(claude_code.ask, bench.url, CLAUDE_MODEL, work)
        print(session.transcript().replace(str(work), "FOLDER"), flush=True)
        for failure in (failures := session.failures()):
            print(f"failed: {failure}")
        bench.failed_requests += len(failures)
    return 1 if bench.failed_requests else 0


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.ray_serve", description=__doc__)
    parser.add_argument("--claude", action="store_true", help="also run the real Claude Code")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        ray_cluster.running(num_cpus=0, resources={"head": 1}) as cluster,
    ):
        return asyncio.run(run(cluster, Path(folder), with_claude=args.claude))


if __name__ == "__main__":
    sys.exit(main())
