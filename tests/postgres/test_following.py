"""Readers that follow: the changelog and the inboxes skip nothing and give nothing twice, although numbers commit out
of order; whoever waits is woken by another process's commit, whether or not notifications arrive."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

from dibs import TaskBoard
from tests.postgres.actors import AS_ACTOR, assert_whole, board_of, crowd_of, reader_called
from tests.postgres.server import Server
from tests.processes.harness import PATIENCE, Actor, Crew, new_seed, wait_until
from tests.processes.harness import crew as crew

END = "that was all"
TIMEOUT = 30.0


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    with board_of(server) as made:
        yield made


class Slow:
    """A session without any of our code that holds rows which the writers want, so that they wait in the middle."""

    def __init__(self, url: str, seed: int) -> None:
        self._url, self._rng = url.partition("?")[0], random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.held = 0

    def __enter__(self) -> Slow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        with psycopg.connect(self._url) as connection:
            while not self._stop.is_set():
                share = self._rng.choice((1, 3, 20))
                try:
                    connection.execute(
                        "SELECT 1 FROM dibs.task WHERE id = 'shared' OR status = 'in_progress' FOR UPDATE"
                        if share == 1
                        else f"SELECT 1 FROM dibs.task WHERE seq %% {share} = 0 FOR UPDATE".replace("%%", "%")
                    )
                except psycopg.errors.DeadlockDetected:  # it keeps to no order of rows, so it may be the victim
                    connection.rollback()
                    continue
                self._stop.wait(self._rng.random() * 0.15)
                connection.rollback()
                self.held += 1
                self._stop.wait(self._rng.random() * 0.1)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def interrupt(pids: list[int], rng: random.Random, longest: float) -> None:
    """Let one process stand still for a moment, wherever it is: often in a transaction, with its numbers drawn."""
    victim = rng.choice(pids)
    try:
        os.kill(victim, signal.SIGSTOP)
        time.sleep(rng.random() * longest)
    except ProcessLookupError:
        return
    finally:
        try:
            os.kill(victim, signal.SIGCONT)
        except ProcessLookupError:
            pass


def followed(url: str, crew: Crew, writers: int, rounds: int, patience: float = PATIENCE) -> None:
    seed = new_seed()
    rng = random.Random(seed)
    board = TaskBoard.open(url, worker="maker")
    board.add("everybody's", id="shared", priority=-1, reserved="human")
    followers = [crew.start("follow", url, f"follower-{n}", END, before=AS_ACTOR) for n in range(2)]
    for follower in followers:
        follower.expect("following")
    crowd = crowd_of(crew, writers, "write_much", url, "writer-{n}", seed, rounds)
    crowd.go()
    stops = 0
    with Slow(url, seed) as slow:
        while crowd.actor.listen():
            for follower in followers:
                follower.listen()
            if living := children_of(crowd.actor.pid):
                interrupt(living, rng, 0.1)
                stops += 1
            time.sleep(rng.random() * 0.02)
    assert len(crowd.lines(patience)) == writers
    board.tell(END)
    with psycopg.connect(url.partition("?")[0]) as connection:
        there = [row[0] for row in connection.execute("SELECT seq FROM dibs.event ORDER BY seq")]
    for follower in followers:
        seen = [int(line.split()[0]) for line in follower.lines(patience)]
        missed = sorted(set(there) - set(seen))
        twice = [seq for seq, times in Counter(seen).items() if times > 1]
        assert not missed, f"missed {missed[:10]}"
        assert not twice, f"twice {twice[:10]}"
        assert seen == there
    board.close()
    assert_whole(url).close()
    print(
        f"0 missed and 0 twice among {len(there):,} events of {writers} writers for each of {len(followers)} followers;"
        f" {stops} writers stopped for a while, {slow.held} transactions that held rows"
    )


def test_followers_of_the_changelog_see_everything_once_and_in_order(url: str, crew: Crew) -> None:
    followed(url, crew, 16, 25)


@pytest.mark.slow
def test_followers_of_the_changelog_see_everything_for_long(url: str, crew: Crew) -> None:
    followed(url, crew, 16, 1500, 900)


def chatted(url: str, crew: Crew, senders: int, readers: int, rounds: int, patience: float = PATIENCE) -> None:
    """Half of the readers have an inbox each, the others share one: there each message comes to one of them."""
    seed = new_seed()
    rng = random.Random(seed)
    board = TaskBoard.open(url, worker="maker")
    board.tell("the first, so that nobody is a newcomer any more")
    names = [f"reader-{n}" if n % 2 else "shared" for n in range(readers)]
    for name in set(names):
        board.inbox(reader_called(name))
    reading = [crew.start("read_inbox", url, name, END, before=AS_ACTOR) for name in names]
    for reader in reading:
        reader.expect("reading")
    crowd = crowd_of(crew, senders, "chat", url, "sender-{n}", rounds)
    crowd.go()
    while crowd.actor.listen():
        for reader in reading:
            reader.listen()
        if living := children_of(crowd.actor.pid):
            interrupt(living, rng, 0.05)
        time.sleep(rng.random() * 0.02)
    assert len(crowd.lines(patience)) == senders
    sent = [(message.seq, message.content) for message in board.messages(100_000)][1:]
    assert len(sent) == senders * rounds
    for name in names:
        ended = sum(reader.process.poll() is not None for reader in reading)
        board.tell(END, name)  # comes to one of those who share
        wait_until(partial(have_ended, reading, ended + 1), "the end of a reader")
    got: dict[str, list[tuple[int, str]]] = {}
    for name, reader in zip(names, reading, strict=True):
        lines = [line.split(" ", 2) for line in reader.lines(patience)]
        numbers = [int(line[1]) for line in lines]
        assert numbers == sorted(numbers), f"{name} got messages out of order"
        got.setdefault(name, []).extend((int(line[1]), line[2]) for line in lines if line[2] != END)
    for name, messages in got.items():
        assert sorted(messages) == sent, (name, set(sent) - set(messages))
    board.close()
    print(f"0 of {len(sent):,} messages lost or given twice in {len(got)} inboxes, one of them read by several")


def have_ended(readers: list[Actor], number: int) -> bool:
    for reader in readers:
        reader.listen()
    return sum(reader.process.poll() is not None for reader in readers) >= number


def test_each_reader_gets_each_message_exactly_once(url: str, crew: Crew) -> None:
    chatted(url, crew, 8, 4, 40)


@pytest.mark.slow
def test_each_reader_gets_each_message_exactly_once_for_long(url: str, crew: Crew) -> None:
    chatted(url, crew, 8, 4, 2000, 900)
