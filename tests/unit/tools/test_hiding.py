"""What is secret in a database's URL is shown to nobody."""

from __future__ import annotations

import pytest

from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.postgres import engine, urls
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.tools import url_secrets

WORD = "s3same"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:s3same@h:5432/d?a=b", "postgresql://u:***@h:5432/d?a=b"),
        ("postgresql://:s3same@h/d", "postgresql://:***@h/d"),
        ("postgres://u:open s3same@h/d", "postgres://u:***@h/d"),
        ("postgresql://u:a@s3same@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:a/b?s3same&c@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@h/d?password=open s3same&a=b", "postgresql://u@h/d?password=***&a=b"),
        ("postgresql://h/d?a=b&PASSword=s3same", "postgresql://h/d?a=b&PASSword=***"),
        ("postgresql://h/d?p%61ssword=s3same", "postgresql://h/d?p%61ssword=***"),
        ("postgresql://h/d?sslpassword=s3same", "postgresql://h/d?sslpassword=***"),
        ("postgresql:///d?host=/run/pg&user=u", "postgresql:///d?host=/run/pg&user=u"),
        ("postgresql://db.example:5432/d", "postgresql://db.example:5432/d"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url, shown):
    """Passwords go, wherever and however they are written; everything else stays."""
    assert url_secrets.shown(url) == shown


@pytest.mark.parametrize(
    "text",
    [
        "cannot use postgresql://u:s3same@h/d here",
        'FATAL: database "password=s3same" does not exist',
        "host=h password = 's3 s3same' user=u",
        "postgresql://h/d?sslpassword=s3same&x=y",
    ],
)
def test_a_message_loses_the_secrets_in_it(text):
    """Whatever form a driver quotes them in."""
    assert WORD not in url_secrets.hidden(text)


@pytest.mark.parametrize(
    "query", ["?password=s3same", "?a=b&password=s3same", "?password=other&password=s3same"]
)
def test_a_password_given_as_an_option_is_a_password(query):
    """It takes the place where every library hides it, and is what the server gets to see."""
    url = urls.normalise_url(f"postgresql://u:old@h/d{query}")

    assert url.password == WORD
    assert "password" not in url.query
    assert WORD not in repr(url)
    assert WORD not in urls.location(url, is_embedded=False)
    assert WORD not in repr(engine.sync_engine(url))


@pytest.mark.parametrize(
    "url",
    [
        b"postgresql://u:s3same@h/d",
        "postgresql://u:s3same\0@h/d",
        "postgresql://u:s3same\ud800@h/d",
        urls.normalise_url("postgresql://u@h/d?sslpassword=s3same"),
    ],
)
def test_a_url_that_cannot_be_read_is_not_quoted(url):
    """The error says what is wrong with it, and nothing of what is in it."""
    with pytest.raises(ConfigurationError, match="ITEMGRAPH_DATABASE_URL") as caught:
        Settings.read({"ITEMGRAPH_DATABASE_URL": url}.get)

    assert WORD not in str(caught.value)


def test_an_at_sign_in_a_path_like_password_is_named():
    """A password that ends in what looks like host and database is not shown as such."""
    with pytest.raises(ConfigurationError, match="%40") as caught:
        urls.normalise_url("postgresql://u:a@b/s3same@h/d")

    assert WORD not in str(caught.value)


def test_settings_do_not_show_the_url():
    """Their `repr`, which tracebacks and debuggers print, leaves it out."""
    assert WORD not in repr(Settings.of(database_url="postgresql://u:s3same@h/d"))


@pytest.mark.parametrize(
    ("text", "has_password"),
    [
        ("ftp://u:s3same@h/x.csv", True),
        ("https://a.example/ redis://:s3same@h", True),
        ("{'ftp://u:s3%40same@h/%(name)s.csv': {'format': 'csv'}}", True),
        ("ftp://u@h/x.csv", False),
        ("ftp://u:@h/x.csv", False),
        ("ftp://u:%(password)s@h/x.csv", False),
        ("https://a.example:8080/@u?mail=u:x@b.example", False),
        ('{"http://a:80":"u@b.example"}', False),
        ("{'http://a:80': 'u@b.example'}", False),
        ("http://[::1]:80/@u", False),
    ],
)
def test_a_password_in_a_url_is_seen(text, has_password):
    """SS-3: in any URL of a text; a user alone, a port, or an attribute's name is none."""
    assert url_secrets.has_password(text) is has_password
