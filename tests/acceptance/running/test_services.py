"""The files with which a runner is kept running: what the page about services shows is right."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import yaml
from support import queued

HOWTO = Path(__file__).parents[3] / "docs" / "howto" / "services.md"
ENDLESS = """
class S(scrapy.Spider):
    name = "s"

    async def start(self):
        while True:
            await asyncio.sleep(0.05)
        yield

    def parse(self, response):
        pass
"""


def blocks(language: str) -> list[str]:
    """Return the page's blocks in a language."""
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, HOWTO.read_text(), re.MULTILINE | re.DOTALL)


RUNNER, FRONTIER = blocks("ini")


def starts(unit: str) -> list[str]:
    """Return the words with which a unit starts its process."""
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    return shlex.split(line)


@pytest.mark.parametrize("unit", [RUNNER, FRONTIER], ids=["runner", "frontier"])
def test_systemd_takes_the_units(tmp_path, unit):
    """A unit has no word that systemd does not know; paths and the user are this machine's."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = unit.replace(starts(unit)[0], shutil.which("true") or "")
    unit = unit.replace("/srv/shop", str(tmp_path)).replace("User=crawl", "User=root")
    path = tmp_path / "shop-crawls.service"
    path.write_text(unit)

    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False
    )

    about_it = [line for line in checked.stderr.splitlines() if path.name in line]
    assert (checked.returncode, about_it) == (0, []), checked.stderr


def test_the_unit_starts_a_runner_that_sigterm_ends_in_order(project):
    """With the page's options; SIGTERM, which systemd and Docker send, ends its crawls first."""
    project.write(ENDLESS)
    queued.add(project, "books")
    program, itemgraph, work, *options = starts(RUNNER)

    patience = options.index("--stop-after") + 1
    runner = queued.work(project, *options[:patience], "1s", *options[patience + 1 :])
    queued.until_running(project, "books")
    runner.send_signal(signal.SIGTERM)
    run = project.finish(runner)

    assert (Path(program).name, itemgraph, work) == ("scrapy", "itemgraph", "work")
    assert run.code == 0, run.log
    assert queued.jobs(project) == [("books", "cancelled", 1)]


def test_compose_starts_what_the_unit_starts():
    """Each service starts a command that there is, and has longer to stop than a runner takes."""
    (text,) = blocks("yaml")
    services = yaml.safe_load(text)["services"]
    commands = {name: one["command"] for name, one in services.items() if "command" in one}

    assert commands["runner"].split() == ["scrapy", *starts(RUNNER)[1:]]
    assert commands["frontier"].split() == ["scrapy", *starts(FRONTIER)[1:]]
    assert commands["migrate"] == "scrapy itemgraph migrate"
    assert commands["cockpit"] == "scrapy itemgraph serve --host 0.0.0.0"
    assert "--stop-after 30s" in commands["runner"]
    assert services["runner"]["stop_grace_period"] == "2m"
