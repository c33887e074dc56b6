"""Values of requests and of spider state: stored as JSON, and the same when they come back."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import sys
import types
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from typing import NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import pytest
import scrapy
from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import HtmlResponse
from scrapy.link import Link
from scrapy.linkextractors import LinkExtractor
from support import hostile_classes

from scrapy_itemgraph import AddTag
from scrapy_itemgraph.exceptions import (
    ConfigurationError,
    InvalidDataError,
    UnstorableError,
)
from scrapy_itemgraph.serialize import classes, json_values


class Colour(Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


class Access(Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Price:
    amount: Decimal
    currency: str = "EUR"
    seen: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.made = True
        del self.made


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: float


@dataclasses.dataclass
class Page:
    url: str

    @functools.cached_property
    def host(self):
        return self.url.split("/")[2]


@attrs.frozen
class Shop:
    name: str
    _secret: str = "s"
    pages: list = attrs.field(factory=list)


@attrs.define(slots=False)
class Clerk:
    name: str
    shop: Shop | None = None


class Product(scrapy.Item):
    name = scrapy.Field()
    price = scrapy.Field()


class Pair(NamedTuple):
    left: int
    right: object = None


Loose = namedtuple("Loose", ["a"])  # noqa: PYI024 - the other way to make one


@dataclasses.dataclass
class Dictionary(dict):
    name: str


class Text(str):
    __slots__ = ()

    def __str__(self):
        return "not the text"


class LabelledText(str):  # noqa: SLOT000 - that is what it is about
    def __new__(cls, text, label):
        made = super().__new__(cls, text)
        made.label = label
        return made


def same(left, right):  # noqa: PLR0911 - one for each sort of value
    """Tell whether two values are equal and of equal types throughout."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            same(a, b) for a, b in zip(left.items(), right.items(), strict=True)
        )
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (set, frozenset)):
        return len(left) == len(right) and all(any(same(a, b) for b in right) for a in left)
    if isinstance(left, (float, Decimal)):
        return repr(left) == repr(right)
    if isinstance(left, (datetime, time)):
        # a time zone has no equality that tells 02:30 from the other 02:30
        return repr(left) == repr(right) and left.fold == right.fold
    if isinstance(left, scrapy.Item):
        return same(dict(left), dict(right))
    if dataclasses.is_dataclass(left) or attrs.has(type(left)):
        fields = attrs.fields if attrs.has(type(left)) else dataclasses.fields
        names = [field.name for field in fields(type(left))]
        return all(same(getattr(left, name), getattr(right, name)) for name in names)
    return left == right


def round_trip(value):
    """Store a value as PostgreSQL would get it, and read it."""
    text = json.dumps(json_values.dump(value, "value"), ensure_ascii=False, allow_nan=False)
    text.encode()
    assert "\\u0000" not in text
    return json_values.load(json.loads(text))


texts = st.text(st.characters(exclude_categories=())) | st.sampled_from(["$", "v", "\ud800\udc00"])
zones = (
    st.none()
    | st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), UTC])
    | st.builds(
        timezone,
        st.timedeltas(timedelta(hours=-23), timedelta(hours=23)),
    )
    | st.builds(timezone, st.just(timedelta(hours=1)), st.text(min_size=1))
)
hashables = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.binary()
    | st.decimals().filter(lambda number: not number.is_snan())
    | st.uuids()
    | st.dates()
    | st.datetimes(timezones=zones)
    | st.times(timezones=zones)
    | st.timedeltas()
    | st.sampled_from([*Colour, *Level, *Word, Access.READ | Access.WRITE]),
    lambda parts: (
        st.tuples(parts, parts)
        | st.frozensets(parts, max_size=3)
        | st.builds(Point, parts, parts)
        | st.builds(Pair, parts, parts)
    ),
    max_leaves=5,
)
anything = st.recursive(
    hashables | st.sets(hashables, max_size=3) | st.builds(bytearray, st.binary()),
    lambda parts: (
        st.lists(parts, max_size=4)
        | st.tuples(parts)
        | st.dictionaries(hashables, parts, max_size=4)
        | st.dictionaries(texts, parts, max_size=4)
        | st.builds(Price, parts, parts, parts)
        | st.builds(Shop, parts, parts, parts)
        | st.builds(Clerk, parts)
        | st.builds(lambda name: Product(name=name), parts)
    ),
    max_leaves=10,
)


@given(anything)
def test_a_value_comes_back_equal_and_of_the_same_types(value):
    """Whatever the closed set of types makes comes back equal, type for type, in its order."""
    assert same(round_trip(value), value)


@given(anything)
def test_a_stored_value_is_stored_alike_again(value):
    """What was read is stored as the same JSON again, sets included."""
    stored = json_values.dump(value, "value")
    assert json.dumps(json_values.dump(json_values.load(stored), "value")) == json.dumps(stored)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({"depth": 1, "link_text": "é", "rule": 0}, {"depth": 1, "link_text": "é", "rule": 0}),
        (b"\x00\xff", {"$": "bytes", "v": "AP8="}),
        ((1, "a"), {"$": "tuple", "v": [1, "a"]}),
        ({"b", "a"}, {"$": "set", "v": ["a", "b"]}),
        ({1: "a"}, {"$": "dict", "v": [[1, "a"]]}),
        ({"$": 1}, {"$": "dict", "v": [["$", 1]]}),
        (math.inf, {"$": "float", "v": "inf"}),
        (datetime(2026, 1, 2, tzinfo=UTC), {"$": "datetime", "v": "2026-01-02T00:00:00+00:00"}),
        (timedelta(days=1, seconds=2), {"$": "timedelta", "v": [1, 2, 0]}),
        (Decimal("1.50"), {"$": "decimal", "v": "1.50"}),
        (date(2026, 1, 2), {"$": "date", "v": "2026-01-02"}),
        (UUID(int=1), {"$": "uuid", "v": "00000000-0000-0000-0000-000000000001"}),
        (Colour.RED, {"$": "enum", "c": f"{__name__}:Colour", "v": "red"}),
        (Pair(1), {"$": "namedtuple", "c": f"{__name__}:Pair", "v": {"left": 1, "right": None}}),
        (Product(name="x"), {"$": "item", "c": f"{__name__}:Product", "v": {"name": "x"}}),
        (Point(1, 2.5), {"$": "dataclass", "c": f"{__name__}:Point", "v": {"x": 1, "y": 2.5}}),
    ],
)
def test_the_stored_form_is_readable(value, stored):
    """JSON values are stored as they are, and others under a tag that names their type."""
    assert json_values.dump(value, "value") == stored
    assert same(json_values.load(stored), value)


def test_huge_numbers_and_both_sides_of_a_clock_change_come_back():
    """Integers of any length, and the second 02:30 of a night, are kept."""
    night = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    for value in (10**6000, -(10**6000), night, Loose(1)):
        assert same(round_trip(value), value)


def test_a_copy_is_private():
    """What is changed after the dump does not show in it, nor what is changed after the load."""
    value = {"a": [1], "p": Price(Decimal(1))}
    stored = json_values.dump(value, "value")
    value["a"].append(2)
    value["p"].seen.append(1)
    loaded = json_values.load(stored)
    loaded["a"].append(3)
    assert json_values.load(stored) == {"a": [1], "p": Price(Decimal(1))}


def test_the_text_of_a_link_becomes_plain_text():
    """LinkExtractor hands out lxml's text, which holds the page: CrawlSpider puts it into meta."""
    response = HtmlResponse("http://shop.example", body=b"<a href='/x'>Caf&eacute;</a>")
    text = LinkExtractor().extract_links(response)[0].text
    assert type(text) is not str
    assert same(json_values.dump({"link_text": text}, "meta"), {"link_text": "Café"})


def test_text_of_any_class_becomes_plain_text():
    """Its own text, whatever its class says of itself."""
    assert same(json_values.dump({"t": Text("x")}, "meta"), {"t": "x"})


def test_a_link_comes_back_equal():
    """What a LinkExtractor gives can be passed on in meta."""
    link = Link("http://shop.example/x", text="Café", fragment="f", nofollow=True)
    assert round_trip(link) == link


def test_a_cached_property_is_left_out():
    """A dataclass that has cached a property is stored, and computes it again."""
    page = Page("http://shop.example/1")
    assert page.host == "shop.example"
    loaded = round_trip(page)
    assert loaded == page
    assert "host" not in vars(loaded)


def circular():
    """Return a value that contains itself."""
    value = {"a": []}
    value["a"].append(value)
    return value


def deep():
    """Return lists in lists."""
    value = []
    for _ in range(5000):
        value = [value]
    return value


def marked():
    """Return a dataclass instance with an attribute that is no field."""
    page = Page("http://shop.example/1")
    page.note = "x"
    return page


def unset():
    """Return a dataclass instance without one of its fields."""
    page = Page("http://shop.example/1")
    del page.url
    return page


def local():
    """Return an instance of a class that cannot be imported."""

    @dataclasses.dataclass
    class Local:
        x: int = 1

    return Local()


class Summer(tzinfo):
    """A time zone of the project's own."""

    def utcoffset(self, when):
        return timedelta(hours=2)


@pytest.mark.parametrize(
    ("value", "what_is_wrong"),
    [
        ({"key": [object()]}, "meta['key'][0] is of type builtins.object, which cannot be stored"),
        ({"f": print}, "meta['f'] is of type builtins.builtin_function_or_method"),
        ({"c": Price}, "meta['c'] is of type builtins.type"),
        ({"t": LabelledText("x", label="y")}, "meta['t'] is of type"),
        ({"o": OrderedDict(a=1)}, "meta['o'] is of type collections.OrderedDict"),
        ({"p": Price(object())}, "meta['p'].amount is of type builtins.object"),
        ({"i": Product(name={1j})}, "meta['i']['name'][0] is of type builtins.complex"),
        ({"s": (1, 1j)}, "meta['s'][1] is of type builtins.complex"),
        ({1j: 1}, "meta has a key that cannot be stored: it is of type builtins.complex"),
        ({1: [1j]}, "meta[1][0] is of type builtins.complex"),
        ({"l": local()}, "move the class to the top of its module"),
        ({"d": Dictionary("x")}, "meta['d'] is of type"),
        ({"m": marked()}, "meta['m'] has the attribute 'note' beside its fields"),
        ({"u": unset()}, "meta['u'] has no value for its field 'url'"),
        ({"z": datetime(2026, 1, 1, tzinfo=Summer())}, "meta['z'] has a time zone"),
        ({"r": HtmlResponse("http://shop.example")}, "meta['r'] is of type scrapy.http"),
        (circular(), "contains itself or is nested more than 100 levels deep"),
        (deep(), "contains itself or is nested more than 100 levels deep"),
    ],
)
def test_what_cannot_be_stored_is_named_with_its_place_and_type(value, what_is_wrong):
    """The error names the first part that cannot be stored, and what to do."""
    with pytest.raises(UnstorableError) as raised:
        json_values.dump(value, "meta")
    assert what_is_wrong in str(raised.value)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize(
    ("stored", "what_is_wrong"),
    [
        ({"$": "pickle", "v": "x"}, "unknown tag 'pickle'"),
        ({"$": ["x"]}, "unknown tag ['x']"),
        ([{"$": "bytes"}], "a stored bytes is damaged"),
        ({"$": "bytes", "v": "?"}, "a stored bytes is damaged"),
        ({"$": "set", "v": [[]]}, "a stored set is damaged"),
        ({"$": "tuple", "v": "ab"}, "a stored tuple is damaged"),
        ({"$": "decimal", "v": "x"}, "a stored decimal is damaged"),
        ({"$": "datetime", "v": "2026-01-01T00:00", "zone": "Mars/Base"}, "is damaged"),
        ({"$": "enum", "v": 1}, "a stored enum is damaged"),
        ({"$": "enum", "c": f"{__name__}:Colour", "v": "blue"}, "no member of the value 'blue'"),
        ({"$": "enum", "c": f"{__name__}:Point", "v": 1}, "is no enum class any more"),
        ({"$": "item", "c": f"{__name__}:Gone", "v": {}}, "there is no class"),
        ({"$": "item", "c": f"{__name__}:same", "v": {}}, "is no class"),
        ({"$": "item", "c": "subprocess:Popen", "v": {}}, "is no item class any more"),
        ({"$": "item", "c": "no_such_package:Item", "v": {}}, "nothing here imports"),
        ({"$": "item", "c": "json.no_such_module:Item", "v": {}}, "nothing here imports"),
        ({"$": "item", "c": "os.system('x'):Item", "v": {}}, "is no import path"),
        ({"$": "item", "c": 5, "v": {}}, "is no import path"),
        ({"$": "item", "c": f"{__name__}:Product", "v": {"nam": 1}}, "has no field 'nam' any more"),
        ({"$": "dataclass", "c": f"{__name__}:Point", "v": {"x": 1}}, "for its new field 'y'"),
        ({"$": "namedtuple", "c": f"{__name__}:Pair", "v": {}}, "for its new field 'left'"),
        ({"$": "dataclass", "c": f"{__name__}:Point", "v": [1]}, "is damaged"),
        (deep(), "nested too deeply"),
        ((1, 2), "of type tuple, which is not JSON"),
    ],
)
def test_what_cannot_be_read_is_said(stored, what_is_wrong):
    """A tag that is unknown or damaged, and a class that is gone or changed, are named."""
    with pytest.raises(InvalidDataError) as raised:
        json_values.load(stored)
    assert what_is_wrong in str(raised.value)


def test_new_fields_with_defaults_get_them():
    """A class that has grown fields with defaults still reads what was stored before."""
    stored = {"$": "dataclass", "c": f"{__name__}:Price", "v": {"amount": 1}}
    assert json_values.load(stored) == Price(1, "EUR", [])
    stored = {"$": "attrs", "c": f"{__name__}:Shop", "v": {"name": "a"}}
    assert json_values.load(stored) == Shop("a", "s", [])
    stored = {"$": "namedtuple", "c": f"{__name__}:Pair", "v": {"left": 1}}
    assert json_values.load(stored) == Pair(1)


@pytest.mark.parametrize(
    "module", ["scrapy_itemgraph.operations", "scrapy_itemgraph.model.operations"]
)
def test_classes_of_ours_are_found_where_they_stood(module):
    """A value that was stored before the package had rooms is read as ever."""
    stored = {
        "$": "dataclass",
        "c": f"{module}:AddTag",
        "v": {"tag": "a", "value": None, "id": "x"},
    }

    assert json_values.load(stored) == AddTag("a", id="x")
    assert classes.find_dotted(f"{module}.AddTag") is AddTag


def test_users_load_values_by_a_name_of_the_package():
    """`load_value` is public, and the module's former name still leads there."""
    from scrapy_itemgraph import load_value, tagged

    assert load_value is json_values.load
    assert tagged.load is load_value


def test_loading_calls_no_constructor(monkeypatch):
    """An instance is rebuilt from its fields; its `__init__` does not run."""

    def fail(*_, **__):
        raise AssertionError

    stored = [json_values.dump(v, "v") for v in (Price(1), Shop("a"), Product(name="x"))]
    for kind in (Price, Shop, Product):
        monkeypatch.setattr(kind, "__init__", fail)
    assert [type(json_values.load(s)) for s in stored] == [Price, Shop, Product]


def test_a_class_under_another_name_is_not_stored(monkeypatch):
    """A class whose name leads to another class now would come back as that one."""
    module = types.ModuleType("itemgraph_test_shop")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    old = dataclasses.make_dataclass("Card", ["x"])
    old.__module__ = module.__name__
    module.Card = dataclasses.make_dataclass("Card", ["x"])
    with pytest.raises(UnstorableError, match="cannot be imported by that name"):
        json_values.dump(old(1), "meta")


# Values that somebody else wrote


def path_to(name):
    """Return the import path of a class that guards itself."""
    return f"{hostile_classes.__name__}:{name}"


@pytest.mark.parametrize(
    ("stored", "what_is_wrong"),
    [
        ({"$": "enum", "c": path_to("Shy"), "v": 2}, "no member of the value 2"),
        ({"$": "enum", "c": path_to("Marks"), "v": 2}, "no member of the value 2"),
        ({"$": "enum", "c": "enum:Enum", "v": "x"}, "no member of the value 'x'"),
        ({"$": "dataclass", "c": path_to("Final"), "v": {"path": "x"}}, "is no dataclass class"),
        ({"$": "dataclass", "c": path_to("Guarded"), "v": {"path": "x"}}, "is a property or its"),
        ({"$": "attrs", "c": path_to("Derived"), "v": {"path": "x"}}, "for its new field 'handle'"),
        ({"$": "dataclass", "c": path_to("Costly"), "v": {}}, "damaged (SystemExit: it ran)"),
        (
            {"$": "set", "v": [{"$": "dataclass", "c": path_to("Costly"), "v": {"path": []}}]},
            "a stored set is damaged (KeyboardInterrupt",
        ),
        ({"$": "dataclass", "c": path_to("Posing"), "v": {}}, "is no dataclass class"),
        ({"$": "dataclass", "c": path_to("Posing.x"), "v": {}}, "there is no class"),
        ({"$": "dataclass", "c": path_to("Outer.inner"), "v": {}}, "is no class"),
        ({"$": "dataclass", "c": path_to("Outer.inner.fget"), "v": {}}, "there is no class"),
        ({"$": "dataclass", "c": "itemgraph_test_lazy:Thing", "v": {}}, "there is no class"),
    ],
)
def test_a_hostile_value_runs_nothing_and_ends_nothing(monkeypatch, stored, what_is_wrong):
    """Hooks of classes do not run, and what is raised all the same is an error of ours."""
    lazy = types.ModuleType("itemgraph_test_lazy")
    lazy.__getattr__ = hostile_classes.boom
    monkeypatch.setitem(sys.modules, lazy.__name__, lazy)
    with pytest.raises(InvalidDataError) as raised:
        json_values.load(stored)
    assert what_is_wrong in str(raised.value)


def test_constructors_and_validators_do_not_run():
    """An instance whose stored fields are all there is filled, and nothing of its class runs."""
    stored = {"$": "attrs", "c": path_to("Derived"), "v": {"path": "x", "handle": None}}
    loaded = json_values.load(stored)
    assert (type(loaded), loaded.path, loaded.handle) == (hostile_classes.Derived, "x", None)


def test_classes_that_would_not_be_read_are_not_stored():
    """Classes with finalisers or fields that are properties are refused when they are stored."""
    guarded = object.__new__(hostile_classes.Guarded)
    with pytest.raises(UnstorableError, match="whose field 'path' is no plain field"):
        json_values.dump(guarded, "meta")
    final = dataclasses.make_dataclass("Final", ["x"], namespace={"__del__": lambda self: None})
    with pytest.raises(UnstorableError, match="cannot be stored"):
        json_values.dump(final(1), "meta")


def test_no_value_imports_a_module(monkeypatch, tmp_path):
    """A class in a module that is not loaded is refused, and its module is not imported."""
    package = tmp_path / "itemgraph_test_bait"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "hook.py").write_text(
        "import dataclasses\n\n@dataclasses.dataclass\nclass Card:\n    x: int\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import itemgraph_test_bait  # noqa: F401

    stored = {"$": "dataclass", "c": "itemgraph_test_bait.hook:Card", "v": {"x": 1}}
    with pytest.raises(InvalidDataError, match="ITEMGRAPH_ALLOWED_MODULES"):
        json_values.load(stored)
    assert "itemgraph_test_bait.hook" not in sys.modules

    classes.load_modules(["itemgraph_test_bait.hook"])
    assert json_values.load(stored).x == 1
    with pytest.raises(ConfigurationError, match="nothing' cannot be imported"):
        classes.load_modules(["itemgraph_test_bait.nothing"])
