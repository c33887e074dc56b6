"""TLS: the files of a server's certificate, its key, and what signs certificates of clients."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.tools import logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Taken = TypeVar("Taken")

logger = logs.logger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: a certificate with its chain, its key, and the CA of clients; None: any client."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> Any:
        """Return what gRPC listens with; with a CA of clients each must show a certificate.

        Raises:
            ConfigurationError: a file cannot be used, in one line that says which, and why.

        """
        return grpc.dynamic_ssl_server_credentials(
            self.configuration(),
            partial(_Renewals(self).taken, self.configuration),
            require_client_authentication=self.client_ca is not None,
        )

    def changed_at(self) -> tuple[int, ...]:
        """Return when the files were changed last, in nanoseconds; 0: a file is not there."""
        paths = (self.certificate, self.key, self.client_ca)
        return tuple(_changed_at(path) for path in paths if path is not None)

    def configuration(self) -> Any:
        """Return the files as gRPC takes them; it raises as `credentials` does."""
        self.context()
        pair = self.key.read_bytes(), self.certificate.read_bytes()
        ca = None if self.client_ca is None else self.client_ca.read_bytes()
        return grpc.ssl_server_certificate_configuration([pair], ca)

    def listening_context(self) -> ssl.SSLContext:
        """Return what Python listens with, by the same rules; it raises as `credentials` does."""
        context, renewals = self.context(), _Renewals(self)

        def greeted(connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
            connection.context = renewals.taken(self.context) or connection.context

        context.sni_callback = greeted  # it is called for each connection that is made
        return context

    def context(self) -> ssl.SSLContext:
        """Return the files as Python takes them.

        Raises:
            ConfigurationError: as for `credentials`.

        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for option, path in (("--tls-cert", self.certificate), ("--tls-key", self.key)):
            _check_readable(option, path)
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError(
                f"--tls-cert {self.certificate} and --tls-key {self.key} are no certificate and "
                f"its key, in PEM: {_reason(error)}"
            ) from None
        if self.client_ca is not None:
            _check_readable("--tls-client-ca", self.client_ca)
            try:
                context.load_verify_locations(self.client_ca)
            except ssl.SSLError as error:
                raise ConfigurationError(
                    f"--tls-client-ca {self.client_ca} has no certificate in PEM: {_reason(error)}"
                ) from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class _Renewals:
    """Takes certificates that are renewed, when a connection is made."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen = files.changed_at()

    def taken(self, read: Callable[[], Taken]) -> Taken | None:
        """Return what is read of the files if they were changed; None: what is known holds.

        gRPC calls it on threads of its own, and it raises nothing.
        """
        changed_at = self._files.changed_at()
        if changed_at == self._seen:
            return None
        self._seen = changed_at
        try:
            return read()
        except (ConfigurationError, OSError) as error:
            logger.warning("The certificate of before is served on: %s", error)
            return None


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _check_readable(option: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigurationError(f"{option} {path} cannot be read: {error.strerror}") from None


def _no_password() -> str:
    """Refuse a key that is encrypted, instead of asking the terminal."""
    raise ValueError("the key has a password")


def _reason(error: Exception) -> str:
    known = {
        "KEY_VALUES_MISMATCH": "the key is another certificate's",
        "NO_START_LINE": "a file has no PEM of this kind",
    }
    reason = getattr(error, "reason", None) or str(error)
    return known.get(reason, reason.replace("_", " ").lower())
