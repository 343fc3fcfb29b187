"""A git repository in a temporary folder, in which the blocks of one page are executed one after the other.

Shell blocks share the working directory and what they export, Python blocks share their names. A `console` block is
`$ command` lines (continued by `> `) with the output that they must give; a Python block's printed lines must be those
of its `# -> ` comments. In both `…` stands for any text, and as the only text of a line for any number of lines.
Lengths of time may differ as much as a slow machine makes them differ.

A block that names `DATABASE_HOST` gets a PostgreSQL server under that name, which this page has for itself: with the
database `work` of the role `ann`, the role `build_agents`, and a copy of docs/grants.sql in the repository.

`python -m tests.docs.sandbox PAGE` prints the page with the output that its console blocks give now.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import dibs
from tests.docs.pages import ROOT, RUN, Block, blocks
from tests.postgres.server import Server, server_for_test

PATIENCE = 30.0
DATABASE_HOST = "db.example.com"
MARK = "~end of command~"

_SPAN = re.compile(r"\b(?:\d+d \d+h|\d+h \d\dm|\d+m \d\ds|\d+[smh])\b")
_CLOCK = re.compile(r"\b(?:\d\d\d\d-)?(?:\d\d-\d\d[T ])?\d\d:\d\d(?::\d\d(?:\.\d+Z)?)?\b")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

_DRIVER = """
import contextlib, io, json, sys, traceback
names = {"__name__": "__main__"}
with open(int(sys.argv[1]), "w") as answers:
    for line in sys.stdin:
        source, place = json.loads(line)
        printed, problem = io.StringIO(), None
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(source, place, "exec"), names)
        except BaseException:
            problem = traceback.format_exc()
        print(json.dumps([printed.getvalue(), problem]), file=answers, flush=True)
"""


class Sandbox:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = folder / "repository"
        subprocess.run(["git", "init", "--quiet", str(self.repository)], check=True)
        tools = folder / "bin"
        tools.mkdir()
        _program(
            tools / "dibs",
            f"#!{sys.executable}\nimport sys\nfrom dibs.cli import main\n\nsys.argv[0] = 'dibs'\nsys.exit(main())\n",
        )
        _program(tools / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        strange = ("DIBS_", "CLAUDE", "CODEX", "GEMINI", "PYTHON", "COLUMNS", "NO_COLOR", "GIT_", "PG")
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith(strange)} | {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(dibs.__file__).parents[1]),
            "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / f"dibs-docs-bytecode-{os.getuid()}"),
            "HOME": str(folder),
            "DIBS_RUNTIME_DIR": str(folder / "dibs-clients"),
            "LOGNAME": "alice",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_NAME": "alice",
            "GIT_AUTHOR_EMAIL": "alice@example.org",
            "GIT_COMMITTER_NAME": "alice",
            "GIT_COMMITTER_EMAIL": "alice@example.org",
        }
        self._exported = folder / "exported"
        self._exported.write_text("")
        self._where = folder / "where"
        self._where.write_text(f"{self.repository}\n")
        self._python: subprocess.Popen[str] | None = None
        self._server: Server | None = None

    def run(self, block: Block) -> None:
        if block.language == "python":
            self._run_python(block)
        elif block.language == "console":
            for command, wanted, given in zip(*expected(block), self.outputs(block), strict=True):
                agree(wanted, given, f"{block.place}, $ {command}")
        else:
            code, output = self._shell(block.language, f"set -e\n{block.text}", block.place)
            assert code == 0, f"{block.place} ended with {code}:\n{output}"

    def outputs(self, block: Block) -> list[list[str]]:
        """What each command of a console block prints, on stdout and stderr together."""
        commands, _ = expected(block)
        lines = []
        for command in commands:
            lines += [command, "_code=$?", f"echo '{MARK}'", "(exit $_code)"]
        _, output = self._shell("sh", "\n".join(lines) + "\n", block.place)
        parts = output.split(f"{MARK}\n")
        assert len(parts) == len(commands) + 1, f"{block.place} was cut short:\n{output}"
        return [part.splitlines() for part in parts[:-1]]

    def _shell(self, shell: str, script: str, place: str) -> tuple[int, str]:
        if DATABASE_HOST in script:
            self._serve()
        around = (
            f'. "{self._exported}"\ncd "$(cat "{self._where}")"\n'
            f'trap \'sh -c "export -p" > "{self._exported}"; pwd > "{self._where}"\' EXIT\n{script}'
        )
        process = subprocess.Popen(
            [shell, "-c", around],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # without a terminal, wherever the tests are run
        )
        try:
            output, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            raise AssertionError(f"{place} did not end within {PATIENCE:.0f} s:\n{output}") from None
        return process.returncode, output

    def _serve(self) -> None:
        """Start the page's server, and let libpq find it behind the name."""
        if self._server is not None:
            return
        server_for_test()  # says what to install, where there is none
        self._server = server = Server.start()
        server.execute("CREATE ROLE ann LOGIN")
        server.execute("CREATE ROLE build_agents LOGIN")
        server.execute("CREATE DATABASE work OWNER ann ENCODING 'UTF8' TEMPLATE template0")
        shutil.copy(ROOT / "docs" / "grants.sql", self.repository)
        there = {"PGHOSTADDR": server.host, "PGPORT": str(server.port)}
        self.environ |= there
        with self._exported.open("a") as exported:
            exported.writelines(f"export {name}={value}\n" for name, value in there.items())
            exported.write(f'export PATH="$PATH:{server.programs}"\n')

    def _run_python(self, block: Block) -> None:
        if DATABASE_HOST in block.text:
            self._serve()
        if self._python is None:
            answers, theirs = os.pipe()
            self._python = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", _DRIVER, str(theirs)],
                cwd=self.repository,
                env=self.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
                pass_fds=[theirs],
                start_new_session=True,
            )
            os.close(theirs)
            self._answers = open(answers)  # noqa: SIM115 - closed with the sandbox
        assert self._python.stdin is not None
        self._python.stdin.write(json.dumps([block.text, block.place]) + "\n")
        self._python.stdin.flush()
        printed, problem = json.loads(self._answers.readline())
        assert problem is None, f"{block.place} failed:\n{problem}"
        agree(re.findall(r"# -> (.*)$", block.text, re.MULTILINE), printed.splitlines(), block.place)

    def close(self) -> None:
        if self._python is not None:
            self._python.communicate()
            self._answers.close()
        if self._server is not None:
            self._server.close()


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def expected(block: Block) -> tuple[list[str], list[list[str]]]:
    """The commands of a console block, and the lines that each is to print."""
    commands: list[str] = []
    outputs: list[list[str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append(line[2:])
            outputs.append([])
        elif line.startswith("> ") and commands and not outputs[-1]:
            commands[-1] += "\n" + line[2:]
        else:
            assert commands, f"{block.place} begins with output"
            outputs[-1].append(line)
    return commands, outputs


def agree(wanted: list[str], given: list[str], place: str) -> None:
    """Compare lines, `…` in the wanted ones standing for anything."""
    if not _match(wanted, given):
        raise AssertionError("\n".join([f"{place}: the page says", *wanted, "and it prints", *given]))


def _match(wanted: list[str], given: list[str]) -> bool:
    if not wanted:
        return not given
    if wanted[0].strip() == "…":
        return any(_match(wanted[1:], given[n:]) for n in range(len(given) + 1))
    return bool(given) and _same(wanted[0], given[0]) and _match(wanted[1:], given[1:])


def _same(wanted: str, given: str) -> bool:
    if wanted == given:
        return True
    pattern = re.escape(_timeless(wanted)).replace("…", ".*")
    if not re.fullmatch(pattern, _timeless(given)):
        return False
    said, is_ = _SPAN.findall(wanted), _SPAN.findall(given)
    return "…" in wanted or all(_near(_length(a), _length(b)) for a, b in zip(said, is_, strict=True))


def _timeless(line: str) -> str:
    return " ".join(_SPAN.sub("~", _CLOCK.sub("~", line)).split())


def _length(span: str) -> int:
    return sum(int(part[:-1]) * _UNITS[part[-1]] for part in span.split())


def _near(said: int, is_: int) -> bool:
    return abs(said - is_) <= 120


def refreshed(page: Path) -> str:
    """The page with the present output of its console blocks, where that differs from what it says."""
    text = page.read_text()
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(Path(folder))
        for block in blocks(page):
            if block.language not in RUN or block.not_run:
                continue
            if block.language != "console":
                sandbox.run(block)
                continue
            lines = []
            for command, wanted, given in zip(*expected(block), sandbox.outputs(block), strict=True):
                lines += ["$ " + command.replace("\n", "\n> "), *(wanted if _match(wanted, given) else given)]
            text = text.replace(f"```console\n{block.text}```", "```console\n" + "\n".join(lines) + "\n```", 1)
        sandbox.close()
    return text


if __name__ == "__main__":
    sys.stdout.write(refreshed(Path(sys.argv[1]).resolve()))
