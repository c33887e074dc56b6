"""Every error that scrapy-itemgraph raises on purpose.

Each message says what is wrong and what to do next; the facts are attributes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class ItemGraphError(Exception):
    """The base of all errors of this package."""


class ConfigurationError(ItemGraphError):
    """A setting, or a combination of settings, cannot work."""


class TaskDefinitionError(ItemGraphError):
    """A `@task` is declared in a way that cannot work."""


class DatabaseError(ItemGraphError):
    """The database cannot be used as it is."""


class DatabaseUnavailableError(DatabaseError):
    """The database server does not answer, or refuses us."""


class DatabaseGoneError(DatabaseUnavailableError):
    """The database server cannot be reached, or broke the connection; it may be back by itself."""


class DatabaseStartingError(DatabaseGoneError):
    """The database server says itself that it is starting or stopping, or that it is not ready."""


class MissingRightError(DatabaseError):
    """The role that we are in the database may not do that."""


class SchemaVersionError(DatabaseError):
    """The database's schema is older or newer than this code."""


class EmbeddedServerError(DatabaseError):
    """The embedded PostgreSQL cannot be started or used."""


class EmbeddedServerKilledError(EmbeddedServerError):
    """The embedded PostgreSQL was killed as it started; the next start may succeed."""


class BlobStoreError(ItemGraphError):
    """The store of blobs' contents cannot be read or written; it may be back by itself."""


class OperationError(ItemGraphError):
    """An operation cannot be carried out as it was yielded."""


class InvalidIdError(OperationError):
    """An id is empty, too long, or not storable text."""


class InvalidDataError(OperationError):
    """A value is not JSON, or not text that PostgreSQL can store."""


class ItemNotFoundError(OperationError):
    """No item has this id or alias."""


class NameTakenError(OperationError):
    """A name belongs to another item, or did not have to exist."""


class ForeignOutputError(ItemGraphError):
    """A callback yielded something that is no operation, item or Request."""


class SessionExpired(Exception):  # noqa: N818 - what callbacks raise reads like a fact
    """Raised by a callback that got a page which says "log in": the work is given back.

    The spider's `login()` runs once for all processes; then the work is done again.
    """


class TooManyOperationsError(OperationError):
    """One execution yielded more than ITEMGRAPH_MAX_OPERATIONS."""


class UnstorableError(ItemGraphError):
    """A request, or a value that it carries, has no stored form."""


class RefusedUrlError(ItemGraphError):
    """What stored data says is to be fetched is not fetched; its work ends as refused."""


class NotFoundError(ItemGraphError):
    """What a command or call named does not exist.

    `did_you_mean` are names or URLs of what there is instead.
    """

    def __init__(self, message: str, did_you_mean: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.did_you_mean = tuple(did_you_mean)
