"""Sends notices: each channel in a short-lived process of its own, with a limit of time.

So nothing of it is loaded by a worker, a runner or a server, a function that hangs holds up no
webhook, and what takes too long is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING, Any
from uuid import uuid4

from scrapy_itemgraph.model.notices import TEST, Answer, Arrival, Notice
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scrapy_itemgraph.channels.channel import Channel, Channels

logger = logs.logger(__name__)

SECONDS = 60.0  # that a channel has for the notices of one call
AT_ONCE = 10  # notices of a call
LEASE = timedelta(seconds=SECONDS + 30)
"""How long notices are one sender's."""

_DIES_WITHIN = 5.0  # seconds that a killed process has to be gone

_CHILD = Path(__file__).with_name("child.py")


def send(
    channels: Channels, notices: Sequence[Notice], *, seconds: float = SECONDS
) -> dict[int, list[Answer]]:
    """Send notices by all channels that have not done with them; return their answers, by notice.

    It blocks, `seconds` at most. What is not answered by then failed.
    """
    answers: dict[int, list[Answer]] = {one.id: [] for one in notices}
    if not (channels and notices):
        return answers

    def by(channel: Channel) -> None:
        due = [one for one in notices if all(channel.name != each.channel for each in one.done)]
        said = _send(channels, channel, due, seconds) if due else []
        for notice, answer in zip(due, said, strict=True):
            answers[notice.id].append(answer)

    # No pool: the interpreter waits for its threads before it ends.
    threads = [Thread(target=by, args=(one,), daemon=True) for one in channels.channels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def send_test(channels: Channels, by: str) -> list[Answer]:
    """Send a test by each channel now; return what they answered. It is stored nowhere."""
    notice = Notice(
        id=0,
        key=str(uuid4()),
        what=TEST,
        project=channels.project,
        crawl=None,
        reason=None,
        detail={"by": by},
        created_at=datetime.now(UTC),
    )
    return send(channels, [notice])[0]


def _send(
    channels: Channels, channel: Channel, notices: Sequence[Notice], seconds: float
) -> list[Answer]:
    """Send notices by one channel, in their order; return an answer for each."""
    task = {
        "means": channel.means,
        "target": channel.target,
        "secret": channels.secret,
        "directory": str(channels.directory),
        "notices": [one.document(channels.cockpit) for one in notices],
    }
    try:
        written, how = _run(task, channels.directory, seconds)
    except OSError as error:
        written, how = b"", f"no process could be started: {error.strerror}"
    answers = [_answer(channel, one) for one in _read(written)][: len(notices)]
    missing = len(notices) - len(answers)
    none = Answer(channel=channel.name, arrival=Arrival.FAILED, said=how)
    return answers + [none] * missing


def _run(task: Mapping[str, Any], directory: Path, seconds: float) -> tuple[bytes, str]:
    """Run the process; return what it wrote, and how it ended. Secrets stay in memory.

    What it reads and writes is memory, not a pipe: a pipe stays open as long as a daemon has it
    that a function left behind.
    """
    with _memory("asked") as asked, _memory("answers") as answers:
        asked.write(json.dumps(task).encode())
        asked.seek(0)
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", str(_CHILD)],
            stdin=asked,
            stdout=answers,
            cwd=directory,
            start_new_session=True,
        )
        how = _ended(process, seconds)
        answers.seek(0)
        return answers.read(), how


def _memory(name: str) -> IO[bytes]:
    return os.fdopen(os.memfd_create(name), "w+b")


def _ended(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Wait for the end of a process, which is killed after `seconds`; return how it ended."""
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(_DIES_WITHIN)
        except subprocess.TimeoutExpired:  # the kernel does something for it that cannot be ended
            logger.warning("The process %d of a channel was killed, and stays", process.pid)
        return f"no answer within {seconds:.0f} seconds"
    return f"its process ended with code {code}, and no answer"


def _read(written: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the whole lines of what a process wrote."""
    lines = written.split(b"\n")[:-1]
    return map(json.loads, lines)


def _answer(channel: Channel, one: Mapping[str, Any]) -> Answer:
    return Answer(channel=channel.name, arrival=Arrival(one["arrival"]), said=one["said"])
