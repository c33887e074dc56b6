"""How long a command waits for the database, and what it says meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from support.proxies import proxy

from scrapy_itemgraph.connections.patience import Patience
from scrapy_itemgraph.exceptions import DatabaseUnavailableError
from scrapy_itemgraph.postgres import engine as engines

LOCK = "LOCK TABLE items IN ACCESS EXCLUSIVE MODE"
COUNT = "SELECT count(*) FROM items"
FOR_EVER = 600.0


class Command:
    """A command's patience with a database, and what it has said."""

    def __init__(self, url, *, note_after=0.3, longest=FOR_EVER):
        self.said = []
        self.then = lambda: None  # when it says something
        self.patience = Patience(self.say)
        self.patience._note_after, self.patience.longest = note_after, longest
        self.engine = engines.sync_engine(url)

    def say(self, line):
        """Take what people are told."""
        self.said.append(line)
        self.then()

    def ask(self, statement, *, first=lambda: None):
        """Ask for one number, in a transaction that is open when `first` is called."""
        try:
            with self.patience.over(self.engine), self.engine.begin() as connection:
                first()
                return connection.scalar(sa.text(statement))
        finally:
            self.engine.dispose()


@contextmanager
def locked(engine):
    """Hold the lock of a table; yield the connection that does."""
    with engine.connect() as holder:
        holder.exec_driver_sql(LOCK)
        yield holder


def test_a_lock_is_said_once_and_then_given_up(shared_engine):
    """Which lock it is and who holds it, and that Ctrl-C ends the wait; the error says it too."""
    command = Command(shared_engine.url, longest=1.5)

    with locked(shared_engine) as holder:
        process = holder.scalar(sa.text("SELECT pg_backend_pid()"))
        with pytest.raises(DatabaseUnavailableError) as given_up:
            command.ask(COUNT)

    whose = f"a lock on items that the server's process {process} holds"
    (said,) = command.said
    assert whose in said
    assert "This command waits up to" in said
    assert "Ctrl-C ends it" in said
    assert whose in str(given_up.value)


def test_it_goes_on_when_the_lock_is_free(shared_engine):
    """What was asked for is answered, and no error is made of the wait."""
    command = Command(shared_engine.url)

    with locked(shared_engine) as holder:
        command.then = holder.rollback
        assert command.ask(COUNT) == 0

    assert len(command.said) == 1


def test_each_wait_is_said_anew(shared_engine):
    """Patience begins again with each thing that is asked."""
    command = Command(shared_engine.url)

    with command.patience.over(command.engine), command.engine.connect() as connection:
        for _ in range(2):
            with locked(shared_engine) as holder:
                command.then = holder.rollback
                connection.scalar(sa.text(COUNT))
            connection.rollback()
    command.engine.dispose()

    assert len(command.said) == 2


def test_a_server_at_work_is_waited_for_as_long_as_it_takes(shared_engine):
    """It says nothing, however much longer than the patience that is."""
    command = Command(shared_engine.url, note_after=0.2, longest=0.5)

    assert command.ask("SELECT 7 FROM pg_sleep(2)") == 7

    assert command.said == []


def test_a_server_that_is_silent_is_given_up(shared_engine):
    """Nobody knows what it does: it is said that it has not answered."""
    with proxy(shared_engine) as (network, url):
        command = Command(url, longest=1.5)

        with pytest.raises(DatabaseUnavailableError, match="has not answered"):
            command.ask(COUNT, first=network.freeze)

    assert "has not answered" in command.said[0]


def test_a_server_that_lets_nobody_in_is_given_up(shared_engine):
    """Before there is a connection nothing can be cut off but the wait itself."""
    with proxy(shared_engine) as (network, url):
        network.freeze()
        command = Command(url, longest=1.5)

        with pytest.raises(DatabaseUnavailableError, match="has not answered"):
            command.ask(COUNT)


def test_an_interrupt_ends_a_wait_at_once(shared_engine):
    """It is Ctrl-C and no error of the database; afterwards the signal has its handler back."""
    before = signal.getsignal(signal.SIGINT)
    command = Command(shared_engine.url)
    command.then = lambda: os.kill(os.getpid(), signal.SIGINT)

    with locked(shared_engine), pytest.raises(KeyboardInterrupt):
        command.ask(COUNT)

    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_of_a_silent_server_does_not_wait_for_it(shared_engine):
    """The statement is cut off behind the server's back: asking the server would be a wait."""
    with proxy(shared_engine) as (network, url):
        command = Command(url)
        command.then = lambda: os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            command.ask(COUNT, first=network.freeze)


def test_without_a_wait_an_interrupt_is_what_it_always_is(shared_engine):
    """Between two statements there is nothing to end."""
    command = Command(shared_engine.url)

    with pytest.raises(KeyboardInterrupt):
        command.ask(COUNT, first=lambda: signal.raise_signal(signal.SIGINT))


def test_other_errors_stay_what_they_are(shared_engine):
    """Patience makes none of a statement that is wrong."""
    command = Command(shared_engine.url)

    with pytest.raises(DBAPIError, match="no_such_table"):
        command.ask("SELECT * FROM no_such_table")


def test_beside_the_main_thread_no_signal_is_touched(shared_engine):
    """A thread of a server may wait as well; Ctrl-C is not its business."""
    command, found = Command(shared_engine.url, longest=1.0), []

    def ask():
        try:
            command.ask(COUNT)
        except DatabaseUnavailableError as error:
            found.append((error, signal.getsignal(signal.SIGINT)))

    with locked(shared_engine):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()

    ((error, handler),) = found
    assert "a lock on items" in str(error)
    assert handler is signal.getsignal(signal.SIGINT)
