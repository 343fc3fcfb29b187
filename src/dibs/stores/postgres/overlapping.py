"""What the server can tell of paths and locks, so that tasks whose files others surely hold need not be fetched: there
may be thousands. Which patterns overlap is a rule (`paths.overlaps`), and where the server is not sure it says so
(null), and the rule decides. What it is sure of it must never say differently: tests/postgres/test_overlapping.py.

It is sure of names, whole folders, `*`, and `?` against a name. It leaves to the rule: a segment with a `[` against
one that is spelt differently, and a `?` against another wildcard.
"""

from __future__ import annotations

from dibs.stores.postgres.statements import clock

_STEM = "regexp_replace({0}, '(^|/)[^/]*[*?[].*$', '')"


def stem(path: str) -> str:
    """The folders that all of a pattern lies in. A `[` that opens no class is taken for one, so it may be shorter than
    it is."""
    return _STEM.format(path)


def _is_whole(pattern: str, stem: str) -> str:
    """Does a pattern cover its stem as a whole, as far as overlapping goes? What comes behind a `**` plays no part."""
    return f"({pattern} = {stem} OR starts_with({pattern} || '/', ltrim({stem} || '/**/', '/')))"


def folders(name: str) -> str:
    """A name's own folders from above (the first is the root itself), in the length that the index of locks has."""
    return f"""
    SELECT substr(array_to_string(parts[1:depth], '/'), 1, 600) AS prefix
    FROM (SELECT string_to_array({name}, '/') AS parts) AS split, generate_series(0, cardinality(parts)) AS depth
    """


def _as_like(segment: str) -> str:
    """A segment's wildcards as those of LIKE, where what LIKE has besides stands for itself."""
    for character in ("chr(92)", "'%'", "'_'"):  # 92 is the backslash, which a server may be set to read differently
        segment = f"replace({segment}, {character}, chr(92) || {character})"
    return f"replace(replace({segment}, '*', '%'), '?', '_')"


def _same_end(way: str, a: str, b: str) -> str:
    """Are two texts the same, as far as the shorter one goes?"""
    shorter = f"least(length({a}), length({b}))"
    return f"{way}({a}, {shorter}) = {way}({b}, {shorter})"


# Of two segments with stars only what precedes the first and follows the last counts: each star can hold the other's
# middle.
_SEGMENTS = f"""CASE
    WHEN x = y OR x = '*' OR y = '*' THEN true
    WHEN strpos(x || y, '[') > 0 THEN NULL
    WHEN y !~ '[*?]' THEN y LIKE {_as_like("x")}
    WHEN x !~ '[*?]' THEN x LIKE {_as_like("y")}
    WHEN strpos(x || y, '?') > 0 THEN NULL
    ELSE {_same_end("left", "split_part(x, '*', 1)", "split_part(y, '*', 1)")}
        AND {_same_end("right", "substring(x FROM '[^*]*$')", "substring(y FROM '[^*]*$')")}
    END"""


def overlap(a: str, b: str) -> str:
    """Do two patterns overlap? A select of one row, `met`: null where that is for the rule to say. Segments count until
    one of the two ends, or has a `**`."""
    return f"""
    SELECT CASE WHEN bool_or(NOT met) THEN false WHEN bool_or(met IS NULL) THEN NULL ELSE true END AS met
    FROM (SELECT string_to_array({a}, '/') AS xs, string_to_array({b}, '/') AS ys) AS split
    CROSS JOIN LATERAL (
        SELECT {_SEGMENTS} AS met FROM unnest(xs, ys) WITH ORDINALITY AS pair (x, y, at)
        WHERE at <= least(cardinality(xs), cardinality(ys), array_position(xs, '**') - 1, array_position(ys, '**') - 1)
    ) AS segments"""


def binds(time: str, name: str, session: str) -> str:
    """Does a lock bind a worker at some time? Its own do not, nor does what has run out."""
    return (
        f"expires_at > (SELECT {clock(time)}) AND (worker <> {name} OR holder::json ->> 'session' <> {session}::text)"
    )


# $5 the tests' time, $6 the asker's name, $9 its session. Whoever has $7 in its record and is not one of $8 may have
# died, and of such a lock nothing is certain.
_BINDS = binds("$5", "$6", "$9")
_LIVES = "($7::text IS NULL OR strpos(holder, $7) = 0 OR holder = ANY($8))"

HELD = f"""held AS MATERIALIZED (
    SELECT DISTINCT prefix, {_is_whole("pattern", "prefix")} AS whole FROM dibs.lock
    WHERE board = $1 AND {_BINDS} AND {_LIVES}),
inside AS MATERIALIZED (
    SELECT DISTINCT array_to_string(parts[1:depth], '/') AS prefix
    FROM (SELECT string_to_array(prefix, '/') AS parts FROM held) AS h, generate_series(0, cardinality(parts)) depth)
"""
# By looking names up: a path that lies in a folder that is held as a whole; one that is a folder in which something is
# held.
IS_HELD = f"""EXISTS (
    SELECT FROM unnest(string_to_array(paths, chr(10))) AS path,
        LATERAL (SELECT {stem("path")} AS name) AS named, LATERAL (SELECT string_to_array(name, '/') AS parts) AS split
    WHERE ({_is_whole("path", "name")} AND name IN (SELECT prefix FROM inside)) OR EXISTS (
        SELECT FROM generate_series(0, cardinality(parts)) depth
        WHERE array_to_string(parts[1:depth], '/') IN (SELECT prefix FROM held WHERE whole)))"""


def meets(paths: str, binds: str, condition: str) -> str:
    """Is there a lock that binds near one of the paths of which this is true? By comparing patterns, with those locks
    only whose prefix is the path's, above it or below it."""
    near = f"""
        SELECT pattern, holder FROM dibs.lock
        WHERE board = $1 AND {binds} AND substr(prefix, 1, 600) = ANY (ARRAY({folders("name")}))
        UNION ALL
        SELECT pattern, holder FROM dibs.lock WHERE board = $1 AND {binds}
            AND substr(prefix, 1, 600) >= substr(CASE name WHEN '' THEN '' ELSE name || '/' END, 1, 600)
            AND substr(prefix, 1, 600) <= substr(CASE name WHEN '' THEN chr(1114111) ELSE name || '0' END, 1, 600)"""
    return f"""EXISTS (
    SELECT FROM unnest(string_to_array({paths}, chr(10))) AS path, LATERAL (SELECT {stem("path")} AS name) AS named,
        LATERAL ({near}) AS near, LATERAL ({overlap("path", "near.pattern")}) AS compared
    WHERE path <> '' AND {condition})"""


MAY_MEET = "met IS NOT FALSE"
IS_SURELY_HELD = meets("paths", _BINDS, f"met AND {_LIVES}")
MAY_BE_HELD = meets("paths", _BINDS, MAY_MEET)
