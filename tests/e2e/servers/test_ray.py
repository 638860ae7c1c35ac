"""A real Ray cluster on loopback: the small model in two replicas, of which one is lost with its node."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from support import ray_cluster
from support.ports import free_port
from support.ray_cluster import RayCluster
from support.stream_load import streaming, until

pytestmark = pytest.mark.skipif(not ray_cluster.IS_INSTALLED, reason="needs the extra ray, on Linux")
MODEL = "smollm2-135m"
SETTINGS = """
[server]
port = {port}
[embedded]
threads = 1
prefix_cache_mb = 0
[ray_deployments."smollm2-135m"]
min_replicas = 2
num_cpus = 1
[ray_deployments.gateway]
num_cpus = 0
resource = "head"
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster.running(num_cpus=0, resources={"head": 1}) as running:
        yield running


def deploy(cluster: RayCluster, path: Path, *more: str) -> str:
    ran = ray_cluster.dragoman("deploy", "ray", str(path), "--address", cluster.address, *more)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


async def test_node_is_lost_under_load(cluster: RayCluster, tmp_path: Path) -> None:
    port = free_port()
    path = tmp_path / "config.toml"
    path.write_text(SETTINGS.format(port=port))
    nodes = [cluster.add(num_cpus=1) for _ in range(2)]
    url = f"http://127.0.0.1:{port}"
    assert f"ready: {url}" in deploy(cluster, path)
    assert [each["id"] for each in httpx2.get(f"{url}/v1/models").json()["data"]] == [MODEL]
    async with streaming(url, MODEL, 4, max_tokens=40) as load:
        await until(lambda load: load.complete >= 2 and load.running == 4, load)
        before = load.complete
        cluster.remove(nodes[0])
        await until(lambda load: load.complete >= before + 4, load)
    assert not load.refused
    assert not load.cut


def test_errors_name_what_is_missing(cluster: RayCluster, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(SETTINGS.format(port=free_port()).replace('"head"', '"attic"'))
    ran = ray_cluster.dragoman("deploy", "ray", str(path), "--address", cluster.address)
    assert ran.returncode == 2
    assert "no node has attic; start Ray with --resources='{\"attic\": 1}'" in ran.stderr
    ran = ray_cluster.dragoman("deploy", "ray", str(path), "--address", f"127.0.0.1:{free_port()}")
    assert ran.returncode == 2
    assert "got none (connection refused); start one with `ray start --head`" in ran.stderr
