"""`graph.tokens`: what lets in over HTTP, for all crawls of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.exceptions import NotFoundError, OperationError
from scrapy_itemgraph.model import access_tokens
from scrapy_itemgraph.store.admin import access_tokens as stored_tokens
from scrapy_itemgraph.tools.wording import closest

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from scrapy_itemgraph.graph.crawl_transactions import CrawlTransactions
    from scrapy_itemgraph.model.access_tokens import Keys, Role, Token


class Tokens:
    """Tokens, and the sessions of browsers that log in with one."""

    def __init__(self, transactions: CrawlTransactions) -> None:
        self._transactions = transactions

    def keys(self) -> Keys:
        """Return the digests of tokens and sessions, and when the last token was made."""
        return self._transactions.call(stored_tokens.keys)

    def add(self, name: str, role: Role | str) -> str:
        """Make a token, and return its secret, which is not stored.

        Raises:
            OperationError: the name is taken, or no name, or there is no such role.

        """
        access_tokens.check_name(name)
        if role not in set(access_tokens.Role):
            raise OperationError(
                f"there is no role {role!r:.80}; the roles are {', '.join(access_tokens.Role)}"
            )
        secret = access_tokens.new_secret()

        def within(connection: Connection) -> None:
            digest = access_tokens.digest(secret)
            if not stored_tokens.add(connection, name, access_tokens.Role(role), digest):
                raise OperationError(
                    f"there is a token {name!r} already; remove it first, or take another name"
                )

        self._transactions.call(within)
        return secret

    def remove(self, name: str) -> None:
        """Remove a token: servers refuse it within two seconds.

        After the last token is removed they refuse everybody.

        Raises:
            NotFoundError: there is none of that name.

        """

        def within(connection: Connection) -> None:
            if not stored_tokens.remove(connection, name):
                known = [one.name for one in stored_tokens.every(connection)]
                listed = ", ".join(known) or "none yet"
                raise NotFoundError(
                    f"there is no token {name!r:.80}{closest(name, known)}; there are {listed}"
                )

        self._transactions.call(within)

    def add_session(self, token: str) -> str | None:
        """Make a session for a token, and return its secret; None: the token is not known."""
        secret = access_tokens.new_session()
        digests = access_tokens.digest(secret), access_tokens.digest(token)
        is_made = self._transactions.call(
            lambda connection: stored_tokens.add_session(connection, *digests)
        )
        return secret if is_made else None

    def remove_session(self, secret: str) -> None:
        """End a session, if there is one of this secret."""
        digest = access_tokens.digest(secret)
        self._transactions.call(lambda connection: stored_tokens.remove_session(connection, digest))

    def list(self) -> list[Token]:
        """Return the tokens by name; their secrets are not stored."""
        return self._transactions.call(stored_tokens.every)
