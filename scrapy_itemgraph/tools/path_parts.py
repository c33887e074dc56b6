"""Names as parts of a path: what somebody chose never leaves the folder that it stands in."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote, unquote

# Separators, what cannot be printed, and %2F and the like, which a `file:` URI decodes.
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f]|%(?=[0-9A-Fa-f]{2})|^\.+|^$")
_LONGEST_FOLDER = 100  # letters of a folder's name
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def path_part(text: str) -> str:
    """Return a text as one part of a path or a URI: itself, if it is one.

    Otherwise a dash replaces each unsafe character, and a digest of the text is added, so that
    two texts stay two names.
    """
    safe = _UNSAFE.sub("-", text)
    if safe == text:
        return text
    return f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def stays_inside(text: str, *, begins: bool) -> bool:
    """Tell whether a text, put into a path or a URI, stays in the folder that it stands in.

    It may name folders below. One that `begins` the path has no folder before it: then it is one
    part alone, and no URI.
    """
    if begins:
        return path_part(text) == text and not _SCHEME.match(text)
    for one in (text, unquote(text)):
        parts = re.split(r"[/\\]", one)
        if ".." in parts or "\0" in one or (len(parts) > 1 and not parts[0]):
            return False
    return True


def log_folder(crawl: str) -> str:
    """Return the name of the folder of a crawl's logs: its name, as a file system takes it."""
    name = quote(crawl, safe=" !#$&'()+,;=@[]")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) <= _LONGEST_FOLDER:
        return name
    digest = hashlib.sha256(crawl.encode()).hexdigest()[:8]
    return f"{name[:_LONGEST_FOLDER]}-{digest}"
