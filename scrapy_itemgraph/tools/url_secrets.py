"""Secrets of a database's URL: the one place that takes them out of what people get to read."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

# Those of libpq's options that are secrets themselves, and no paths of files that hold them.
SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
HIDDEN = "***"

# To the last @, for a password may hold others that are not percent-encoded.
_LOGIN = re.compile(r"([a-z][a-z0-9+.-]*://[^\s:/?#@]*):.*@", re.IGNORECASE)
# In a URL's login, and no %(name)s of a feed's URI.
_PASSWORD = re.compile(r"://[^\s:/?#@]*:(?!%\(\w+\)s@)[^\s/?#@\"]+@")
_CREDENTIALS = re.compile(r"(?<=//)[^/@]*@")
_OPTION = re.compile(
    rf"\b({'|'.join(SECRETS)})(\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&'\"]+)", re.IGNORECASE
)


def shown(url: str) -> str:
    """Return a URL as it may be shown, whether it is well formed or not."""
    head, mark, query = _LOGIN.sub(rf"\1:{HIDDEN}@", url).partition("?")
    options = [_shown_option(option) for option in query.split("&")]
    return head + mark + "&".join(options)


def has_password(text: str) -> bool:
    """Tell whether there is a URL with a password in a text."""
    return _PASSWORD.search(text) is not None


def without_login(uri: str) -> str:
    """Return the URI of a feed, or the template of one, without its user and password."""
    return _CREDENTIALS.sub("", uri)


def hidden(text: str) -> str:
    """Return a message without the secrets of URLs and of libpq's `name=value` in it."""
    return _OPTION.sub(rf"\1\2{HIDDEN}", _LOGIN.sub(rf"\1:{HIDDEN}@", text))


def _shown_option(option: str) -> str:
    name, mark, _ = option.partition("=")
    return name + mark + HIDDEN if unquote_plus(name).strip().lower() in SECRETS else option
