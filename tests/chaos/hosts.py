"""Another host and a small disk: what only root can have, and not in every container."""

from __future__ import annotations

import os
import random
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DISK = 8 << 30  # bytes; what is not written takes no memory


class UnavailableError(Exception):
    """The machine does not allow it."""


def run(*command: object) -> None:
    """Run a program of the system.

    Raises:
        UnavailableError: when it failed.

    """
    try:
        subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise UnavailableError(str(error)) from None
    except subprocess.CalledProcessError as error:
        raise UnavailableError(f"{command[0]}: {error.stderr.partition(chr(10))[0]}") from None


@dataclass(frozen=True)
class Host:
    """A network namespace at the other end of a cable, with a host name of its own."""

    name: str
    ours: tuple[str, ...]  # addresses of this machine, as that host knows it
    its: str

    @property
    def within(self) -> tuple[str, ...]:
        """Return the command that becomes another one on that host."""
        script = 'hostname "$0" && exec "$@"'
        return ("ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", script, self.name)

    def cut_off(self, *, at_its_end: bool) -> None:
        """Pull the cable: at its end it is told that there is no network, at ours nothing."""
        if at_its_end:
            run("ip", "-n", self.name, "link", "set", f"{self.name}b", "down")
        else:
            run("ip", "link", "set", f"{self.name}a", "down")

    def bring_back(self) -> None:
        """Put the cable in again."""
        run("ip", "-n", self.name, "link", "set", f"{self.name}b", "up")
        run("ip", "link", "set", f"{self.name}a", "up")
        run("ip", "route", "replace", f"{self.its}/32", "dev", f"{self.name}a", "src", self.ours[0])


@contextmanager
def host(addresses: int) -> Iterator[Host]:
    """Make a host that knows this machine by so many addresses, up to thirteen.

    Raises:
        UnavailableError: where the machine does not allow it.

    """
    # Of the addresses that are for tests of networks; several hosts may be there at once.
    at = random.SystemRandom().randrange(1 << 13) * 16
    net = f"198.{18 + (at >> 16)}.{at >> 8 & 255}."
    first = at & 255
    ours = tuple(f"{net}{first + 1 + number}" for number in range(addresses))
    one = Host(f"chaos{at:x}", ours, f"{net}{first + 14}")
    with ExitStack() as stack:
        run("ip", "netns", "add", one.name)
        stack.callback(run, "ip", "netns", "delete", one.name)
        end = ("type", "veth", "peer", "name", f"{one.name}b", "netns", one.name)
        run("ip", "link", "add", f"{one.name}a", *end)
        stack.callback(run, "ip", "link", "delete", f"{one.name}a")
        for address in ours:
            run("ip", "address", "add", f"{address}/32", "dev", "lo")
            stack.callback(run, "ip", "address", "delete", f"{address}/32", "dev", "lo")
        # While it is cut off, what is sent to it is lost and goes nowhere else.
        run("ip", "route", "add", "blackhole", f"{one.its}/32", "metric", "1000")
        stack.callback(run, "ip", "route", "delete", "blackhole", f"{one.its}/32")
        run("ip", "-n", one.name, "address", "add", f"{one.its}/28", "dev", f"{one.name}b")
        run("ip", "-n", one.name, "link", "set", "lo", "up")
        one.bring_back()
        run(*one.within, "true")
        yield one


class Disk:
    """A disk in memory that can be full."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextmanager
    def full(self) -> Iterator[None]:
        """Have no space left meanwhile."""
        while True:  # while others write, what is taken grows
            state = os.statvfs(self.directory)
            taken = max(state.f_blocks - state.f_bfree, 1) * state.f_frsize  # 0 is no limit
            try:
                self._resize(taken)
                break
            except UnavailableError:
                continue
        try:
            yield
        finally:
            self._resize(DISK)

    def _resize(self, size: int) -> None:
        run("mount", "-o", f"remount,size={size}", self.directory)


@contextmanager
def disk(directory: Path) -> Iterator[Disk]:
    """Have a disk of its own in a directory.

    Raises:
        UnavailableError: where the machine does not allow it.

    """
    run("mount", "-t", "tmpfs", "-o", f"size={DISK},mode=711", "chaos", directory)
    try:
        yield Disk(directory)
    finally:
        run("umount", "-l", directory)
