"""Classes whose hooks must not run for what is stored: each ends the process if it does."""

from __future__ import annotations

import dataclasses
from enum import Enum, Flag

import attrs


def boom(*_, **__):
    """Fail as code that must not run does."""
    raise SystemExit("it ran")


class Shy(Enum):
    ONE = 1

    @classmethod
    def _missing_(cls, value):
        boom()


class Marks(Flag):
    A = 1

    @classmethod
    def _missing_(cls, value):
        boom()


@dataclasses.dataclass
class Final:
    path: str

    def __del__(self):
        boom()


class Setter:
    def __get__(self, instance, owner):
        return 1

    def __set__(self, instance, value):
        boom()


@dataclasses.dataclass
class Guarded:
    path: str

    def __post_init__(self):
        boom()

    def __setattr__(self, name, value):
        boom()

    def __setstate__(self, state):
        boom()


Guarded.path = Setter()


@attrs.define
class Derived:
    path: str = attrs.field(validator=boom, converter=boom)
    handle: object = attrs.field(default=attrs.Factory(boom, takes_self=True))


@dataclasses.dataclass(frozen=True)
class Costly:
    path: list = dataclasses.field(default_factory=boom)

    def __hash__(self):
        raise KeyboardInterrupt


class Meta(type):
    def __getattr__(cls, name):
        boom()

    def __call__(cls, *args):
        boom()


class Posing(metaclass=Meta):
    """Has every attribute that is asked for."""


class Outer:
    @property
    def inner(self):
        boom()
