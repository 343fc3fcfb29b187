"""What git's subcommands write in the work tree: checkout and restore of paths, rm, mv.

    git(walk, words)    adds to the walk what `git` with these arguments certainly writes

Whether a word of `checkout` is a path or a branch depends on the repository, so its refs and files are looked at; git
itself is not run. What git finds for itself (`apply`, `stash`, `reset --hard`, switching branches) is left out.
"""

from __future__ import annotations

import os

from dibs.hooks.programs import split, to_last
from dibs.hooks.shellwords import Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.hooks.shellwrites import Walk


def git(walk: Walk, words: list[Word]) -> None:
    folders = walk.folders
    tree: list[str] | None = None
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        word = words[at]
        at += 1
        option, equals, _ = word.text.partition("=")
        if option in ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env") and not equals:
            if at == len(words):
                break
            value = words[at]
            at += 1
        else:
            value = Word(word.text[len(option) + 1 :], word.bare[len(option) + 1 :], word.sure)
        if option == "-C":
            walk.folders = [path for path, _ in walk.places(value)]
        elif option == "--work-tree":
            tree = [path for path, _ in walk.places(value)]
    if tree is not None:  # from outside, git goes to its top first
        inside = [here for here in walk.folders if any(os.path.join(here, "").startswith(f"{top}/") for top in tree)]
        walk.folders = inside or tree
    if at < len(words) and words[at].sure:
        _verb(walk, words[at].text, words[at + 1 :], tree)
    walk.folders = folders


def _verb(walk: Walk, verb: str, words: list[Word], tree: list[str] | None) -> None:
    if verb == "checkout":
        found = _checkout(walk, words)
    elif verb == "restore":
        found, options = split(words, "sU", ("--source", "--unified", "--inter-hunk-context", "--pathspec-from-file"))
        letters = [letter for letter, _ in options]
        if ("S" in letters or "--staged" in letters) and "W" not in letters and "--worktree" not in letters:
            return  # the index only
    elif verb == "rm":
        found, options = split(words)
        if any(letter in ("--cached", "--dry-run", "n") for letter, _ in options):
            return
    elif verb == "mv":
        to_last("", moves=True)(walk, words)
        return
    else:
        return
    for word in found:
        _path(walk, word, tree)


def _checkout(walk: Walk, words: list[Word]) -> list[Word]:
    named = [word.text for word in words]
    if "--" in named:
        return words[named.index("--") + 1 :]
    found, options = split(words, "bB", ("--orphan", "--conflict", "--pathspec-from-file"))
    if any(letter in ("b", "B", "--orphan") for letter, _ in options):
        return []
    # Without `--` a word may be a branch, unless no branch could be called so. One alone that is both is a branch to
    # git; among several it wants none that is both.
    if len(found) == 1 and any(_is_branch(folder, found[0].text) for folder in walk.folders):
        return []
    return [
        word
        for word in found
        if word.text == "."
        or word.text.startswith(("./", "../", ":"))
        or any(c in word.text for c in "*?[")
        or any(os.path.lexists(path) for path, _ in walk.places(word))
    ]


def _path(walk: Walk, word: Word, tree: list[str] | None) -> None:
    """A pathspec, in which a glob is one even if the shell was kept from it. `:/x` and `:(top)x` start at the root."""
    text = word.text
    if not text.startswith(":"):
        walk.add(Word(text, word.bare if word.bare.startswith("~") else text, word.sure))
        return
    if text.startswith(":/"):
        text = text[2:]
    elif text.startswith(":(top)"):
        text = text[len(":(top)") :]
    else:
        return  # other magic
    here = walk.folders
    walk.folders = list(dict.fromkeys(root for folder in here for root in (tree or _root(folder))))
    walk.add(Word(text or ".", sure=word.sure))
    walk.folders = here


def _is_branch(folder: str, name: str) -> bool:
    from dibs.places import find_place

    common = find_place(folder).common
    if common is None or "\0" in name:
        return False
    if os.path.isfile(os.path.join(common, "refs", "heads", name)):
        return True
    try:
        with open(os.path.join(common, "packed-refs"), "rb") as file:
            return os.fsencode(f" refs/heads/{name}\n") in file.read(1 << 24)
    except (OSError, ValueError):
        return False


def _root(folder: str) -> list[str]:
    from dibs.places import find_place

    root = find_place(folder).worktree
    return [] if root is None else [root]
