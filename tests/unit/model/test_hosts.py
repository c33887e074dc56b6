"""Addresses that are not of the public Internet, and rules for hosts."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from scrapy_itemgraph.model import hosts
from scrapy_itemgraph.model.hosts import HostRule

KINDS = {
    None: ["8.8.8.8", "100.63.255.255", "100.128.0.1", "172.32.0.1", "2606:4700::1111"],
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "unspecified": ["0.0.0.0", "::"],
    "link-local": ["169.254.169.254", "fe80::1", "fe80::1%eth0"],
    "private": ["10.0.0.1", "172.16.0.1", "192.168.255.255", "fd00:ec2::254", "fec0::1"],
    "shared": ["100.64.0.1", "100.127.255.255"],
    "multicast": ["224.0.0.1", "239.1.1.1", "ff02::1"],
    "reserved": [
        "0.1.2.3",
        "192.0.0.192",
        "192.0.2.1",
        "198.18.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "100::1",
        "2001:db8::1",
        "4000::1",
        "64:ff9b:1::1",
    ],
}
CARRIERS = {
    "mapped": "::ffff:{0}",
    "compatible": "::{0}",
    "6to4": "2002:{1:04x}:{2:04x}::1",
    "NAT64": "64:ff9b::{0}",
    "Teredo": "2001:0:808:808:0:0:{3:04x}:{4:04x}",
}


@pytest.mark.parametrize(
    ("address", "kind"), [(one, kind) for kind, given in KINDS.items() for one in given]
)
def test_an_address_is_public_or_of_a_kind(address, kind):
    """Only what is of the public Internet has no kind."""
    assert hosts.kind_of(ip_address(address)) == kind


@pytest.mark.parametrize("form", CARRIERS.values(), ids=CARRIERS.keys())
@pytest.mark.parametrize(
    ("address", "kind"),
    [("8.8.8.8", None), ("127.0.0.1", "loopback"), ("169.254.1.1", "link-local")],
)
def test_an_address_in_another_is_what_it_is(form, address, kind):
    """An IPv6 address that carries one of IPv4 is of the kind of that."""
    high, low = divmod(int(ip_address(address)), 0x10000)
    written = form.format(address, high, low, high ^ 0xFFFF, low ^ 0xFFFF)

    assert hosts.kind_of(ip_address(written)) == kind


@pytest.mark.parametrize(
    "written", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "localhost", "a.example."]
)
def test_only_usual_spellings_are_addresses(written):
    """What only a resolver reads as an address is a name, which is looked up."""
    assert hosts.address_of(written) is None
    assert hosts.is_plain_name(written)


@pytest.mark.parametrize("written", ["", "a b", "a\\b", "a%2eb", "a@b", ".", "a..b", "a,b", "ä"])
def test_other_spellings_are_no_names(written):
    """A host that is not written as names are cannot be checked, and is not taken for one."""
    assert not hosts.is_plain_name(written)


@pytest.mark.parametrize(
    ("rule", "named", "others"),
    [
        ("Localhost", ["localhost"], ["localhost.example", "x.localhost"]),
        ("*.intern.example", ["a.intern.example", "a.b.intern.example"], ["intern.example"]),
        ("bücher.example", ["xn--bcher-kva.example"], ["b.example"]),
        ("api.example:8080", [], ["api.example"]),
    ],
)
def test_a_rule_is_for_names(rule, named, others):
    """A name is for itself alone, and `*.` for what ends with it."""
    read = HostRule.read(rule)

    assert [one for one in (*named, *others) if read.has_name(one, 443)] == named
    assert read.has_name("api.example", 8080) is (rule == "api.example:8080")


@pytest.mark.parametrize(
    ("rule", "port", "held", "others"),
    [
        ("10.0.0.0/8", 80, ["10.9.9.9", "::ffff:10.9.9.9"], ["11.0.0.1", "::1"]),
        ("127.0.0.1", 80, ["127.0.0.1"], ["127.0.0.2"]),
        ("127.0.0.1:81", 81, ["127.0.0.1"], ["127.0.0.2"]),
        ("127.0.0.1:81", 80, [], ["127.0.0.1"]),
        ("[::1]:81", 81, ["::1"], ["127.0.0.1"]),
        ("fd00::/8", 80, ["fd00::1"], ["fe80::1"]),
    ],
)
def test_a_rule_is_for_addresses(rule, port, held, others):
    """An address or network is for all hosts that lead there, at the port if it has one."""
    read = HostRule.read(rule)

    assert [one for one in (*held, *others) if read.has_address(ip_address(one), port)] == held


def test_a_rule_of_another_scheme_is_for_one_place():
    """`s3://bucket` is for that bucket, and for no name of the web."""
    read = HostRule.read("s3://bucket")

    assert read.has_place("s3", "bucket")
    assert not read.has_place("s3", "other")
    assert not read.has_name("bucket", 80)


@pytest.mark.parametrize(
    "given", ["*", "http://x/", "10.0.0.1/8", "2130706433", "0x7f.1", "a:0", "a:99999", "a b", "x:"]
)
def test_what_is_no_host_is_refused(given):
    """A rule that cannot be meant names itself and says what to write."""
    with pytest.raises(ValueError, match=r"write|such as"):
        HostRule.read(given)


def test_rules_are_read_from_a_list_or_text():
    """As a list or with commas, as a command line has it, hosts are the same."""
    assert hosts.read_rules("a.example, 10.0.0.0/8,") == hosts.read_rules(
        ["a.example", "10.0.0.0/8"]
    )
    with pytest.raises(ValueError, match="write hosts as texts"):
        hosts.read_rules([7])
