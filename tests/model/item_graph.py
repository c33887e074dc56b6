"""The item graph in plain Python, written from its requirements: items, states, the worklist.

Nothing here knows of PostgreSQL, or of how the package does it. `operations` says what each
operation does to such a graph, `crawls` what claims, failures, time and new code do. Times are
hours on a clock that the test moves; what happens at the same hour is told apart by a tick.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Refused(Exception):  # noqa: N818 - it says what became of the operation
    """An operation that cannot be carried out; `kind` is the error's class name."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Pair(NamedTuple):
    """An item, by its number, and a task."""

    item: int
    task: str


@dataclass(frozen=True)
class Task:
    """What code declares of a task (SRAP-12); `ttl` in hours, None: its results never expire."""

    tags: tuple[str, ...]
    version: str = "1"
    ttl: float | None = None
    depends_on: tuple[str, ...] = ()
    nice: int = 0
    slot: str | None = None
    download: bool = True
    max_failures: int | None = None
    exclusive: str = "pair"
    retry_failed_on_version_bump: bool = False
    is_callback: bool = False  # a plain callback, whose requests are items


class Handled(NamedTuple):
    """A failure that a person handled: at an hour, after so many attempts in all."""

    hour: float
    attempts: int
    kind: str


@dataclass
class Result:
    """What a pair last produced (SRAP-10); `open` are the kinds of its open failures."""

    made: int  # the tick

    metadata: dict[str, Any] = field(default_factory=dict)
    version: str | None = None
    completed: tuple[float, int] | None = None  # the hour and the tick; None: never run
    expires: float | None = None
    has_own_ttl: bool = False
    run: int = 0  # of the crawl, in which it was completed or held last
    expired: int | None = None  # the tick of an `Expire`
    is_held: bool = False
    is_gone: bool = False  # held, because its page is no more
    led_to: str | None = None  # the name of the known page that its redirect led to
    open: list[str] = field(default_factory=list)
    handled: list[Handled] = field(default_factory=list)

    def let_run(self) -> None:
        """Let it run again, whatever failed: that is the later word on its failures."""
        self.is_held, self.is_gone, self.open, self.handled = False, False, [], []


class Attempt(NamedTuple):
    """One claim's life, kept as history: of a pair the last ten."""

    order: int
    number: int  # the try, from 1
    outcome: str


@dataclass(frozen=True)
class Blob:
    """Binary data of an item."""

    content: bytes
    mime: str | None
    attached: tuple[float, int, int]  # the hour, the tick, and how many there had been by then


@dataclass
class Item:
    """An item (SRAP-1); its names are in the graph."""

    name: str
    data: dict[str, Any]
    tags: dict[str, Any]
    created_by: str | None
    nice: int | None
    not_before: float | None
    updated: int  # the tick
    results: dict[str, Result] = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    blobs: dict[str, Blob] = field(default_factory=dict)
    holds: dict[str, str] = field(default_factory=dict)  # why tasks are left alone (MNB-7)

    def free_left(self, task: str) -> None:
        """Let a task run again that a run left which its spider closed."""
        if self.holds.get(task) == "left":
            del self.holds[task]

    def take_blobs(self, gone: Item) -> None:
        """Take another item's binary data over; of two with a name the later one is kept."""
        for name, blob in gone.blobs.items():
            if name not in self.blobs or blob.attached > self.blobs[name].attached:
                self.blobs[name] = blob

    @property
    def slot(self) -> str:
        """The website that its requests go to."""
        own = self.data.get("download_slot")
        return own if own is not None else urlsplit(self.data.get("url", "")).hostname or ""


@dataclass
class Work:
    """An outstanding pair (SRAP-11, SRAP-15), in its place since `since`, and its claim."""

    since: tuple[int, int]  # between these ticks
    not_before: float | None
    tries: int = 0
    deaths: int = 0
    deaths_alone: int = 0
    token: Any = None
    worker: int | None = None
    version: str | None = None
    answers: int | None = None  # the expiry that was there when it was claimed
    request: dict[str, Any] | None = None  # where redirects took it
    refiled: str | None = None  # the website that its request really goes to


class ItemGraph:
    """Items, names, tasks, and what follows from them: the worklist."""

    def __init__(self) -> None:
        self.now = 0.0
        self.tick = 0
        self.numbers = 0
        self.attempts_made = 0
        self.blobs_attached = 0
        self.items: dict[int, Item] = {}
        self.names: dict[str, int | None] = {}  # None: of a deleted item, and stays taken
        self.tasks: dict[str, Task] = {}
        self.disabled: set[str] = set()
        self.registered: set[str] = set()
        self.work: dict[Pair, Work] = {}
        self.run = 0
        self.stopped: set[str] = set()  # by `max_failures`, when a commit begins
        self.swept_since: int | None = None  # the tick at which code changed that is not yet swept
        self.tracks_depth = False
        self.depth_limit: int | None = None
        self.depths: dict[int, int] = {}  # the least that was known, by item (MNB-9)
        self.links: dict[int, set[int]] = {}  # by the item that links
        self.moved: dict[int, int] = {}  # where merges took items

    # Depths

    def survivor(self, number: int) -> int | None:
        """Return the item that an item was merged into, or is; None where it was deleted."""
        while number in self.moved:
            number = self.moved[number]
        return number if number in self.items else None

    def is_too_deep(self, number: int) -> bool:
        """Tell whether an item is deeper than the limit (MNB-9)."""
        return self.depth_limit is not None and self.depths.get(number, 0) > self.depth_limit

    def come_nearer(self, number: int | None, depth: int) -> None:
        """Let an item have a depth, if that is less than what it has."""
        if number is not None:
            self.depths[number] = min(depth, self.depths.get(number, depth))

    def pass_depths_on(self) -> None:
        """Give each item the least depth that links say; none rises (MNB-10)."""
        for gone, into in self.moved.items():
            found = self.survivor(into)
            if gone in self.depths:
                self.come_nearer(found, self.depths.pop(gone))
            if gone in self.links and found is not None:
                self.links.setdefault(found, set()).update(self.links.pop(gone))
        for number in [one for one in self.depths if one not in self.items]:
            del self.depths[number]
            self.links.pop(number, None)
        before: dict[int, int] | None = None
        while before != self.depths:
            before = dict(self.depths)
            for parent, children in self.links.items():
                for child in children:
                    if parent in before and self.survivor(child) not in {None, parent}:
                        self.come_nearer(self.survivor(child), before[parent] + 1)

    # Names

    def resolve(self, name: str) -> int:
        """Return the number of the item that has a name, be it an alias (SRAP-6)."""
        number = self.names.get(name)
        if number is None:
            raise Refused("ItemNotFoundError")
        return number

    def names_of(self, number: int) -> list[str]:
        """Return all names of an item."""
        return sorted(name for name, owner in self.names.items() if owner == number)

    def contents(self) -> set[bytes]:
        """Return all binary data that some item has."""
        return {blob.content for item in self.items.values() for blob in item.blobs.values()}

    # States of a pair (design, section 4)

    def is_fresh(self, pair: Pair) -> bool:
        """Tell whether a result is good: completed, of this version, not expired (SRAP-15, 20)."""
        result = self.items[pair.item].results.get(pair.task)
        return (
            result is not None
            and result.completed is not None
            and result.version == self.tasks[pair.task].version
            and result.expired is None
            and (result.expires is None or result.expires > self.now)
        )

    def state(self, pair: Pair) -> str:
        """Return one word for a pair's state; set aside, then held, come before the others."""
        hold = self.items[pair.item].holds.get(pair.task)
        if hold is not None:
            return hold
        result = self.items[pair.item].results.get(pair.task)
        if result is not None and result.is_held:
            return "gone" if result.is_gone else "held"
        if result is None or result.completed is None:
            return "never run"
        return "fresh" if self.is_fresh(pair) else "stale"

    def is_called_for(self, pair: Pair) -> bool:
        """Tell whether a tag of the item calls for the task (SRAP-14)."""
        tags = self.items[pair.item].tags.keys()
        return pair.task in self.registered and not tags.isdisjoint(self.tasks[pair.task].tags)

    def is_outstanding(self, pair: Pair) -> bool:
        """Tell whether a pair is on the worklist (SRAP-15, SRAP-18, SRAP-21)."""
        needed = self.tasks[pair.task].depends_on
        return (
            self.is_called_for(pair)
            and not self.is_too_deep(pair.item)
            and self.state(pair) in {"never run", "stale"}
            and all(self.state(Pair(pair.item, task)) == "fresh" for task in needed)
        )

    def outstanding(self) -> set[Pair]:
        """Return all pairs that are on the worklist."""
        pairs = (Pair(number, task) for number in self.items for task in self.registered)
        return {pair for pair in pairs if self.is_outstanding(pair)}

    # Work: the same with its places, tries and claims

    def settle(self) -> None:
        """Make work what is outstanding; who is claimed stays until the claim ends."""
        self._look_for_the_gone()
        outstanding = self.outstanding()
        for pair, work in list(self.work.items()):
            if pair.item not in self.items or (work.token is None and pair not in outstanding):
                del self.work[pair]
        for pair in outstanding - self.work.keys():
            since = (self.tick if self.swept_since is None else self.swept_since, self.tick)
            self.work[pair] = Work(since, self.items[pair.item].not_before)

    def _look_for_the_gone(self) -> None:
        """Let run again what was gone until now."""
        results = [one for item in self.items.values() for one in item.results.values()]
        for result in results:
            if result.is_gone and result.expires is not None and result.expires <= self.now:
                result.is_held = result.is_gone = False

    def nice(self, pair: Pair) -> int:
        """Return a pair's priority: the item's own, else the task's (MNB-4)."""
        own = self.items[pair.item].nice
        return self.tasks[pair.task].nice if own is None else own

    def slot(self, pair: Pair) -> str:
        """Return the website of a pair's requests."""
        task, work = self.tasks[pair.task], self.work.get(pair)
        if work is not None and work.refiled is not None:
            return work.refiled
        if not task.download:
            return ""
        return self.items[pair.item].slot if task.slot is None else task.slot

    def is_stopped(self, task: str) -> bool:
        """Tell whether a task has too many open failures (SRAP-28)."""
        most = self.tasks[task].max_failures
        pairs = [Pair(number, task) for number in self.items]
        counted = [
            kind
            for pair in pairs
            if self.is_called_for(pair) and task in self.items[pair.item].results
            for kind in self.items[pair.item].results[task].open
            if kind != "refused"
        ]
        return most is not None and len(counted) >= most

    def claimable(self) -> set[Pair]:
        """Return the work that may be claimed now, as far as no other claim stands against it."""
        closed = {task for task in self.tasks if task in self.disabled or self.is_stopped(task)}
        return {
            pair
            for pair, work in self.work.items()
            if work.token is None
            and pair.task not in closed
            and (work.not_before is None or work.not_before <= self.now)
        }

    def excludes(self, one: Pair, other: Pair) -> bool:
        """Tell whether two pairs may not run at once (SRAP-17).

        The requirements are silent on a claim whose task vanished from the code: it is in no way.
        """
        tasks = self.registered & {one.task, other.task}
        kinds = {self.tasks[task].exclusive for task in tasks}
        return one != other and one.item == other.item and "item" in kinds
