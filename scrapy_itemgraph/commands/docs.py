"""The documentation, which comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.commands.command import Argument, command
from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from scrapy_itemgraph.commands.call import Call

_OF_CHECKOUT = ("benchmarks.md", "contributing.md")  # which the wheel does not have
_FOLDERS = (".", "howto", "reference", "explanation")
_COLUMNS: printing.Columns = {"PAGE": "page", "TITLE": "title"}


class _Page(NamedTuple):
    page: str
    title: str
    file: str


@command(Argument("page", nargs="?", help="its name in the list, such as howto/data, or data"))
def docs(call: Call) -> None:
    """List the pages of the documentation, or write one of them.

    They come with the package, in Markdown: `scrapy itemgraph docs howto/data | less`.
    """
    pages = _pages()
    if call.given.page is None:
        call.write([one._asdict() for one in pages], printing.table(pages, _COLUMNS))
        return
    found = _meant(pages, call.given.page)
    text = Path(found.file).read_text(encoding="utf-8")
    call.write({**found._asdict(), "text": text}, text.splitlines())


def _pages() -> list[_Page]:
    directory = _directory()
    files = [path for folder in _FOLDERS for path in sorted((directory / folder).glob("*.md"))]
    files.sort(key=lambda path: path.name != "index.md")  # it says what the others are for
    return [_page(directory, path) for path in files if path.name not in _OF_CHECKOUT]


def _page(directory: Path, path: Path) -> _Page:
    name = path.relative_to(directory).with_suffix("").as_posix()
    with path.open(encoding="utf-8") as lines:
        return _Page(name, next(lines, "").lstrip("# ").rstrip(), str(path))


def _meant(pages: list[_Page], given: str) -> _Page:
    """Return the page of a name, of its last part, or as a link has it: `docs/howto/data.md`.

    Raises:
        NotFoundError: there is none, and it names one that is written alike; or several.

    """
    name = given.removeprefix("docs/").partition("#")[0].removesuffix(".md").lower()
    found = [one for one in pages if one.page == name]
    found = found or [one for one in pages if one.page.endswith(f"/{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFoundError(f"say which page: {' or '.join(one.page for one in found)}")
    near = closest(name, [one.page for one in pages])
    raise NotFoundError(f"there is no page {given!r}{near}; scrapy itemgraph docs lists them")


def _directory() -> Path:
    """Find the pages: in the package as installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for directory in (package / "docs", package.parent / "docs"):
        if (directory / "index.md").exists():
            return directory
    raise NotFoundError(f"the documentation is missing from {package}; install the package anew")
