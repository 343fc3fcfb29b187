# board_lock.sh: the lock directory of a board, for POSIX sh (tested in dash and bash). Printed by `dibs shell-lib`.
#
#   . ./board_lock.sh
#   LOCK_DIR=.bilu/storage/lock
#   trap 'board_lock_release "$LOCK_DIR"' EXIT
#   trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM
#   board_lock_acquire "$LOCK_DIR" 10 || exit 1
#   ... write files ...
#   board_lock_release "$LOCK_DIR"
#
# board_lock_acquire DIR TIMEOUT   0: held. 1: busy for TIMEOUT seconds (0: do not wait), or it cannot be made; says so.
# board_lock_release DIR           0: not held by us any more. May be called any number of times.
#
# Traps. Set them before the acquire. A handler that only releases, as in
#   trap 'board_lock_release "$LOCK_DIR"' EXIT INT TERM HUP
# does not end a script: after Ctrl-C it would go on without the lock. Hence the `exit` lines above; the EXIT trap then
# releases. A background job of a script starts with INT ignored, and no trap can change that: end it with TERM. bash
# now and then misses an INT that comes while it waits for a command (measured: 1 in 100, bash 5.2): press again.
#
# In the directory: `pid` (of the shell process that holds it: in a subshell the subshell's own, not $$), `ts`, `cmd`
# ($BOARD_LOCK_CMD if that is set, else $0).
#
# Dead holders. When `kill -0 PID` says "no such process" the lock is removed, also with TIMEOUT 0. Every other answer
# (it runs, it belongs to somebody else, there is no pid, it is not a number) leaves it alone.
#
# Two breakers of one dead lock are kept apart in that directory itself. A breaker enters it with `cd`, so that it acts
# on this directory whatever the path comes to name; there it reads the pid, and makes the symbolic link `break.1` to
# its own pid, which exactly one can. If that breaker dies, the next one makes `break.2`, and so on; links are never
# removed but with the directory. Who made the last link sees through the path that the link is there, and becomes the
# process that renames the directory away (`exec mv`), so that its pid in the link is that of the rename itself. dibs
# breaks by the same steps, so shells and dibs respect each other. This needs symbolic links that can be made only once,
# and pids of one machine and one container. It does not protect from a worker that removes a dead lock without a link.
#
# What a SIGKILL leaves: between `mkdir` and the writing of `pid` (a millisecond) a lock without a pid, which nobody
# removes by himself; this is why dibs builds its own beforehand. A breaker whose pid is in use again at once looks
# alive until that process ends. All else is a dead lock, or a directory `.NAME.dibs-...` that nothing reads.

_board_lock_held=  # the lock that we hold, or are about to, with its whole path
_board_lock_given= # as the caller called it: a relative name must mean the same after a `cd`

# The pid of this very shell process; $$ would be that of the main shell, in its subshells and background jobs too.
_board_lock_self() {
    _board_lock_me=$(trap '' INT TERM HUP; exec sh -c 'echo "$PPID"')
}

# _board_lock_dead PID: proof that there is no such process.
_board_lock_dead() {
    case $1 in '' | 0* | *[!0-9]*) return 1 ;; esac
    case $(LC_ALL=C; export LC_ALL; kill -0 "$1" 2>&1) in
        *[Nn]'o such process'*) return 0 ;;
    esac
    return 1
}

_board_lock_target() { # NAME: what a symbolic link contains
    _board_lock_line=$(LC_ALL=C ls -ld "$1" 2>/dev/null) || return 1
    case $_board_lock_line in
        *' -> '*) printf '%s\n' "${_board_lock_line##* -> }" ;;
        *) return 1 ;;
    esac
}

# _board_lock_break DIR GONE: rename the dead lock DIR to GONE, if we are the one to do so.
_board_lock_break() (
    trap '' INT TERM HUP
    unset CDPATH
    cd -P "$1" 2>/dev/null || exit 1
    _pid=
    { read -r _pid <pid; } 2>/dev/null || [ -n "$_pid" ] || exit 1
    _board_lock_dead "$_pid" || exit 1
    _n=1
    while _breaker=$(_board_lock_target "break.$_n"); do
        _board_lock_dead "${_breaker%%[!0-9]*}" || exit 1
        _n=$((_n + 1))
    done
    _board_lock_self
    ln -s "$_board_lock_me" "break.$_n" 2>/dev/null || exit 1
    [ "$(_board_lock_target "$1/break.$_n")" = "$_board_lock_me" ] || exit 1
    exec mv "$1" "$2" 2>/dev/null
)

# _board_lock_make DIR PID: 0 with DIR made and filled. Ctrl-C waits until both is done.
_board_lock_make() (
    trap '' INT TERM HUP
    mkdir "$1" 2>/dev/null || exit 1
    echo "$2" >"$1/pid"
    date +%s >"$1/ts" 2>/dev/null
    printf '%s\n' "$3" >"$1/cmd"
    exit 0
)

# _board_lock_remove DIR GONE: out of the way in one step. Removing file after file would, when killed, leave a lock
# without a pid.
_board_lock_remove() (
    trap '' INT TERM HUP
    mv "$1" "$2" || exit 1
    rm -rf "$2"
)

_board_lock_away() { # DIR: a name beside it, for what is moved out of the way
    _board_lock_gone=${1%/*}/.${1##*/}.dibs-$_board_lock_me-gone
}

board_lock_acquire() {
    _board_lock_dir=${1%/}
    case $_board_lock_dir in /*) ;; *) _board_lock_dir=$PWD/$_board_lock_dir ;; esac
    _board_lock_left=$((${2:-10} * 10))
    _board_lock_lost=0
    _board_lock_self
    _board_lock_away "$_board_lock_dir"
    mkdir -p "${_board_lock_dir%/*}" || return 1
    # From here on the trap may find something to give back.
    _board_lock_held=$_board_lock_dir
    _board_lock_given=$1
    while ! _board_lock_make "$_board_lock_dir" "$_board_lock_me" "${BOARD_LOCK_CMD:-$0}"; do
        if [ -e "$_board_lock_dir" ] || [ -h "$_board_lock_dir" ]; then
            _board_lock_lost=0
        else
            _board_lock_lost=$((_board_lock_lost + 1)) # it went away meanwhile, or it cannot be made at all
            if [ "$_board_lock_lost" -gt 20 ]; then
                echo "error: cannot create lock: $_board_lock_dir" >&2
                _board_lock_held=
                return 1
            fi
            continue
        fi
        if _board_lock_break "$_board_lock_dir" "$_board_lock_gone"; then
            rm -rf "$_board_lock_gone"
            continue
        fi
        if [ "$_board_lock_left" -le 0 ]; then
            _board_lock_held=
            echo "error: lock busy: $_board_lock_dir" >&2
            echo "If you are sure no bilu process is running, remove the lock directory." >&2
            return 1
        fi
        if sleep 0.1 2>/dev/null; then
            _board_lock_left=$((_board_lock_left - 1))
        else
            sleep 1
            _board_lock_left=$((_board_lock_left - 10))
        fi
    done
    return 0
}

board_lock_release() {
    [ -n "$_board_lock_held" ] && [ "$1" = "$_board_lock_given" ] || return 0
    _board_lock_self
    _board_lock_pid=
    { read -r _board_lock_pid <"$_board_lock_held/pid"; } 2>/dev/null || :
    if [ "$_board_lock_pid" = "$_board_lock_me" ]; then
        _board_lock_away "$_board_lock_held"
        _board_lock_remove "$_board_lock_held" "$_board_lock_gone" || return 1
    fi
    _board_lock_held=
    return 0
}
