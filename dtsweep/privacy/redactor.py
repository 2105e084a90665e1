"""Results as strangers may see them: without secrets, home folders, users and hosts."""

from __future__ import annotations

import getpass
import ipaddress
import re
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any

from dtsweep.sweep.secret import without_secrets

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.results.store import Results

ADDRESS, HOST, NODE_ID, USER = "[address]", "[host]", "[node id]", "[user]"
"""Words in the place of what is left out."""

COMMON = frozenset(
    {"root", "user", "users", "ubuntu", "debian", "centos", "ec2-user", "azureuser", "admin"}
    | {"ray", "app", "jovyan", "runner", "nobody", "default", "docker", "work", "data", "test"}
    | {"host", "hosts", "localhost", "node", "address", "secret", "home", "shared", "public"}
)
"""Names of users and hosts that identify nobody."""

_HOME = re.compile(
    r"(?<![\w/.-])(?:/[\w.@-]+){0,4}?/(?:home|homes|Users|users)/(?P<user>[^/\s'\"`:;,()\[\]{}<>|]+)"
    r"|(?<=//)/(?:home|Users)/(?P<file_user>[^/\s'\"`:;,()\[\]{}<>|]+)"
    r"|\b[A-Za-z]:\\{1,2}Users\\{1,2}(?P<windows_user>[^\\/:*?\"'<>|\s]+)"
    r"|(?i:%2F)(?:home|Users)(?i:%2F)(?P<encoded_user>[^%/\s'\"`:;,&()\[\]{}<>|]+)"
    r"|(?:(?<![\w.-])/|(?i:%2F))root(?![\w.-])"
    r"|(?<![\w~])~(?P<tilde_user>[A-Za-z_][\w.-]*)(?=/)"
)
"""Home folders of Linux, macOS and Windows."""

_MAIL = re.compile(r"(?<![\w/.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")

_INTERNAL = re.compile(
    r"(?<![\w.-])(?:[\w-]+\.)+(?:internal|local|lan|corp|intranet|compute\.amazonaws\.com)"
    r"(?![\w-]|\.\w)"
    r"|(?<![\w.-])ip(?:-\d{1,3}){4}(?:\.[\w-]+)*",
    re.IGNORECASE,
)
"""Names that only hosts inside a network have."""

_NODE_ID = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{56}(?![0-9A-Za-z])")

_ADDRESS = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)"
    r"|(?<![\w:.])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])"
    r"|(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])"
)
"""Addresses: IPv4, Ethernet and IPv6. What looks like the last may be something else."""

_VERSION_BEFORE = re.compile(r"(?:==?|-cu\d+\W{0,5}|version\W{0,5})$", re.IGNORECASE)
"""Words before four numbers that are a version and not an address."""


MOST_NAMES = 4_000
"""Names of hosts, and of users, that are replaced; each name costs time in every text."""

_AS_USER = r"(?<![\w-])(?:{})(?!\w|-\w|\.\w)"
"""A user's name as a word."""

_AS_HOST = (
    r"(?<![^\W_])(?:{})(?![^\W_])"
    r"(?!\.(?!(?!(?:lan|corp|local)(?!\w))[A-Za-z]{{1,7}}(?![\w-]|\.[A-Za-z])|\d)\w)"
)
"""A host's name, before a sign or the ending of a file, but not before a longer domain."""

_AS_NAMED = r"(?:(?<=\bon )|(?<=\bnode )|(?<=@)|\A)(?:{})(?=\Z|[,;:()/]|\s*\Z)"
"""A name where a host or user is named."""


class Redactor:
    """Replaces what identifies people and hosts in text, and secrets."""

    def __init__(
        self, hosts: Collection[str] = (), *, users: Collection[str] = (), with_hosts: bool = False
    ) -> None:
        """Name what is to be replaced.

        Args:
            hosts: their names; they become `host 1`, `host 2` in this order.
            users: names of users, in addition to those that home folders are named after.
            with_hosts: keep names of hosts and users, and addresses. Secrets and home folders are
                replaced all the same.
        """
        self._with_hosts = with_hosts
        names = [name for name in dict.fromkeys(hosts) if name]
        self._numbers: dict[str, str] = {}
        for number, name in enumerate(names, start=1):
            self._numbers.setdefault(name.lower(), f"host {number}")
        for name, words in list(self._numbers.items()):
            # A log may have the first part of a name alone.
            self._numbers.setdefault(name.partition(".")[0], words)
        domains = {name.partition(".")[2] for name in names}
        self._hosts = _any_of(self._numbers, _AS_HOST)
        self._domains = [
            re.compile(rf"(?<![\w.-])(?:[\w-]+\.)*{re.escape(domain)}(?![\w-])")
            for domain in _longest_first(domains)
            if "." in domain
        ]
        self._users = _any_of(users, _AS_USER)
        self._home = _home()
        self._seen: dict[str, str] = {}
        """Texts as they are shown; most are in many rows."""

    def text(self, text: str) -> str:
        """Text without secrets, home folders, and names of users and hosts.

        >>> redactor = Redactor(["node-7.corp.example"])
        >>> redactor.text("rank 1 on node-7 (10.3.2.1): no /home/ann/net.py; HF_TOKEN=hf_x")
        'rank 1 on host 1 ([address]): no ~/net.py; HF_TOKEN=[secret]'
        """
        if text not in self._seen:
            self._seen[text] = self._text(text)
        return self._seen[text]

    def values(self, value: Any) -> Any:
        """JSON values with every string as `text` gives it, keys included.

        Keys that would become one get a number.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            shown: dict[Any, Any] = {}
            for key, item in value.items():
                shown[unused_name(self.values(key), shown)] = self.values(item)
            return shown
        if isinstance(value, list | tuple):
            return [self.values(item) for item in value]
        return value

    def _text(self, text: str) -> str:
        text = without_secrets(text)
        mentioned = _any_of(users_in([text]), _AS_USER)
        text = self._without_homes(text)
        if self._with_hosts:
            return text
        for pattern in (*self._users, *mentioned):
            text = pattern.sub(USER, text)
        text = _NODE_ID.sub(NODE_ID, _MAIL.sub(ADDRESS, text))
        for pattern in self._hosts:
            text = pattern.sub(self._host, text)
        for pattern in (*self._domains, _INTERNAL):
            text = pattern.sub(HOST, text)
        # A folder right behind a host's name begins only where that name ends.
        return _ADDRESS.sub(_address, self._without_homes(text))

    def _without_homes(self, text: str) -> str:
        if self._home is not None:
            text = self._home.sub("~", text)
        return _HOME.sub("~", text)

    def _host(self, match: re.Match[str]) -> str:
        # Without case, a pattern also finds letters that only look like those of a name.
        return self._numbers.get(match[0].lower(), HOST)


@cache
def local_redactor() -> Redactor:
    """Give the redactor that knows this host and this user alone."""
    return Redactor([gethostname()], users=this_user())


def redactor_of(ranks: pd.DataFrame | None) -> Redactor:
    """Make the redactor for some results.

    Args:
        ranks: rows of the ranks, which name the nodes; None if they are unknown.
    """
    if ranks is None or "node" not in ranks:
        return Redactor(users=this_user())
    return Redactor(sorted(map(str, ranks["node"].dropna().unique())), users=this_user())


def redactor_for(results: Results, *, with_hosts: bool = False) -> Redactor:
    """Make the redactor for the results in a place.

    Args:
        results: the place.
        with_hosts: keep names of hosts and users.

    Raises:
        StorageError: the place can't be read.
    """
    nodes = sorted(results.distinct("ranks", "node"))
    hosts = [*nodes, *sorted({run.record.host for run in results.run_records()}), gethostname()]
    texts = [
        *results.distinct("ranks", "log"),
        *(
            text
            for name in ("reason", "log", "command")
            for text in results.distinct("trials", name)
        ),
    ]
    users = users_in(texts) | this_user()
    return Redactor(hosts, users=users, with_hosts=with_hosts)


def users_in(texts: Iterable[str]) -> set[str]:
    r"""Names of the users whose home folders texts mention.

    >>> sorted(users_in(["/home/ann/x", r"C:\Users\bob\x and /root/y"]))
    ['ann', 'bob']
    """
    return {
        user for text in texts for match in _HOME.finditer(text) for user in match.groups() if user
    }


def this_user() -> set[str]:
    """Name of the user of this process; empty if it has none."""
    try:
        return {getpass.getuser()}
    except (KeyError, OSError):  # in a container, a process may have a user without a name
        return set()


def _home() -> re.Pattern[str] | None:
    """The home folder of this process; None if it is a folder that everybody has."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if len(home.parts) < 2:
        return None
    return re.compile(rf"(?<![\w.-]){re.escape(str(home))}(?![\w.-])")


def _address(match: re.Match[str]) -> str:
    """The word for an address; what is a version, or the address of every machine, stays."""
    text = match[0]
    if _VERSION_BEFORE.search(match.string[max(0, match.start() - 20) : match.start()]):
        return text
    groups = [group for group in text.split(":") if group]
    if len(groups) == 6 and set(map(len, groups)) == {2}:
        return ADDRESS
    if ":" in text and len(groups) < 3 and all(len(group) < 4 for group in groups):
        # A name of C++, as c::d, is more likely.
        return text
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    if address.is_loopback or address.is_unspecified or text == "255.255.255.255":
        return text
    return ADDRESS


def _any_of(names: Iterable[str], form: str) -> list[re.Pattern[str]]:
    """Find any of some names that is not a part of a longer word, in few passes.

    A name of two letters, or one that says what any host is, counts only where a host or user is
    named. Of many names, the longest `MOST_NAMES` are found.

    Args:
        names: of hosts or users.
        form: `_AS_HOST` or `_AS_USER`.
    """
    found = _longest_first(dict.fromkeys(names))[:MOST_NAMES]
    vague = [name for name in found if _is_vague(name)]
    patterns = []
    for form_of_some, some in ((form, set(found) - set(vague)), (_AS_NAMED, set(vague))):
        if some:
            escaped = "|".join(re.escape(name) for name in _longest_first(some))
            flags = re.IGNORECASE if form == _AS_HOST else re.NOFLAG
            patterns.append(re.compile(form_of_some.format(escaped), flags))
    return patterns


def _is_vague(name: str) -> bool:
    return len(name) <= 2 or name.lower() in ("gpu", "cpu", "head", "worker", "server", "master")


def _longest_first(names: Iterable[str]) -> list[str]:
    """Names that may identify somebody, longer ones first: they may hold shorter ones."""
    known = [name for name in names if name.lower() not in COMMON and re.search(r"[^\W\d_]", name)]
    return sorted(known, key=lambda name: (-len(name), name))


def unused_name(key: Any, used: Collection[Any]) -> Any:
    """Give a text that is none of the used ones: itself, or with a number behind it."""
    number = 2
    unused = key
    while unused in used:
        unused = f"{key} ({number})"
        number += 1
    return unused
