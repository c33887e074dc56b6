"""The settings, read once, and what importing the package brings in."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from scrapy.settings import Settings as ScrapySettings
from scrapy.settings import default_settings

from scrapy_itemgraph import RateLimit
from scrapy_itemgraph.exceptions import ConfigurationError, OperationError
from scrapy_itemgraph.settings import Settings, project_directory, queued, read_project

# `Settings.read` lets InvalidIdError through, which is no ValueError.


def read(**given):
    """Read settings given without their prefix."""
    return Settings.read({f"ITEMGRAPH_{name}": value for name, value in given.items()}.get)


def test_defaults_are_those_of_the_contract():
    """Without any setting, all are as the contract says."""
    settings = read()

    assert settings == Settings()
    assert settings.run.enabled
    assert settings.database.database_url is None
    assert settings.database.data_dir == Path(".scrapy/itemgraph")
    assert settings.run.crawl is None  # each spider and its arguments, by themselves
    assert settings.run.idle == "close"
    assert settings.database.lease == timedelta(seconds=60)
    assert (settings.worklist.claim_batch, settings.worklist.commit_batch) == (100, 100)
    assert settings.worklist.commit_interval == 0.2
    assert settings.results.default_ttl is None
    assert settings.limits.max_retry_after == timedelta(hours=1)
    assert (settings.limits.rate_limit, settings.limits.rate_groups) == (None, {})
    assert settings.limits.learn_delays
    assert settings.database.auto_migrate is None
    assert settings.records.keep_logs == 100


def test_text_from_a_command_line_is_read_as_what_it_means():
    """`-s` gives text: numbers, booleans and dicts are read from it."""
    settings = read(
        ENABLED="0",
        LEASE="90",
        CLAIM_BATCH="5",
        DEFAULT_TTL="1d12h",
        COMMIT_INTERVAL="0.1",
        TAG_RENAMES='{"old": "new"}',
        ITEMS="{'dict': {'id': 'SKU:{sku}'}}",
        IDLE="wait",
        RATE_LIMIT="10/s",
        RATE_GROUPS='{"shop:*": "1/s"}',
        LEARN_DELAYS="false",
        KEEP_LOGS="0",
    )

    assert not settings.run.enabled
    assert settings.database.lease == timedelta(seconds=90)
    assert settings.worklist.claim_batch == 5
    assert settings.results.default_ttl == timedelta(days=1, hours=12)
    assert settings.worklist.commit_interval == 0.1
    assert settings.results.tag_renames == {"old": "new"}
    assert settings.scraped_items.items == {"dict": {"id": "SKU:{sku}"}}
    assert settings.run.idle == "wait"
    assert settings.limits.rate_limit == RateLimit("10/s")
    assert settings.limits.rate_groups == {"shop:*": RateLimit("1/s")}
    assert not settings.limits.learn_delays
    assert settings.records.keep_logs == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ENABLED", "maybe"),
        ("ENABLED", []),
        ("DATABASE_URL", ""),
        ("CRAWL", 5),
        ("CRAWL", "a\0b"),
        ("IDLE", "stay"),
        ("LEASE", "soon"),
        ("LEASE", 0),
        ("LEASE", -1),
        ("LEASE", True),
        ("CLAIM_BATCH", 0),
        ("CLAIM_BATCH", "many"),
        ("COMMIT_INTERVAL", float("nan")),
        ("DEFAULT_TTL", "soon"),
        ("DEFAULT_TTL", False),
        ("ITEMS", ["a"]),
        ("ITEMS", "{"),
        pytest.param("TAG_RENAMES", {"old": ""}),
        pytest.param("TAG_RENAMES", {"old": 5}),
        ("AUTO_MIGRATE", "perhaps"),
        ("RATE_LIMIT", "fast"),
        ("RATE_LIMIT", 10),
        ("RATE_LIMIT", "0/s"),
        ("RATE_GROUPS", "1/s"),
        ("RATE_GROUPS", ["shop:*"]),
        ("RATE_GROUPS", {5: "1/s"}),
        ("RATE_GROUPS", {"": "1/s"}),
        ("RATE_GROUPS", {"shop\0": "1/s"}),
        ("LEARN_DELAYS", "perhaps"),
        ("KEEP_LOGS", -1),
        ("KEEP_LOGS", "all"),
    ],
)
def test_a_setting_that_cannot_be_read_is_named(name, value):
    """A setting with a value that means nothing is an error that names the setting."""
    with pytest.raises(ConfigurationError, match=f"^ITEMGRAPH_{name}: ."):
        read(**{name: value})


def test_settings_are_made_of_values_by_their_names():
    """Each goes to its section; the others have their defaults, and a misspelt name is an error."""
    made = Settings.of(lease=timedelta(seconds=5), keep_logs=0)

    assert made == read(LEASE=5, KEEP_LOGS=0)
    with pytest.raises(TypeError, match="no settings leese"):
        made.but(leese=timedelta(seconds=5))


def test_limits_are_rates_or_values():
    """SRAP-25, SRAP-27: the settings of limits take text and RateLimits, for groups by name."""
    both = RateLimit("10/s", concurrency=2)

    settings = read(RATE_LIMIT=both, RATE_GROUPS={"shop:*": "1/10s", "*": both})

    assert settings.limits.rate_limit == both
    assert settings.limits.rate_groups == {"shop:*": RateLimit("1/10s"), "*": both}


@pytest.mark.parametrize("rate", ["fast", "0/s", 5, None, True])
def test_a_group_with_a_bad_rate_is_named(rate):
    """SRAP-27: a rate of a group that cannot be kept is an error that names the group."""
    with pytest.raises(ConfigurationError) as raised:
        read(RATE_GROUPS={"*": "1/s", "shop:*": rate})

    assert f"ITEMGRAPH_RATE_GROUPS: the group 'shop:*' is {rate!r}; write" in str(raised.value)


def test_importing_the_package_imports_neither_a_reactor_nor_sqlalchemy():
    """`import scrapy_itemgraph` leaves reactor, Scrapy and SQLAlchemy to whoever needs them."""
    script = (
        "import sys, scrapy_itemgraph\n"
        "from scrapy_itemgraph import CreateItem, task\n"
        "heavy = {'twisted', 'twisted.internet.reactor', 'sqlalchemy', 'psycopg', 'scrapy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"


def test_a_worker_loads_neither_the_orm_nor_migrations():
    """What SQLAlchemy and Alembic have for others takes no memory of a crawl, and no time."""
    script = (
        "import sys, scrapy_itemgraph.addon, scrapy_itemgraph.scheduler\n"
        "heavy = {'sqlalchemy', 'sqlalchemy.orm', 'sqlalchemy.ext.asyncio', 'alembic'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "['sqlalchemy']"


def test_the_data_directory_stands_beside_the_scrapy_cfg_above(tmp_path, monkeypatch):
    """Commands in any directory of a project mean the same graph; without a project it is here."""
    inside = tmp_path / "shop" / "spiders"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    assert read_project(ScrapySettings()).database.data_dir == inside / ".scrapy/itemgraph"

    (tmp_path / "scrapy.cfg").touch()
    assert project_directory() == tmp_path
    assert read_project(ScrapySettings()).database.data_dir == tmp_path / ".scrapy/itemgraph"


def test_values_of_scrapys_settings_are_known_where_they_have_a_type():
    """Whatever Scrapy has as a number, a switch or a dict is checked; its defaults are all well."""
    known = {
        name: getattr(default_settings, name)
        for name in dir(default_settings)
        if name.isupper() and not name.endswith("_BASE")
    }
    typed = {name: one for name, one in known.items() if isinstance(one, int | float | dict)}

    assert typed.keys() <= queued.NAMES
    queued.check(typed)
    queued.check({name: str(one) for name, one in typed.items() if not isinstance(one, dict)})


@pytest.mark.parametrize(
    ("name", "wrong", "well"),
    [
        ("LOG_LEVEL", ["NOTALEVEL", "info", 20], ["DEBUG", "WARN"]),
        ("DOWNLOAD_DELAY", ["nan", "inf", -1, 86_401, "soon", None], [0, "0.5", 86_400]),
        ("AUTOTHROTTLE_TARGET_CONCURRENCY", [0, "nan"], [0.5]),
        ("DOWNLOAD_TIMEOUT", ["-inf", "1e999", True], ["1e2", 3]),
        ("CONCURRENT_REQUESTS", [0, "1.5", 2.5], ["32"]),
        ("DEPTH_PRIORITY", ["x"], [-1]),
        ("RETRY_ENABLED", ["yes", "2.0", None], [True, "false", 1]),
        ("RETRY_HTTP_CODES", ["500,x", [500]], ["", "500, 503"]),
        ("FEEDS", ["{", "[]", []], ['{"a.jsonl": {}}', {"a.csv": {}}]),
        ("USER_AGENT", ["a\r\nX-Evil: 1"], ["bot (+https://a.example)"]),
        ("ITEMGRAPH_DEFAULT_TTL", ["soon", "-1"], ["never", "2d"]),
        ("ITEMGRAPH_KEEP_ITEMS", ["maybe"], [True, "30d"]),
        ("OF_THE_PROJECT", [], ["nan", "-1", None]),
    ],
)
def test_a_value_that_no_process_can_start_with_is_refused(name, wrong, well):
    """MNB-3: a queued crawl is refused when it is added, not hours later; @env: is unknown."""
    for value in wrong:
        with pytest.raises(OperationError, match=f"the setting {name}: "):
            queued.check({name: value})
    for value in (*well, "@env:ANY"):
        queued.check({name: value})
