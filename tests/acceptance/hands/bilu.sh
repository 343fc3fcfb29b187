#!/bin/sh
# A worker by document 002: task files board/tasks/*.md, edited under the lock directory storage/lock.
#
# The document has no holder of a task: a claim is TODO -> INPROGRESS, written under the lock; who made it is only in
# the worker's report. A task whose worker died stays INPROGRESS.
#
# Further settings: HAND_TIMEOUT (seconds to wait for the lock, 10), HAND_TASKS and HAND_LOCK (for the other layout).
# Points to die at: bare (directory made, no pid in it), locked, written (status written, lock still there), claimed.
#
# Where the document itself races or misleads:
# - Two who find the same dead pid: the second removes the first one's new lock directory. The pid is read again just
#   before the removal, which narrows the gap and does not close it. HAND_BREAKING=never leaves it to others.
# - A worker that dies between mkdir and the pid file leaves a lock that nobody may ever remove ("never remove
#   otherwise").
# - `trap release EXIT INT TERM HUP` as printed releases on CTRL-C and then goes on writing without the lock, since
#   a shell's trap does not exit. Here the signals exit, and the exit releases.

HAND_PAUSE=${HAND_PAUSE:-0.1}
HAND_TIMEOUT=${HAND_TIMEOUT:-10}
. "${0%/*}/common.sh"

tasks=${HAND_TASKS:-$HAND_DIR/board/tasks}
LOCK_DIR=${HAND_LOCK:-$HAND_DIR/storage/lock}
locked=0

holder_is_dead() { # lock_dir: true only on proof
    pid=$(cat "$1/pid" 2>/dev/null)
    case $pid in '' | *[!0-9]*) return 1 ;; esac
    ! kill -0 "$pid" 2>/dev/null
}

board_lock_acquire() { # lock_dir timeout_seconds
    # Ensure the parent storage directory exists before acquiring.
    mkdir -p "${1%/*}" || return 1
    until=$(($(date +%s) + $2))
    # 1) Attempt mkdir: success is the lock.
    while ! mkdir "$1" 2>/dev/null; do
        # If a pid file exists and that process is not running: remove the lock directory and retry.
        if [ "$HAND_BREAKING" != never ] && holder_is_dead "$1"; then
            dead=$pid
            if [ "$(cat "$1/pid" 2>/dev/null)" = "$dead" ]; then
                note broke lock
                rm -rf "$1"
            fi
            continue
        fi
        # 2) It exists: with timeout 0 fail, else loop with short sleeps until the timeout expires.
        if [ "$(date +%s)" -ge "$until" ]; then
            echo "bilu board: error: lock busy: $1" >&2
            echo "If you are sure no bilu process is running, remove the lock directory." >&2
            return 1
        fi
        sleep "$HAND_PAUSE"
    done
    locked=1
    die_at bare
    # 3) Write metadata inside the lock directory.
    echo $$ >"$1/pid"
    date +%s >"$1/ts"
    echo "bilu board $HAND_NAME" >"$1/cmd"
    die_at locked
}

board_lock_release() { # lock_dir; safe to call several times
    [ "$locked" = 1 ] || return 0
    # A signal in the middle would leave a lock that the exit takes for released.
    trap 'caught=130' INT
    trap 'caught=143' TERM
    trap 'caught=129' HUP
    locked=0
    rm -f "$1/pid" "$1/ts" "$1/cmd"
    rmdir "$1"
    exit_on_signals
    [ -z "$caught" ] || exit "$caught"
}

caught=
exit_on_signals() {
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
}

temporary=
trap 'rm -f "$temporary"; board_lock_release "$LOCK_DIR"' EXIT # a draft goes while the lock is still held
exit_on_signals

survey() { # read-only, no lock: a line `ID STATUS DEPENDENCY…` for each task
    awk '
        function told() { if (id != "") print id, (status == "" ? "TODO" : status) needs }
        FNR == 1 { told(); id = FILENAME; sub(/.*\//, "", id); sub(/\.md$/, "", id); status = needs = section = "" }
        { sub(/\r$/, "") }
        /^# / { section = tolower(substr($0, 3)); gsub(/^[ \t]+|[ \t]+$/, "", section); next }
        section == "status" && status == "" && /[^ \t]/ {
            status = toupper($0); gsub(/[ \t_-]/, "", status); if (status == "CANCELED") status = "CANCELLED"
        }
        section == "depends_on" && match($0, /[A-Za-z0-9._-]+\.md/) {
            needs = needs " " substr($0, RSTART, RLENGTH - 3)
        }
        END { told() }
    ' "$tasks"/*.md
}

next_task() { # from a survey: `claim ID`, `wait` or `nothing`
    awk -v stay="$HAND_STAY" '
        { status[$1] = $2; needs[$1] = ""; for (n = 3; n <= NF; n++) needs[$1] = needs[$1] " " $n; order[NR] = $1 }
        END {
            answer = "nothing"
            for (n = 1; n <= NR; n++) {
                id = order[n]
                if (stay == 1 && status[id] == "INPROGRESS") answer = "wait"
                if (status[id] != "TODO") continue
                answer = "wait"
                met = 1
                count = split(needs[id], list, " ")
                for (m = 1; m <= count; m++) if (status[list[m]] != "DONE") met = 0
                if (met) { print "claim " id; exit }
            }
            print answer
        }'
}

set_status() { # id status: temp file + mv
    file=$tasks/$1.md
    temporary=$tasks/.$1.$$
    cp -p "$file" "$temporary" || fail "cannot write $temporary"
    awk -v status="$2" '
        /^# / { at = (tolower($0) ~ /^# *status[ \t\r]*$/) }
        at && !/^# / && /[^ \t\r]/ { end = /\r$/ ? "\r" : ""; print status end; at = 0; next }
        { print }
    ' "$file" >"$temporary" && mv "$temporary" "$file" || fail "cannot write $file"
}

while :; do
    case $(survey | next_task) in
    nothing) break ;;
    wait) rest; continue ;;
    esac
    # Look again inside the lock: what was seen without it may have changed.
    board_lock_acquire "$LOCK_DIR" "$HAND_TIMEOUT" || exit 1
    answer=$(survey | next_task)
    case $answer in
    claim\ *)
        task=${answer#claim }
        set_status "$task" INPROGRESS
        note claim "$task"
        die_at written
        ;;
    *) task= ;;
    esac
    board_lock_release "$LOCK_DIR"
    if [ -z "$task" ]; then
        rest
        continue
    fi
    not_tired
    die_at claimed
    work
    note end "$task"
    board_lock_acquire "$LOCK_DIR" "$HAND_TIMEOUT" || exit 1
    if survey | grep -q "^$task INPROGRESS"; then
        set_status "$task" DONE
        note 'done' "$task"
    else
        note lost "$task"
    fi
    board_lock_release "$LOCK_DIR"
done
