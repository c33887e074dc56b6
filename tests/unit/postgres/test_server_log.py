"""What ended a server that does not start, out of its log, and what to do then."""

from __future__ import annotations

import pytest

from scrapy_itemgraph.postgres import server_log

AT = "2026-11-26 02:14:39.091 UTC [22866] "
WRONG_SETTING = f"""\
{AT}LOG:  database system is shut down
{AT}LOG:  unrecognized configuration parameter "nonsense" in file "/x/postgresql.conf" line 892
{AT}LOG:  invalid value for parameter "work_mem": "lots"
{AT}FATAL:  configuration file "/x/postgresql.conf" contains errors
"""
SETTINGS_SAID = (
    'unrecognized configuration parameter "nonsense" in file "/x/postgresql.conf" line 892; '
    'invalid value for parameter "work_mem": "lots"; '
    'FATAL: configuration file "/x/postgresql.conf" contains errors'
)
FULL_DISK = f"""\
{AT}FATAL:  could not write lock file "postmaster.pid": No space left on device
{AT}LOG:  database system is shut down
"""
INCOMPATIBLE = f"""\
{AT}LOG:  starting PostgreSQL 17
{AT}FATAL:  database files are incompatible with server
{AT}DETAIL:  The data directory was initialized by version 15,
\twhich is not compatible with this version 17.
{AT}HINT:  Read on.
"""
VERSIONS_SAID = (
    "FATAL: database files are incompatible with server; DETAIL: The data directory was "
    "initialized by version 15, which is not compatible with this version 17.; HINT: Read on."
)
DAMAGED = f"""\
{AT}LOG:  invalid checkpoint record
{AT}PANIC:  could not locate a valid checkpoint record at 0/2145540
{AT}LOG:  startup process (PID 22866) was terminated by signal 6: Aborted
"""


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (WRONG_SETTING, SETTINGS_SAID),
        (INCOMPATIBLE, VERSIONS_SAID),
        (DAMAGED, "PANIC: could not locate a valid checkpoint record at 0/2145540"),
        (DAMAGED + FULL_DISK, "FATAL: " + FULL_DISK.partition(":  ")[2].partition("\n")[0]),
        (f"{AT}LOG:  starting PostgreSQL 17\n", ""),
        ("", ""),
    ],
)
def test_the_last_fatal_is_what_ended_a_server(log, said):
    """With its details, and where it only says that a file has errors, with these."""
    assert server_log.last_words(log) == said


TO_A_CLIENT = f"{AT}FATAL:  the database system is starting up\n"


@pytest.mark.parametrize(
    ("log", "is_killed"),
    [
        (f"{AT}LOG:  starting PostgreSQL 17\n{TO_A_CLIENT}", True),
        (
            f"{AT}LOG:  starting PostgreSQL 17\n{AT}FATAL:  the database system is shutting down\n",
            True,
        ),
        ("", True),
        (f"{AT}LOG:  starting PostgreSQL 17\n{DAMAGED}{TO_A_CLIENT}", False),
        ("postgres: error while loading shared libraries: libicu.so.74\n", False),
    ],
)
def test_a_server_that_was_killed_said_nothing_of_itself(log, is_killed):
    """What it says to a client that comes too early is no reason of its own."""
    assert server_log.was_killed(log, "pg_ctl: could not start server\n") is is_killed


@pytest.mark.parametrize(
    ("log", "what"),
    [
        (WRONG_SETTING, "Put these lines right, or remove them, then try again."),
        (FULL_DISK, "Free space on the disk of /x, then try again."),
        (DAMAGED, "bring /x back from a copy"),
        (INCOMPATIBLE, "Put right what it says, then try again."),
    ],
)
def test_what_to_do_follows_from_what_the_server_said(log, what):
    """A full disk, a wrong setting and damaged files have an advice of their own."""
    assert what in server_log.advice(server_log.last_words(log), "/x")
