"""A board's address in a PostgreSQL database, taken apart: what libpq is to be told, which board, what may be shown.

It is taken apart as libpq does it, not as `urllib` would: the user ends at the first `@`, a `+` is a plus. What libpq
would read otherwise than it was meant (an `@` or a `/` in a password) is refused, because parts of a password would
then be taken for a host, and shown. No message made here holds anything but what `shown` gives.

Nothing of the driver is loaded with this module: `shown` serves where there is none, too.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from dibs.address import POSTGRES, kind_of, masked
from dibs.errors import Invalid
from dibs.model import Record

MAIN = "main"
"""The board of an address that names none."""
NAME_LENGTH = 200
_SECRETS = ("password", "sslpassword", "oauth_client_secret")
_EXAMPLE = "for example: postgresql://ann@db.example.com/work?board=web"


class Address(Record):
    __slots__ = ("conninfo", "board", "shown", "has_password")

    def __init__(self, conninfo: str, board: str, shown: str, has_password: bool) -> None:
        self.conninfo = conninfo
        self.board = board
        self.shown = shown
        self.has_password = has_password


def parse(url: str) -> Address:
    """`postgresql://user:password@host:port/database?board=NAME&…`."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    from dibs.stores.postgres.connections import DEFAULTS

    place, board, rest, shown, has_password = _taken_apart(url)
    plain = place + _query([pair for pair in rest if pair[0] != "board"])
    try:
        given = conninfo_to_dict(plain)
        # What we send is UTF-8, whatever the address says.
        ours = {key: value for key, value in DEFAULTS.items() if key not in given or key == "client_encoding"}
        conninfo = make_conninfo(plain, **ours)
    except psycopg.Error:
        # libpq quotes what it does not understand, and that may be the password: it is asked again without.
        try:
            conninfo_to_dict(beside(url, MAIN))
        except psycopg.Error as error:
            raise Invalid(
                f"that is not an address of a PostgreSQL board ({str(error).strip()})", hint=_meant(rest) + _EXAMPLE
            ) from None
        raise Invalid("the password in that address cannot be read", hint="in a password, write % as %25") from None
    return Address(conninfo, board, shown, has_password)


def _meant(pairs: list[tuple[str, str]]) -> str:
    from difflib import get_close_matches

    near = [
        (key, value) for key, value in pairs if key != "board" and get_close_matches(key.lower(), ["board"], 1, 0.7)
    ]
    return f"did you mean board={quote(near[0][1])}? " if near else ""


def shown(url: str) -> str:
    """The address without a password, always written in the same way; of one that is none, nothing but its kind."""
    try:
        return _taken_apart(url)[3]
    except Invalid:
        return "postgresql://…"


def public(url: str) -> str:
    """The address of any kind of board as it may be shown and written down: `shown` for one of ours."""
    return shown(url) if kind_of(url) in POSTGRES else masked(url)


def beside(url: str, board: str) -> str:
    """The address of another board in the same database, as `shown` gives it."""
    place, _, query = shown(url).partition("?")
    kept = [part for part in query.split("&") if part and not part.startswith("board=")]
    return "?".join([place, *filter(None, ["&".join([*kept, *([] if board == MAIN else [f"board={quote(board)}"])])])])


def has_password(url: str) -> bool:
    try:
        return _taken_apart(url)[4]
    except Invalid:
        return False


def _taken_apart(url: str) -> tuple[str, str, list[tuple[str, str]], str, bool]:
    """All before the `?` for libpq, the board, the parameters, what may be shown, and whether that lacks a password."""
    _, _, rest = url.strip().partition("://")
    if kind_of(url) not in POSTGRES or "://" not in url:
        raise Invalid("the address of a PostgreSQL board begins with postgresql://", hint=_EXAMPLE)
    user, at, after = rest.partition("@")
    if "/" in user or not at:
        user, at, after = "", "", rest
    place, _, query = after.partition("?")
    if "@" in place:
        raise Invalid(
            "that is not an address of a PostgreSQL board: there is an @ where none can be",
            hint="in a user's name, a password or a database's name, write @ as %40, / as %2F and % as %25",
        )
    _check_ports(place.partition("/")[0])
    pairs = [_pair(part) for part in query.split("&")] if query else []
    names = [value for key, value in pairs if key == "board"]
    if len(names) > 1:
        raise Invalid("the address names more than one board", hint=_EXAMPLE)
    board = _name(names[0] if names else MAIN)
    name, colon, _ = user.partition(":")
    public = [pair for pair in pairs if pair[0] not in (*_SECRETS, "board")]
    told = public if board == MAIN else [*public, ("board", board)]
    secret = bool(colon) or any(key in _SECRETS for key, _ in pairs)
    return f"postgresql://{user}{at}{place}", board, pairs, f"postgresql://{name}{at}{place}{_query(told)}", secret


def _check_ports(hosts: str) -> None:
    """What is no port may be a password, of an address that lacks its host: libpq would quote it."""
    for host in hosts.split(","):
        port = host.rpartition("]")[2].rpartition(":")[2] if ":" in host.rpartition("]")[2] else ""
        if port and not (port.isascii() and port.isdigit()):
            raise Invalid(
                "that is not an address of a PostgreSQL board: what stands behind the host's colon is no port",
                hint=f"a user comes before an @; {_EXAMPLE}",
            )


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise Invalid("that is not an address of a PostgreSQL board: a parameter has no value", hint=_EXAMPLE)
    return unquote(key), unquote(value)


def _query(pairs: list[tuple[str, str]]) -> str:
    return "?" + "&".join(f"{quote(key)}={quote(value, safe='/')}" for key, value in pairs) if pairs else ""


def _name(text: str) -> str:
    if not text.strip() or not text.isprintable() or text != text.strip() or len(text) > NAME_LENGTH:
        raise Invalid(
            f"a board's name is printable text of at most {NAME_LENGTH} characters, not {text!r:.60}", hint=_EXAMPLE
        )
    return text
