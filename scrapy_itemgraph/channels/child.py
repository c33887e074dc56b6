"""Sends notices by one channel: run by its path, so that nothing of the package is loaded.

It reads what to do as JSON from standard input, and writes an answer for each notice to standard
output as it comes, each a line: {"arrival": "sent"|"failed"|"refused", "said": TEXT}.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import importlib
import inspect
import json
import os
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    Said = tuple[str, str]  # the arrival, and what was said

SECONDS = {"webhook": 10, "apprise": 20, "function": 50}  # that one notice may take
_GONE, _OK = 410, range(200, 300)
_LONGEST = 4000  # characters of a traceback, its end
_PREFIX = "whsec_"
_NO_ANSWER = "no answer within {} seconds"


class NoAnswerError(Exception):
    """The receiver could not be reached, or did not answer in time."""


def main() -> None:
    """Send all, and answer for each; what gets no answer is not asked again for the others."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a function prints is none of our answers
    task = json.load(sys.stdin)
    send = {"webhook": _webhook, "apprise": _apprise, "function": _function}[task["means"]]
    signal.signal(signal.SIGALRM, _too_late)
    away = ""
    for document in task["notices"]:
        try:
            arrival, said = ("failed", away) if away else _in_time(send, task, document)
        except NoAnswerError as error:
            arrival, said = "failed", str(error)
            away = f"not tried, for the one before it failed: {said}"
        answers.write(json.dumps({"arrival": arrival, "said": said}) + "\n")
        answers.flush()


def _too_late(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError


def _in_time(
    send: Callable[[dict[str, Any], dict[str, Any]], Said],
    task: dict[str, Any],
    document: dict[str, Any],
) -> Said:
    seconds = SECONDS[task["means"]]
    signal.alarm(seconds)
    try:
        return send(task, document)
    except TimeoutError:
        raise NoAnswerError(_NO_ANSWER.format(seconds)) from None
    finally:
        signal.alarm(0)


# Webhooks


def _webhook(task: dict[str, Any], document: dict[str, Any]) -> Said:
    import urllib.error  # noqa: PLC0415 - this channel's alone
    import urllib.request  # noqa: PLC0415

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_given: Any, **_named: Any) -> None:
            return None

    body = json.dumps(document, ensure_ascii=False).encode()
    url, headers = _without_login(task["target"])
    headers |= {"Content-Type": "application/json", "User-Agent": "scrapy-itemgraph"}
    headers |= signed(document["id"], body, task["secret"], int(time.time()))
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - HTTP alone
    try:
        with urllib.request.build_opener(NoRedirects).open(request) as response:
            return _judged(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return _judged(error.code)
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise error.reason from None
        raise NoAnswerError(f"it cannot be reached: {_why(error.reason)}") from None
    except TimeoutError:
        raise
    except (OSError, ValueError) as error:
        raise NoAnswerError(f"it cannot be reached: {_why(error)}") from None
    except Exception as error:  # noqa: BLE001 - http.client's are no OSError; they may quote the URL
        raise NoAnswerError(f"it answers no HTTP: {type(error).__name__}") from None


def _why(error: Any) -> str:
    """Return an error without the URL, which it may quote."""
    return getattr(error, "strerror", None) or type(error).__name__


def _judged(status: int) -> Said:
    from http import HTTPStatus  # noqa: PLC0415 - this channel's alone

    try:
        said = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        said = str(status)
    if status in _OK:
        return "sent", said
    if status == _GONE:
        return "refused", f"{said}: it takes no more; take it out of ITEMGRAPH_NOTIFY_URLS"
    if 300 <= status < 400:  # noqa: PLR2004 - redirects
        said += ": redirects are not followed; write where it leads"
    return "failed", said


def _without_login(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without user and password, and those as headers."""
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415 - this channel's alone

    parts = urlsplit(url)
    login, has_login, host = parts.netloc.rpartition("@")
    if not has_login:
        return url, {}
    encoded = base64.b64encode(unquote(login).encode()).decode()
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {encoded}"}


def signed(key: str, body: bytes, secret: str | None, moment: int) -> dict[str, str]:
    """Return the headers of Standard Webhooks; without a secret there is no signature."""
    headers = {"webhook-id": key, "webhook-timestamp": str(moment)}
    if secret is not None:
        given = f"{key}.{moment}.".encode() + body
        digest = hmac.digest(_key(secret), given, hashlib.sha256)
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(_PREFIX))


# Others


def _apprise(task: dict[str, Any], document: dict[str, Any]) -> Said:
    import logging  # noqa: PLC0415 - this channel's alone

    import apprise  # noqa: PLC0415 - an extra

    logging.disable()  # its lines quote tokens
    sender = apprise.Apprise()
    if not sender.add(task["target"]):
        return "failed", "apprise does not know such a URL, or misses a part of it"
    kind = apprise.NotifyType.INFO if document["what"] == "finished" else apprise.NotifyType.WARNING
    title = f"{document['project']}: {document['what']}"
    body = "\n".join(filter(None, (document["text"], document["link"])))
    if sender.notify(title=title, body=body, notify_type=kind):
        return "sent", "sent"
    return "failed", "apprise could not send it"


def _function(task: dict[str, Any], document: dict[str, Any]) -> Said:
    if task["directory"] not in sys.path:
        sys.path.insert(0, task["directory"])
    module, _, name = task["target"].rpartition(".")
    try:
        answer = getattr(importlib.import_module(module), name)(document)
        if inspect.isawaitable(answer):
            asyncio.run(_awaited(answer))
    except TimeoutError:
        raise NoAnswerError(traceback.format_exc()[-_LONGEST:]) from None
    except (Exception, SystemExit):  # noqa: BLE001 - whatever a project's code raises
        return "failed", traceback.format_exc()[-_LONGEST:]
    return "sent", "it returned"


async def _awaited(answer: Any) -> Any:
    return await answer


if __name__ == "__main__":
    main()
