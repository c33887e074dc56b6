"""Roles of a server: the kinds of them, by what they do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RoleKind(StrEnum):
    """What a role is for: reading, scheduling, working, or changing the tables."""

    MANAGER = "manager"
    WORKER = "worker"
    SCHEDULER = "scheduler"
    READ_ONLY = "read-only"


@dataclass(frozen=True, slots=True)
class Grants:
    """SQL statements that give a role the rights of a kind to the tables, and no others."""

    kind: RoleKind
    role: str
    statements: tuple[str, ...]
