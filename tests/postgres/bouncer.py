"""PgBouncer, for tests that go through a pooler."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.postgres.server import Server
from tests.processes.harness import wait_until


class bouncer:
    """PgBouncer before the server, in transaction mode."""

    def __init__(self, server: Server, url: str, folder: Path) -> None:
        program = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
        if program is None:
            missing = "pgbouncer is not installed (Debian: apt-get install pgbouncer; macOS: brew install pgbouncer)"
            if os.environ.get("CI"):
                pytest.fail(missing, pytrace=False)
            pytest.skip(missing)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        rest = url.partition("@")[2].partition("/")[2]
        self.url = f"postgresql://dibs@127.0.0.1:{self._port}/{rest}"
        (folder / "ini").write_text(
            f"[databases]\n* = host={server.host} port={server.port} user=dibs\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self._port}\nunix_socket_dir =\nauth_type = any\n"
            "pool_mode = transaction\nmax_client_conn = 200\ndefault_pool_size = 10\n"
            "ignore_startup_parameters = extra_float_digits\n"
        )
        nobody = ("-u", "nobody") if os.geteuid() == 0 else ()
        self._process = subprocess.Popen([program, "-q", *nobody, str(folder / "ini")], stderr=subprocess.PIPE)

    def __enter__(self) -> str:
        wait_until(self._answers, "pgbouncer")
        return self.url

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._process.communicate()
        try:
            socket.create_connection(("127.0.0.1", self._port)).close()
        except ConnectionRefusedError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
