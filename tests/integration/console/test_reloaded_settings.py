"""After a reload, the console shows the upstream servers and settings that are in force then."""

from pathlib import Path

from support.console import API
from support.gateway import running, until
from support.scripted_backend import in_thread, plain


def test_page_has_the_settings_in_force_after_a_reload(tmp_path: Path) -> None:
    with in_thread(plain) as url:
        path = tmp_path / "config.toml"
        first = f'[embedded]\nenabled = false\n[upstreams.first]\nurl = "{url}/v1"\n'
        path.write_text(first)
        with running(tmp_path, "--config", str(path)) as gateway, gateway.client() as client:

            def names() -> list[str]:
                return [each["name"] for each in client.get(f"{API}/upstreams").json()["upstreams"]]

            assert names() == ["first"]
            path.write_text(f'{first}[upstreams.second]\nurl = "{url}/v1"\nmax_queue = 3\n')
            until(lambda: names() == ["first", "second"])
            settings = client.get(f"{API}/settings").json()
            assert settings["config_path"] == str(path)
            values = {row["key"]: row["value"] for row in settings["settings"]}
            assert values["upstreams.second.max_queue"] == "3"
            assert not settings["problems"]
