"""Mutations: does the model notice when the package does something else? Run by hand.

Each changes one text of a copy of the package, runs the model's tests on it with a small dose, and
says whether they noticed. What survives shows what the histories do not reach, or the model does
not compare.

    python tests/model/mutations.py                      all of them; about a minute each
    python tests/model/mutations.py merge claim          those whose names have one of these words
    python tests/model/mutations.py --list
    python tests/model/mutations.py --examples 200 --seed 7 refiled

Exit code 1 if one survived, 2 if one cannot be made: its text is not in the package any more, or is
there twice.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from model.frontier_mutations import FRONTIER

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "scrapy_itemgraph"
TESTS = (
    "tests/model/test_seldom.py",
    "tests/model/test_model.py",
    "tests/model/test_batches.py",
)  # the quickest first
FRONTIER_TESTS = ("tests/model/test_frontier.py",)
HUNG = 1800.0  # seconds
PASSED, FAILED = 0, 1  # pytest's exit codes; others say that nothing was tested


@dataclass(frozen=True)
class Mutation:
    """A text of a file of the package, which is there once, and what takes its place."""

    name: str
    path: str
    old: str
    new: str

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that should notice."""
        is_of_frontier = (self.name, self.path, self.old, self.new) in FRONTIER
        return FRONTIER_TESTS if is_of_frontier else TESTS

    def applied(self, source: str) -> str:
        """Return the file's source with it.

        Raises:
            ValueError: the text is not there, or more than once.

        """
        count = source.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: {count} times in {self.path}: {self.old!r}")
        return source.replace(self.old, self.new)


MUTATIONS = (
    Mutation(
        "rules that skip set nothing aside",
        "changesets/apply.py",
        "if c.outcome is Outcome.SKIPPED",
        "if c.outcome is None",
    ),
    Mutation(
        "rules take back what a person skipped",
        "store/registry/rule_sweeps.py",
        "    return [one.item_id for one in wanted if ever_skipped.matches(one.url)]",
        "    return [one.item_id for one in wanted if ever_skipped]",
    ),
    Mutation(
        "rules are applied to claimed work",
        "store/registry/rule_sweeps.py",
        "n.crawl_id = :crawl AND n.token IS NULL AS is_meant",
        "n.crawl_id = :crawl AS is_meant",
    ),
    # Claims and their fences
    Mutation(
        "a commit ends a claim without its token",
        "changesets/apply.py",
        "AND w.task_id = ended.task_id AND w.token = ended.token\n    RETURNING w.token",
        "AND w.task_id = ended.task_id\n    RETURNING ended.token",
    ),
    Mutation(
        "a claim is given back without its token",
        "store/worklist/claims.py",
        "AND w.task_id = ended.task_id AND w.token = ended.token\n",
        "AND w.task_id = ended.task_id\n",
    ),
    Mutation(
        "a redirect is stored without the claim's token",
        "store/worklist/stored_redirects.py",
        "    WHERE w.token = moved.token\n    FOR NO KEY UPDATE OF w",
        "    WHERE w.token IS NOT NULL\n    FOR NO KEY UPDATE OF w",
    ),
    Mutation(
        "a clean release counts as a try",
        "store/worklist/claims.py",
        "w.tries + ended.tries",
        "w.tries + 1",
    ),
    Mutation(
        "a retry is not delayed",
        "store/worklist/claims.py",
        "not_before = ended.not_before,",
        "not_before = NULL,",
    ),
    Mutation(
        "a try that ended does not end a row of deaths",
        "store/worklist/claims.py",
        "CASE WHEN ended.tries > 0 THEN 0 ELSE w.alone_deaths END",
        "w.alone_deaths",
    ),
    Mutation(
        "work that workers died of is claimed beside others",
        "store/sql_conditions.py",
        'f"{IS_READY} AND NOT w.is_suspect"',
        "IS_READY",
    ),
    Mutation(
        "delayed work is claimed",
        "store/sql_conditions.py",
        "w.token IS NULL AND w.not_before IS NULL",
        "w.token IS NULL",
    ),
    Mutation(
        "work of a disabled task is claimed",
        "store/worklist/claims.py",
        "WHERE t.is_enabled AND t.is_registered",
        "WHERE t.is_registered",
    ),
    Mutation(
        "refusals count for max_failures",
        "store/sql_conditions.py",
        "OPEN_FAILURES.format(first=False, last=False, condition=IS_CALLED_FOR)",
        "OPEN_FAILURES.format(first=False, last=True, condition=IS_CALLED_FOR)",
    ),
    Mutation(
        "failures of items without the task's tag count for max_failures",
        "store/sql_conditions.py",
        "OPEN_FAILURES.format(first=False, last=False, condition=IS_CALLED_FOR)",
        "OPEN_FAILURES.format(first=False, last=False, condition=True)",
    ),
    Mutation(
        "a task that wants its item alone runs beside others that do not",
        "store/worklist/admission.py",
        "return others is None or not (others or row.task_id in self._exclusive)",
        "return others is None or not others",
    ),
    # What waits for others
    Mutation(
        "a redirect does not ask whether its item is still there",
        "store/worklist/stored_redirects.py",
        "gone = concerned - set(lock_items(connection, concerned))",
        "gone: set[int] = set()",
    ),
    Mutation(
        "undoing does not look again once it has its items",
        "graph/parts/failures.py",
        "still = undoable()",
        "still = found",
    ),
    Mutation(
        "handling waits for nobody who has its items",
        "graph/parts/failures.py",
        "locked = stored_items.lock_items(connection, sorted(items | {item for item, _ in led}))",
        "locked = sorted(items | {item for item, _ in led})",
    ),
    Mutation(
        "a sweep waits for nobody who has its items",
        "store/registry/item_sweeps.py",
        "locked = lock_items(connection, items)",
        "locked = items",
    ),
    # What is outstanding
    Mutation(
        "another version leaves results fresh",
        "store/sql_conditions.py",
        "({result}.task_version <> {task}.version\n                OR ",
        "(",
    ),
    Mutation(
        "a held result is good enough for what depends on it",
        "store/worklist/refresh.py",
        "                    OR dr.is_held OR dr.hold IS NOT NULL\n",
        "                    OR dr.hold IS NOT NULL\n",
    ),
    Mutation(
        "the task's priority goes before the item's",
        "store/worklist/refresh.py",
        "coalesce(i.nice, t.nice) AS nice",
        "coalesce(t.nice, i.nice) AS nice",
    ),
    Mutation(
        "work keeps its priority when that changes",
        "store/worklist/refresh.py",
        "work.is_stale, work.nice) != (queue, kind, stale, nice)",
        "work.is_stale) != (queue, kind, stale)",
    ),
    Mutation(
        "refiled work goes back to the website of its item",
        "store/worklist/refresh.py",
        "work = work._replace(queue_id=queue) if is_refiled else work",
        "work = work",
    ),
    Mutation(
        "work that no longer stands is left",
        "store/worklist/refresh.py",
        "    withdraw(connection, gone)\n    return missing",
        "    return missing",
    ),
    Mutation(
        "all results of an item expire with one",
        "store/worklist/expired_results.py",
        "WHERE r.item_id = due.id AND r.due_at <= :until",
        "WHERE r.item_id = due.id",
    ),
    Mutation(
        "a time to live that is over is fresh until somebody notices",
        "changesets/state.py",
        "self.due_at = None if moment is None or moment <= now else moment",
        "self.due_at = moment",
    ),
    # How executions end
    Mutation(
        "a result has the version in force, not the one claimed",
        "changesets/effects/result_operations.py",
        "    result.version = version\n",
        "    result.version = task.version\n",
    ),
    Mutation(
        "an expiry by somebody else is forgotten at the commit",
        "changesets/effects/result_operations.py",
        "is_expired = run.own_expired or invalidated_at not in {None, claim.invalidated_at}",
        "is_expired = run.own_expired",
    ),
    Mutation(
        "a failure holds what somebody expired meanwhile",
        "changesets/effects/result_operations.py",
        "return result is not None and result.invalidated_at not in {None, claim.invalidated_at}",
        "return False",
    ),
    # Merges
    Mutation(
        "a merge takes the tag values of the item that goes",
        "changesets/effects/item_operations.py",
        "        if tag not in into.tags:\n            into.set_tag(tag, value)",
        "        into.set_tag(tag, value)",
    ),
    Mutation(
        "a merge lets what was updated be deleted",
        "changesets/effects/item_operations.py",
        "    if gone.id in run.updated:\n        run.updated.add(into.id)\n",
        "",
    ),
    Mutation(
        "what one transaction commits has one moment",
        "changesets/state.py",
        "return self.now + turn * _TURN",
        "return self.now",
    ),
    Mutation(
        "a merge leaves the failures of a result that is replaced open",
        "changesets/effects/item_operations.py",
        "            effects.failures.append(Handled((into.id, task_id)))\n",
        "            pass\n",
    ),
    Mutation(
        "a merge does not take failures along",
        "changesets/effects/item_operations.py",
        "        effects.failures.append(Moved((gone.id, task_id), into.id))\n",
        "",
    ),
    Mutation(
        "a merge leaves attempts out",
        "changesets/flush.py",
        "if moved:\n            connection.execute(MOVE_ATTEMPTS",
        "if False:\n            connection.execute(MOVE_ATTEMPTS",
    ),
    # Binary data
    Mutation(
        "a merge leaves binary data out",
        "changesets/load.py",
        "{AttachBlob, DetachBlob, MergeItem, RenameItem}",
        "{AttachBlob, DetachBlob}",
    ),
    Mutation(
        "a merge keeps the blob that was attached earlier",
        "changesets/state.py",
        "if own is None or blob.attached_at > own.attached_at:",
        "if own is None or blob.attached_at < own.attached_at:",
    ),
    Mutation(
        "blobs of one transaction are attached at one moment",
        "changesets/effects/item_operations.py",
        "moment = state.now + timedelta(microseconds=state.attached)",
        "moment = state.now + timedelta()",
    ),
    Mutation(
        "items do not know that they have blobs",
        "store/blobs.py",
        '    connection.execute(MARK_ITEMS, {"items": sorted({row[0] for row in rows})})\n',
        "",
    ),
    Mutation(
        "contents in a folder are collected though they are named",
        "store/blobs.py",
        "AND NOT EXISTS (SELECT FROM blobs b WHERE b.content_id = c.id)\n    RETURNING c.id",
        "\n    RETURNING c.id",
    ),
    Mutation(
        "contents are named without being locked",
        "store/blobs.py",
        "    WHERE c.state = 'stored'\n    FOR KEY SHARE OF c\n",
        "    WHERE c.state = 'stored'\n",
    ),
    # People, and new code
    Mutation(
        "undoing holds what was stored or expired since",
        "store/failures.py",
        "greatest(r.completed_at, r.invalidated_at) > f.handled_at",
        "r.completed_at > clock_timestamp()",
    ),
    Mutation(
        "undoing is hindered by a clean release",
        "store/failures.py",
        "                AND a.outcome <> 'released')",
        "                )",
    ),
    Mutation(
        "a recomputed time to live replaces one that was set",
        "store/admin/crawl_changes.py",
        "AND NOT r.ttl_overridden AND r.expires_at IS DISTINCT FROM",
        "AND r.expires_at IS DISTINCT FROM",
    ),
    Mutation(
        "a version bump passes over failures of items without the tag",
        "store/registry/item_sweeps.py",
        "    if row.unhold:\n        held_step",
        "    if False:\n        held_step",
    ),
    # Runs that their spider closes
    Mutation(
        "pages that are left are of the run that left them",
        "store/registry/left_sweeps.py",
        "greatest(CAST(:run AS int), 1) - 1, 'left'",
        "CAST(:run AS int), 'left'",
    ),
    Mutation(
        "pages with a time to live are left",
        "store/registry/left_sweeps.py",
        "AND tt.tag_name = ANY (:kept))",
        "AND tt.tag_name = ANY (:kept) AND false)",
    ),
    Mutation(
        "a link does not free what is left",
        "changesets/flush.py",
        "AND r.hold = 'left'",
        "AND r.hold = 'skipped'",
    ),
    Mutation(
        "links free what is gone, but not what is left",
        "changesets/effects/request_operations.py",
        "return result.is_gone or result.is_left",
        "return result.is_gone",
    ),
    Mutation(
        "a hint of a change has a page fetched again that was fetched since",
        "changesets/effects/request_operations.py",
        " and result.is_before(operation.changed_at)",
        "",
    ),
    Mutation(
        "new work opens no run again",
        "store/awakening.py",
        "SET is_finished = false, is_closed = false",
        "SET is_finished = true, is_closed = false",
    ),
    # Two transactions at once
    Mutation(
        "items are not locked",
        "changesets/load.py",
        "    FOR NO KEY UPDATE OF i\n",
        "",
    ),
    Mutation(
        "names that moved meanwhile are not noticed",
        "changesets/load.py",
        "if owned or tombstones:",
        "if existing and not existing:",
    ),
    *(Mutation(*one) for one in FRONTIER),
)


def main() -> int:
    """Run the mutations that were asked for; return the exit code."""
    given = _parsed()
    chosen = [
        one for one in MUTATIONS if not given.words or any(word in one.name for word in given.words)
    ]
    problems = _problems()
    for problem in problems:
        print(f"error     {problem}", file=sys.stderr)
    if problems or not chosen:
        return 2
    if given.list:
        print("\n".join(one.name for one in chosen))
        return 0
    verdict, seconds, _ = _run(None, given.examples, given.seed)
    print(f"{'unchanged':9} {verdict} in {seconds:.0f} s", flush=True)
    if verdict != "survived":
        print("the model's tests fail without a mutation", file=sys.stderr)
        return 2
    verdicts = []
    for number, one in enumerate(chosen, 1):
        verdict, seconds, why = _run(one, given.examples, given.seed)
        verdicts.append(verdict)
        place = f"{number}/{len(chosen)}"
        print(f"{place:9} {verdict:8} {seconds:4.0f} s  {one.name}  {why}", flush=True)
    print(", ".join(f"{verdicts.count(one)} {one}" for one in sorted(set(verdicts))))
    return 2 if "error" in verdicts else int("survived" in verdicts)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run the mutations whose names have one of these")
    parser.add_argument("--examples", type=int, default=60, help="histories for each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="name them, and run none")
    return parser.parse_args()


def _problems() -> list[str]:
    """Return which mutations cannot be made, and why."""
    found = []
    for one in MUTATIONS:
        try:
            one.applied((ROOT / PACKAGE / one.path).read_text())
        except (ValueError, OSError) as error:
            found.append(str(error))
    return found


def _run(mutation: Mutation | None, examples: int, seed: int) -> tuple[str, float, str]:
    """Run the model's tests on a copy of the package; return the verdict, seconds, and why."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="itemgraph-mutation-") as folder:
        copy = Path(folder)
        for name in (PACKAGE, "migrations"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        if mutation is not None:
            path = copy / PACKAGE / mutation.path
            path.write_text(mutation.applied(path.read_text()))
        environment = os.environ | {
            "PYTHONPATH": folder,
            "PYTHONDONTWRITEBYTECODE": "1",
            "ITEMGRAPH_TEST_MODEL": str(examples),
            "ITEMGRAPH_TEST_MODEL_SEED": str(seed),
            "ITEMGRAPH_TEST_MODEL_SHRINKS": "0",
        }
        where = [sys.executable, "-P", "-c", f"import {PACKAGE}; print({PACKAGE}.__file__)"]
        found = subprocess.run(where, env=environment, capture_output=True, text=True, check=True)
        assert found.stdout.startswith(folder), f"not the copy, but {found.stdout}"
        options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
        tests = TESTS if mutation is None else mutation.tests
        command = [sys.executable, "-P", "-m", "pytest", *options, *tests]
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=HUNG,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "caught", time.monotonic() - began, f"no end in {HUNG:.0f} s"
    seconds = time.monotonic() - began
    errors = re.findall(r"^E +(\S.*)$", done.stdout, re.MULTILINE)
    why = errors[0][:120] if errors else ""
    if done.returncode not in {PASSED, FAILED}:
        return "error", seconds, (done.stdout + done.stderr)[-1000:]
    return ("survived" if done.returncode == PASSED else "caught"), seconds, why


if __name__ == "__main__":
    sys.exit(main())
