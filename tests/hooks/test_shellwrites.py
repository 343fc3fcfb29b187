"""Which paths a shell command certainly writes, and that nothing else is guessed at."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dibs.hooks.shellwords import CLOSE, OPEN, UNREAD, Command, parse
from dibs.hooks.shellwrites import look, writes
from tests.hooks.repository import Repository
from tests.searching import examples

PLAIN = [
    # redirections
    ("echo hi > a", "a"),
    ("echo hi >a", "a"),
    ("echo hi >> a", "a"),
    ("echo hi >| a", "a"),
    ("echo hi &> a", "a"),
    ("echo hi &>> a", "a"),
    ("echo hi >& a", "a"),
    ("echo hi 2> err 1> out", "err out"),
    ("echo hi 2>>err", "err"),
    ("> a", "a"),
    (">a echo hi", "a"),
    ("echo hi 2>&1", ""),
    ("echo hi >&2", ""),
    ("echo hi 2>&-", ""),
    ("exec {fd}> a", "a"),
    ("cat < a", ""),
    ("cat <<< a", ""),
    ("cat 0<&3", ""),
    ("echo 1 2 > a", "a"),
    ("echo hi>a", "a"),
    ("echo a2>b", "b"),
    ("echo hi > 'a b'", "'a b'"),
    ('echo hi > "a b"', "'a b'"),
    ("echo hi > a\\ b", "'a b'"),
    ("echo hi > a'b'\"c\"d", "abcd"),
    ("echo hi > $'ab'", "ab"),
    ("echo '> a'", ""),
    ('echo "> a"', ""),
    ("echo \\> a", ""),
    ("echo hi # > a", ""),
    ("echo a#b > c", "c"),
    ("echo hi > a > b", "a b"),
    ("echo hi > /dev/null", "/dev/null"),
    ("echo hi \\\n > a", "a"),
    ("echo hi >\\\n a", "a"),
    # what is not certain
    ("echo hi > $F", ""),
    ("echo hi > ${F}", ""),
    ('echo hi > "$F"', ""),
    ("echo hi > $(name)", ""),
    ("echo hi > `name`", ""),
    ("echo hi > a$F", ""),
    ("echo hi > '$F'", "'$F'"),
    ("echo hi > \\$F", "'$F'"),
    ("echo hi > $'a\\tb'", "'a\tb'"),
    ("rm $F a", "a"),
    ("ls | xargs rm", ""),
    ("find . -name x -delete", ""),
    ("find . -exec rm {} +", ""),
    ("git apply x.patch", ""),
    ("patch < x", ""),
    ('python -c \'open("a", "w")\'', ""),
    ("make clean", ""),
    ("$RM a", ""),
    # programs
    ("ls | tee a", "a"),
    ("ls | tee -a a b", "a b"),
    ("ls | tee --append --output-error=warn a", "a"),
    ("ls | tee -", "-"),
    ("sed -i s/a/b/ x y", "x y"),
    ("sed -i.bak s/a/b/ x", "x"),
    ("sed --in-place s/a/b/ x", "x"),
    ("sed --in-place=.bak -e s/a/b/ x", "x"),
    ("sed -Ei 's/a b/c/' x", "x"),
    ("sed -ne p -i x", "x"),
    ("sed -i -e s/a/b/ -e s/c/d/ x", "x"),
    ("sed -i -f script x", "x"),
    ("sed -i '' s/a/b/ x", "x"),
    ("sed -i '' -e s/a/b/ x", "x"),
    ("sed -i -- s/a/b/ x", "x"),
    ("sed -n p x", ""),
    ("sed s/-i/b/ x", ""),
    ("sed -e s/a/b/ x > y", "y"),
    ("perl -i -pe s/a/b/ x", "x"),
    ("perl -pi -e s/a/b/ x y", "x y"),
    ("perl -pi.bak -e s/a/b/ x", "x"),
    ("perl -0pi -e s/a/b/ x", "x"),
    ("perl -0777 -i.bak -pe s/a/b/ x", "x"),
    ("perl -i script.pl x", "x"),
    ("perl -pe s/a/b/ x", ""),
    ("perl -Mi -e 1 x", ""),
    ("ruby -i -pe '$_.upcase!' x", "x"),
    ("mv x y", "x y"),
    ("mv x y dir", "x y dir/x dir/y"),
    ("mv x dir/", "x dir/x"),
    ("mv x there", "x there/x"),
    ("mv -T x there", "x there"),
    ("mv -t dir x y", "x y dir/x dir/y"),
    ("mv --target-directory=dir x", "x dir/x"),
    ("mv -f -- -x y", "-x y"),
    ("mv $x y", "y"),
    ("mv x $y", "x"),
    ("mv x", ""),
    ("cp x y", "y"),
    ("cp -r x there", "there/x"),
    ("cp -a x/. there", "there"),
    ("cp -r x/. .", "."),
    ("cp -r x/. there/deep/", "there/deep"),
    ("cp x/. there", ""),
    ("cp -t there x sub/y", "there/x there/y"),
    ("cp x y z/", "z/x z/y"),
    ("rm x", "x"),
    ("rm -rf x y", "x y"),
    ("rm -- -x", "-x"),
    ("rm there/*.py", "there/*.py"),
    ("rm there/[^a]*", "'there/[!a]*'"),
    ("rm x.{py,pyc}", "x.py x.pyc"),
    ("rm {a,b}/{c,d}", "a/c a/d b/c b/d"),
    ("rm {a}", "'{a}'"),
    ("rm '{a,b}'", "'{a,b}'"),
    ("rm \\{a,b\\}", "'{a,b}'"),
    ("unlink x", "x"),
    ("shred -n 3 -u x", "x"),
    ("touch x y", "x y"),
    ("touch -r ref x", "x"),
    ("touch -d '1 day ago' x", "x"),
    ("truncate -s 0 x", "x"),
    ("truncate --size=0 x", "x"),
    ("truncate --size 0 x", "x"),
    ("install -m 644 x y", "y"),
    ("install -Dm755 x there", "there/x"),
    ("install -d x", ""),
    ("install -t there x", "there/x"),
    ("ln -sf x y", "y"),
    ("ln -s ../x", "x"),
    ("ln -f x there", "there/x"),
    ("dd if=x of=y bs=1", "y"),
    ("dd if=x", ""),
    # git
    ("git checkout -- x y", "x y"),
    ("git checkout HEAD~1 -- x", "x"),
    ("git checkout main", ""),
    ("git checkout -b x", ""),
    ("git checkout -- .", "."),
    ("git checkout .", "."),
    ("git checkout HEAD ./x", "x"),
    ("git -C there checkout -- x", "there/x"),
    ("git -c a=b checkout -- x", "x"),
    ("git --no-pager checkout -- x", "x"),
    ("git --work-tree=/w checkout -- x", "/w/x"),
    ("git --work-tree /w checkout -- x", "/w/x"),
    ("git --git-dir .git restore x", "x"),
    ("git --git-dir=.git restore x", "x"),
    ("git --git-dir=.git --work-tree=. restore x", "x"),
    ("git --git-dir", ""),
    ("git checkout there", "there"),
    ("git checkout HEAD there", "there"),
    ("git checkout HEAD there main", "there"),
    ("git checkout -b there", ""),
    ("git checkout --orphan there", ""),
    ("git checkout HEAD '*.py'", "*.py"),
    ("git -C there checkout there", ""),
    ("git checkout -- ':(glob)x'", ""),
    ("git restore x", "x"),
    ("git restore --source=HEAD x", "x"),
    ("git restore -s HEAD -- x", "x"),
    ("git restore --staged x", ""),
    ("git restore -SW x", "x"),
    ("git rm x", "x"),
    ("git rm -r --cached x", ""),
    ("git rm -n x", ""),
    ("git mv x y", "x y"),
    ("git mv -f x there", "x there/x"),
    ("git reset --hard", ""),
    ("git commit -am x", ""),
    # lists, pipes, subshells, keywords
    ("true; rm x", "x"),
    ("true && rm x || rm y", "x y"),
    ("true\nrm x", "x"),
    ("rm x & rm y", "x y"),
    ("ls |& tee x", "x"),
    ("(rm x)", "x"),
    ("( cd there && rm x ); rm y", "there/x y"),
    ("{ rm x; }", "x"),
    ("{ cd there; }; rm x", "there/x"),
    ("! rm x", "x"),
    ("if rm x; then rm y; else rm z; fi", "x y z"),
    ("for f in a b; do rm x; done", "x"),
    ("for f in a b; do rm $f; done", ""),
    ("while true; do rm x; done > y", "x y"),
    ("case $a in b) rm x;; c|d) rm y;; esac", "x y"),
    ("f() { rm x; }; f", "x"),
    ("function f { rm x; }; f", "x"),
    ("function f() { rm x; }; f", "x"),
    ("function f\n{ rm x; }; f", "x"),
    ("case x in (x) rm x;; (y) rm y;; esac", "x y"),
    ("for ((i=0; i<2; i++)) { rm x; }", "x"),
    ("for ((i=0; i<2; i++)); do rm x; done", "x"),
    ("((rm x) )", "x"),
    ("((rm x); rm y)", "x y"),
    ("$((rm x) )", "x"),
    ("(( (a) > b )) && rm x", "x"),
    ("(( $(rm x) > 1 ))", "x"),
    ("echo $(( $(rm x) + 1 )) > y", "x y"),
    ('[[ "]]" == x ]] || rm x', "x"),
    ("[[ $(rm x) > y ]]", "x"),
    ("[[ a =~ ^[[:space:]]*(b|c)$ ]] && rm x", "x"),
    ("a=($(rm x) y)", "x"),
    ("a=(`rm x`); rm y", "x y"),
    ("echo ${X//'\"'/x}; rm x", "x"),
    ("echo ${X%%'}'*}; rm x", "x"),
    ("echo \"${X%%'}'*}\"; rm x", "x"),
    ('echo "${X:-it\'s}"; rm x', "x"),
    ('echo "${X:-$(rm x)}"', "x"),
    ("exec 3<> x", "x"),
    ("<> x", "x"),
    ("cat {fd}<>x", "x"),
    ("rm $'x'", "x"),
    ("rm $'it\\'s'", '"it\'s"'),
    ("rm $'\\x64\\144\\\\'", "'dd\\'"),
    ("rm $'\\u00e9'", "é"),
    ("rm $'\\xe9'", ""),
    ("rm $'\\cx' x", "x"),
    ("echo $'it\\'s' > x", "x"),
    ("rm hel{d..d}.py", "held.py"),
    ("rm x{1..3}", "x1 x2 x3"),
    ("rm x{01..10..5}", "x01 x06"),
    ("rm x{c..a}", "xc xb xa"),
    ("rm x{1..900}", ""),
    ("rm x{a..}", "'x{a..}'"),
    ("rm {x,y{1..2}}", "x y1 y2"),
    ("rm {x{a,b}", "'{xa' '{xb'"),
    ("rm '*.py'", "'[*].py'"),
    ('rm "a?"*', "'a[?]*'"),
    ("rm \\*", "'[*]'"),
    ("> '*'", "'[*]'"),
    ("a=(rm x); echo ${a[@]} > y", "y"),
    ("[[ a > b ]] && rm x", "x"),
    ("if [[ a > b ]]; then rm x; fi", "x"),
    ("(( a > b )) && rm x", "x"),
    ("echo $(( a > b ))", ""),
    ("[ -f a ] && rm x", "x"),
    ("y=$(rm x)", "x"),
    ('echo "$(rm x)"', "x"),
    ("echo `rm x`", "x"),
    ("echo '$(rm x)'", ""),
    ("echo $(echo $(rm x) > y)", "x y"),
    ("diff <(rm x) y", "x"),
    ("ls > >(tee x)", "x"),
    ("echo ${a:-$(rm x)}", "x"),
    ("rm x)", "x"),
    ("rm @(a|b)", ""),
    # directories
    ("cd there && rm x", "there/x"),
    ("cd there; rm x; cd ..; rm y", "there/x there/../y"),
    ("cd /abs && rm x", "/abs/x"),
    ("cd $D && rm x && rm /abs", "/abs"),
    ('cd "$(git rev-parse --show-toplevel)" && rm x', ""),
    ("cd - && rm x", ""),
    ("cd t*e && rm x", ""),
    ("pushd there && rm x && popd && rm y", "there/x"),
    ("cd -- there && rm x", "there/x"),
    ("y=$(cd there && rm x) && rm z", "there/x z"),
    ("cd gone; rm x", "gone/x x"),
    ("cd gone && rm x", "gone/x"),
    ("cd gone &&\n rm x\nrm y", "gone/x gone/y y"),
    ("cd gone && (rm x)\nrm y", "gone/x gone/y y"),
    ("cd gone || rm x", "gone/x x"),
    ("cd gone 2>/dev/null || true; sed -i s/a/b/ x", "/dev/null gone/x x"),
    ("cd gone || exit 1; rm x", "gone/x"),
    ("if cd gone; then rm x; else rm y; fi", "gone/x gone/y y"),
    ("mkdir -p gone; cd gone; rm x", "gone/x"),
    ("(cd gone; rm x); rm y", "gone/x x y"),
    ("cd there; rm x", "there/x"),
    # runners and shells in shells
    ("time -p rm x", "x"),
    ("timeout --signal KILL 5s rm x", "x"),
    ("timeout --signal=KILL 5s rm x", "x"),
    ("env --unset X rm x", "x"),
    ("env --chdir=there rm x", ""),
    ("nice --adjustment 5 rm x", "x"),
    ("sudo --user bob rm x", "x"),
    ("bash <<< 'rm x'", "x"),
    ('bash <<< "rm $x"', ""),
    ("bash -s -- arg <<E\nrm x\nE", "x"),
    ("bash --rcfile y -c 'rm x'", "x"),
    ("bash - <<E\nrm x\nE", "x"),
    ("bash script <<E\nrm x\nE", ""),
    ("A=b C=d rm x", "x"),
    ("A=b", ""),
    ("sudo rm x", "x"),
    ("sudo -u bob -E rm x", "x"),
    ("ls | sudo tee x", "x"),
    ("env A=b rm x", "x"),
    ("env -i -u A B=c rm x", "x"),
    ("env -C there rm x", ""),
    ("command rm x", "x"),
    ("command -v rm x", ""),
    ("\\rm x", "x"),
    ("/bin/rm x", "x"),
    ("nohup rm x &", "x"),
    ("timeout -k 5 10 rm x", "x"),
    ("nice -n 5 rm x", "x"),
    ("time rm x", "x"),
    ("exec rm x", "x"),
    ("bash -c 'rm x > y'", "x y"),
    ("bash -lc 'cd there && rm x'; rm y", "there/x y"),
    ("sh -ec 'rm x'", "x"),
    ('bash -c "rm x"', "x"),
    ('bash -c "rm $x"', ""),
    ("bash -c \"bash -c 'rm x'\"", "x"),
    ("bash script x", ""),
    ("eval 'rm x'", "x"),
    ("eval rm x", "x"),
    ("zsh -c 'rm x'", "x"),
    ("echo bash -c 'rm x'", ""),
    ("echo rm x", ""),
    ("grep 'rm x' y", ""),
    # here-documents
    ("cat > x <<EOF\nrm y\nEOF\n", "x"),
    ("cat <<EOF > x\nrm y\nEOF\nrm z", "x z"),
    ("cat <<'E O F' > x\nrm y\nE O F\nrm z", "x z"),
    ("cat <<-EOF > x\n\trm y\n\tEOF\nrm z", "x z"),
    ("cat <<A <<B > x\nrm y\nA\nrm w\nB\nrm z", "x z"),
    ("cat > x <<EOF\nrm y\n EOF", "x"),
    ("cat > x <<EOF && rm w\nrm y\nEOF", "x w"),
    ("python - <<EOF\nopen('y', 'w')\nEOF", ""),
    ("bash <<EOF\nrm x\nEOF", "x"),
    ("y=$(cat <<EOF\n> x\nEOF\n); rm z", "z"),
    ("apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: x\n*** Move to: y\n*** End Patch\nEOF", "x y"),
    ("cd there && apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: x\n*** End Patch\nEOF", "there/x"),
    ("cat <<E\n$(rm x) `rm y`\nE", "x y"),
    ("cat <<'E'\n$(rm x) `rm y`\nE", ""),
    ('cat <<E\n\\$(rm x) "$(rm y)\nE', "y"),
    ("cd gone && cat <<E\n$(rm x)\nE", "gone/x"),
    # left unfinished
    ("rm x 'y", "x"),
    ('rm x "y', "x"),
    ("rm x $(rm y", "x y"),
    ("rm x `rm y", "x y"),
    ("rm x >", "x"),
    ("rm x > ;", "x"),
    ("cat > x <<EOF\nrm y", "x"),
    ("rm x \\", "x"),
    ("", ""),
    ("((", ""),
    ("[[ x", ""),
    ("${", ""),
    ("<<", ""),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shell")
    (made / "there").mkdir()
    return made


@pytest.mark.parametrize(("command", "expected"), PLAIN, ids=[repr(command) for command, _ in PLAIN])
def test_a_command_writes(folder: Path, command: str, expected: str) -> None:
    import shlex

    wanted = {str(folder / path) if path[0] != "/" else path for path in shlex.split(expected)}
    found = {path.removesuffix("/.") if path.endswith("/.") else path for path in writes(command, str(folder))}
    assert {path.replace("/./", "/").rstrip("/") for path in found} == {str(path) for path in wanted}


def test_home_is_written_out_and_other_peoples_homes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert writes("rm ~/x ~bob/y '~/z'; cd; rm w", "/r") == ["/home/me/x", "/r/~/z", "/home/me/w"]


def test_a_program_with_its_arguments_needs_no_shell() -> None:
    assert writes(["rm", "-f", "a b", "$c"], "/r") == ["/r/a b", "/r/$c"]
    assert writes(["bash", "-lc", "rm x"], "/r") == ["/r/x"]
    assert writes([], "/r") == []


def test_too_many_alternatives_are_left_alone() -> None:
    assert writes("rm " + "{a,b}" * 12, "/r") == []


def test_the_magic_of_pathspecs_starts_at_the_root(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    for word in (":/x", ":(top)x", "':(top)x'"):
        word = word if word[0] != ":" or "(" not in word else f'"{word}"'
        assert writes(f"git checkout -- {word}", str(tmp_path / "sub")) == [str(tmp_path / "x")]
        assert writes(f"git checkout {word}", str(tmp_path / "sub")) == [str(tmp_path / "x")]
    assert writes("git restore ':!x' ':(exclude)y'", str(tmp_path)) == []


def test_one_word_that_is_a_branch_is_no_path(repo: Repository) -> None:
    folder = str(repo.main)
    assert writes("git checkout a.py", folder) == [f"{folder}/a.py"]
    (repo.main / "two").write_text("")
    assert writes("git checkout two", folder) == []
    assert writes("git checkout HEAD two", folder) == [f"{folder}/two"]
    repo.git("pack-refs", "--all")
    assert writes("git checkout two", folder) == []
    assert writes("git checkout HEAD src", folder) == [f"{folder}/src"]


IN_DOUBT = [
    'cd "$X"; rm a',
    "cd -; rm a",
    "cd - && echo x > a",
    "cd $(pwd)/x && sed -i s/a/b/ a",
    "popd; touch a",
    "cd a*; mv b c",
    'git -C "$X" checkout -- a',
    "for d in *; do (cd $d && rm a); done",
    "$(" * 50 + "rm a" + ")" * 50,
    "( " * 50 + "rm a" + " )" * 50,
    "".join(f"cd {name} || " for name in "abcdefghijklm") + "rm a",
]
UNNAMED = [
    'rm "$F"',
    "echo x > $F",
    "cp a ${B}",
    'sed -i s/a/b/ "$f"',
    "tee ~bob/x",
    "rm {0..99}",
    'bash -c "$X"',
    "eval $X",
]
CERTAIN = [
    "cd -; ls",
    'cd "$X" && make',
    "rm a",
    "rm ''",
    "cd -; rm /a",
    'cd "$X"; cat b > /dev/null',
    "echo $X",
    "$CMD a",
    "(((a)))",
]


@pytest.mark.parametrize("command", IN_DOUBT)
def test_what_cannot_be_known_is_said(command: str) -> None:
    walk = look(command, "/r")
    assert walk.doubt


@pytest.mark.parametrize("command", UNNAMED)
def test_what_a_variable_names_is_said_apart(command: str) -> None:
    walk = look(command, "/r")
    assert (walk.found, walk.doubt) == ([], "")
    assert walk.unnamed


@pytest.mark.parametrize("command", CERTAIN)
def test_nothing_is_in_doubt_about_a_command_that_writes_where_it_says(command: str) -> None:
    walk = look(command, "/r")
    assert (walk.doubt, walk.unnamed) == ("", "")


def test_shells_started_by_shells_very_deep_are_in_doubt() -> None:
    command = "rm a"
    for _ in range(12):
        command = f"bash -c {shlex.quote(command)}"
    assert look(command, "/r").doubt


LONG = {
    "rm {": "'rm ' + '{' * 200000",
    "rm {a,": "'rm ' + '{a,' * 50000",
    "rm {d..d}": "'rm ' + ('{d..d}' * 600 + ' ') * 290",
    "assignments": "'X=1 ' * 200000 + 'rm x'",
    "sudo": "'sudo ' * 50000 + 'rm x'",
    "escaped quotes": "'rm x \"' + '\\\\\"' * 500000 + '\"'",
    "escapes": "'rm x ' + '\\\\a' * 500000",
    "variables": "'rm x \"' + '$a b' * 250000 + '\"'",
    "keywords": "'time ' * 100000 + '((1)) ' * 80000 + 'rm x'",
    "arithmetic": "'((a) ' * 200000",
    "substitutions": "'(($((' * 200000",
    "ansi": "'rm x $' + chr(39) + '\\\\n' * 500000 + chr(39)",
    "folders": "'cd a;' * 10000 + 'rm x'",
    "conditions": "'[[ a ' * 200000",
    "parameters": "'\"${a:-' * 150000",
    "documents": "'cat <<A ' * 100000 + chr(10) + '$(' * 50000",
}


@pytest.mark.parametrize("what", LONG)
def test_a_long_command_takes_no_longer_than_its_length(what: str) -> None:
    """What grew with the square of the length took minutes."""
    code = f"from dibs.hooks.shellwrites import LONGEST, writes; c = {LONG[what]}; writes(c, '/r')"
    subprocess.run([sys.executable, "-c", f"{code}; assert len(c) <= LONGEST"], check=True, timeout=15)


@pytest.mark.parametrize("nest", ["$(", "(", "`", '"$(', "${", "<(", "((", "{ ", "bash -c '", "eval "])
def test_deep_nesting_is_given_up(nest: str) -> None:
    writes(nest * 5000 + "rm x", "/r")


def test_a_long_here_document_is_read_in_no_time() -> None:
    text = "> x\n" * 200_000
    assert writes(f"cat > y <<EOF\n{text}EOF\nrm z", "/r") == ["/r/y", "/r/z"]


SHELLY = st.text(alphabet="ab ./~-{},[]*?\\'\"`$()<>|&;#!=\n\t0rm", max_size=60)
PIECES = [
    *("rm ", "x ", "> ", "<<E ", "\nE\n", "$(", ")", "`", "'", '"', "\\", ";", "|", "&", "{a,", "}", "cd ", "sed -i "),
    *("bash -c ", "mv ", "git checkout -- ", "((", "[[ ", "${", "$", "#", "env ", "timeout ", "-t", "--", "=", "\n"),
]
BITS = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


@given(st.one_of(SHELLY, BITS, st.text(max_size=40)))
@examples(150)
@example("\\")
@example("$'\\")
@example("{fd}>")
@example("a=(")
def test_nothing_raises_and_answers_are_absolute(command: str) -> None:
    depth = 0
    for item in parse(command):
        if isinstance(item, Command):
            assert all(len(word.text) == len(word.bare) for word in (*item.words, *item.outputs))
        else:
            depth += {OPEN: 1, CLOSE: -1, UNREAD: 0}[item]
            assert depth >= 0
    assert depth == 0
    for path in writes(command, "/r"):
        assert path.startswith("/")
        assert "\0" not in path
