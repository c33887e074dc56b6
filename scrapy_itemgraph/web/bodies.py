"""What is sent to the API, typed: checked, and described by its OpenAPI document."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from scrapy_itemgraph.model import moments

INT32 = 2**31
INT64 = 2**63

Json = dict[str, Any]


def _in_utc(value: datetime) -> datetime:
    """Take a time without a zone for one in UTC; refuse one that is none there."""
    value = value if value.tzinfo else value.replace(tzinfo=UTC)
    if not moments.is_sayable(value):
        raise ValueError("it is outside the years 1 to 9999 in UTC")
    return value


def _read_moment(value: Any) -> Any:
    """Read a time as ISO 8601 has it, and no number of seconds."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


Moment = Annotated[datetime, BeforeValidator(_read_moment), AfterValidator(_in_utc)]
GivenUuid = Annotated[UUID, Field(strict=False)]
GivenMoment = Annotated[Moment, Field(strict=False)]
Id = Annotated[str, Field(min_length=1, max_length=8192)]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Tag = Annotated[str, Field(min_length=1, max_length=1000)]
Period = Annotated[
    str | float, Field(description='seconds, or a period such as "6h" or "1d12h"', examples=["6h"])
]


class Given(BaseModel):
    """What is sent; what is not known is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NewItem(Given):
    """An item to be added."""

    id: Id | None = Field(None, description="left out: a random one")
    data: Json
    tags: list[Tag] | dict[Tag, Any] = Field([], description="names, or names with values")
    aliases: list[Id] = Field([], description="other ids; those that are taken are skipped")
    prefix: str | None = Field(None, description="what a random id begins with")
    nice: int | None = Field(None, ge=-INT32, lt=INT32, description="lower goes first")
    not_before: GivenMoment | None = None


class MergedItem(Given):
    """What is merged into an item."""

    data: Json = {}
    tags: list[Tag] | dict[Tag, Any] = Field([], description="added; values are set")


class NewTTL(Given):
    """When results expire."""

    ttl: Period | None = Field(description='also "never"; null: as the task says')
    task: Id | None = Field(None, description="left out: all tasks of the item")


class OfTask(Given):
    """A task of an item, or all of them."""

    task: Id | None = None


class DryRun(Given):
    """Whether the act is done, or only its cost told."""

    dry_run: bool = Field(default=False, description="true: say what it costs, change nothing")


class Handling(DryRun):
    """What becomes of the pairs that failed."""

    retry: bool = Field(default=True, description="false: they stay held")


class ChosenFailures(Given):
    """Which failures are meant; several hold together."""

    failures: list[Annotated[int, Field(ge=1, lt=INT64)]] | None = Field(
        None, min_length=1, max_length=1000, description="their numbers"
    )
    task: Id | None = None
    group: GivenUuid | None = None
    type: Text | None = Field(None, description="the error's type, exactly")
    text: Text | None = Field(None, description='part of "TYPE: MESSAGE", in capitals or not')


class HandlingOfMany(ChosenFailures, Handling):
    """Which failures are handled: those that are chosen, or all of the crawl."""

    since: GivenMoment | None = Field(None, description="that occurred since then")
    led_to: Id | None = Field(
        None, description="no failures: pages whose redirect led to this one, by its URL or id"
    )
    all: bool = False


class Undoing(ChosenFailures):
    """What is undone: the handling since a moment, of those that are chosen, or all."""

    since: GivenMoment
    failure: int | None = Field(None, ge=1, lt=INT64)
    occurred_since: GivenMoment | None = None


class Expiring(DryRun):
    """Which results become stale: a task's, those of items with a tag, both together, or all."""

    task: Id | None = None
    tag: Tag | None = None
    all: bool = False


class AskingAgain(DryRun):
    """Which pages that are gone are asked again: a task's, an item's, or all of the crawl."""

    task: Id | None = None
    item: Id | None = None
    all: bool = False


class SettingAside(Given):
    """Which pages are set aside: some by id, alias or URL, or all that a filter has."""

    pages: list[Id] = Field([], max_length=1000)
    url_part: Text | None = Field(None, description="all with this in their URL or id")
    tag: Tag | None = Field(None, description="all with this tag")


class Freeing(Given):
    """Which pages are freed that are set aside: some by id, alias or URL, or all that fit."""

    pages: list[Id] = Field([], max_length=1000)
    url_part: Text | None = Field(None, description="all with this in their URL or id")
    all: bool = False


class MoreAttempts(Given):
    """How many attempts a page has from now on."""

    page: Id
    attempts: int = Field(1, ge=1, le=1000)
    task: Id | None = None


class Dripfeed(Given):
    """How many pages of the stash are kept in work."""

    pages: int | None = Field(ge=1, le=100_000, description="null: none is freed any more")


Pattern = Annotated[str, Field(max_length=4000)]


class RuleChange(Given):
    """How a change of rules is made."""

    only_after: int | None = Field(
        None, ge=0, lt=INT32, description="the number of the ruleset that must still be in force"
    )
    note: Text | None = Field(None, description="why, for those who look")
    apply: bool = Field(default=False, description="and apply the rules to what waits already")


class NewRule(RuleChange):
    """A rule, or one for each pattern of a list: what holds for pages whose URL it matches."""

    match: Pattern | Annotated[list[Pattern], Field(min_length=1, max_length=1000)] = Field(
        description="of RE2; it matches anywhere"
    )
    accept: bool | None = Field(None, description="links to them are taken in, or refused")
    skip: bool | None = Field(None, description="they are set aside when it is their turn")
    user_agent: str | None = Field(None, max_length=1000)
    hook: str | None = Field(None, max_length=1000, description="a name of ITEMGRAPH_HOOKS")
    at: int | None = Field(None, ge=1, le=1000, description="its place; left out: the last")


class MovedRule(RuleChange):
    """Where a rule goes."""

    to: int = Field(ge=1, le=1000)


class Rules(RuleChange):
    """All rules of a crawl, in their order; of those that match a URL the last one counts."""

    accept: bool = Field(default=True, description="of links that no rule matches")
    rules: list[Json] = Field(max_length=1000, description="an empty list removes all of them")


class DepthLimit(DryRun):
    """How many links deep pages may be."""

    limit: int | None = Field(ge=0, le=1_000_000, description="null: as deep as they are")


class NewNice(Given):
    """How early an item's work has its turn."""

    nice: int | None = Field(ge=-INT32, lt=INT32, description="lower goes first; null: the task's")


class Block(Given):
    """How long a slot is blocked: until a moment, or for a period."""

    until: GivenMoment | None = None
    for_: Period | None = Field(None, alias="for")


class Delay(Given):
    """The least seconds between two starts."""

    seconds: float | None = Field(description="null: as the settings and robots.txt say")


class Limit(Given):
    """What a limit allows: one of them, or both; null takes it back, as the code says."""

    rate: str | None = Field(None, examples=["10/s", "30/min"])
    concurrency: int | None = Field(None, ge=1, lt=INT32)


_Given = Annotated[str, Field(max_length=8192)] | int | float | bool
_Names = dict[Annotated[str, Field(min_length=1, max_length=200)], _Given]
_Nice = Annotated[int, Field(ge=-INT32, lt=INT32)]
_AtOnce = Annotated[int, Field(ge=0, le=10_000)]


class Terms(Given):
    """What a crawl of the queue has besides its spider and arguments."""

    settings: _Names = Field({}, description="of its processes, as -s NAME=VALUE has them")
    nice: _Nice = Field(0, description="the less, the earlier its turn")
    concurrency: _AtOnce = Field(1, description="processes at once; 0: none")
    tag: Text | None = Field(None, description="for runners with this tag alone")
    note: Text | None = Field(None, description="what people should know of it")
    time_limit: Period | None = Field(None, description="how long a process may run")
    resource: Text | None = Field(
        None, description="crawls with the same one run one at a time, in one process"
    )
    keeps_fresh: bool = Field(default=False, description="it starts when a result falls due")


_Times = Annotated[str, Field(max_length=1000)] | Annotated[list[str], Field(max_length=100)]


class GivenRule(Given):
    """When something is due: one of `every`, `at` and `cron`."""

    every: Period | None = Field(None, description="in real time, from now on")
    at: _Times | None = Field(None, description="times of the day", examples=["03:00,15:30"])
    cron: Text | None = Field(None, description="five fields", examples=["30 2 * * 1-5"])
    time_zone: Text | None = Field(None, description="of at and cron", examples=["Europe/Berlin"])


class ScheduleTerms(GivenRule):
    """A schedule's rule, and what it does when it is late."""

    catch_up: Literal["one", "none", "all"] = Field(
        "one", description="of the due times that passed while no runner lived"
    )
    overlap: Literal["skip", "queue"] = Field(
        "skip", description="of due times while the crawl is active still"
    )
    grace: Period = Field("10m", description='with "none": how late a start may be')
    jitter: Period | None = Field(None, description="each start is later by up to that")
    time_limit: Period | None = Field(None, description="how long a process may run")


class NewSchedule(ScheduleTerms):
    """A schedule of a crawl of the queue."""

    crawl: Text


class ChangedSchedule(ScheduleTerms):
    """What is changed of a schedule: what is sent; null takes jitter and time_limit away."""


class NewCrawl(Terms, GivenRule):
    """A crawl that is put into the queue; with a rule it is started by that schedule alone."""

    spider: Text
    name: Text | None = Field(None, description="left out: made of the spider and its arguments")
    project: Text | None = Field(None, description="left out: the server's own")
    arguments: _Names = Field({}, description="of the spider, as -a NAME=VALUE has them")
    accept: list[Pattern] | None = Field(
        None, max_length=1000, description="take in links alone that one of these patterns matches"
    )
    paused: bool = Field(default=False, description="it waits until it is resumed")


class ChangedTerms(Terms):
    """What is changed of a crawl: what is sent, and null takes it away.

    Settings are those of processes that start from now on, beside those that it has.
    """


class Reasoned(Given):
    """Why, for those who look."""

    reason: Text | None = None


class Reviving(Given):
    """How a crawl goes on that was over."""

    keep_place: bool = Field(default=False, description="in the queue, and not the last one")


class PlaceLock(Given):
    """Which place is kept for a crawl, and for how long."""

    runner: Text
    place: int | None = Field(None, ge=1, lt=2**15, description="its number; left out: a free one")
    until_finished: bool = False


class ChangedRunner(Given):
    """Which crawls a runner takes, until it starts again; what is left out stays."""

    tags: list[Tag] | None = None
    only_tagged: bool | None = None
    preempts: bool | None = None


class Reclaiming(Given):
    """Why something is taken away."""

    reason: Text


class Operations(Given):
    """Operations, applied in one transaction: all or none."""

    operations: list[Json] = Field(
        max_length=10_000,
        examples=[[{"op": "createItem", "id": "URL:x", "tags": ["page"], "data": {}}]],
    )
