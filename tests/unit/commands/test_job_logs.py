"""A job's log that is followed while its runner writes and rotates it."""

from __future__ import annotations

import os
from types import SimpleNamespace

from scrapy_itemgraph.commands import jobs
from scrapy_itemgraph.runner.log_files import JobLog


def test_a_log_is_followed_over_its_rotations(tmp_path, monkeypatch):
    """SS-4: each line comes once: before a rotation, after it, and where the file begins anew."""
    monkeypatch.setattr(jobs, "_PAUSE", 0.0)
    job = SimpleNamespace(id=1, ended_at=None)
    graph = SimpleNamespace(jobs=SimpleNamespace(get=lambda _: job))
    log = JobLog(tmp_path, "books", 1)
    log.write(b"the first\n")
    lines = jobs._parts_of_file(graph, job, log.path, follow=True)
    seen = [next(lines)]
    log.write(b"before the rotation\n")
    log.rotate()
    log.write(b"after the rotation, and it is long\n")
    seen += [next(lines), next(lines)]
    os.truncate(log.path, 0)  # as earlier versions rotate
    log.write(b"anew\n")
    seen.append(next(lines))
    log.write(b"before the last\n")
    log.rotate()
    log.write(b"the last\n")
    log.close()
    job.ended_at = "now"
    seen += lines

    assert seen == [
        "the first\n",
        "before the rotation\n",
        "after the rotation, and it is long\n",
        "anew\n",
        "before the last\n",
        "the last\n",
    ]
