# shellcheck shell=sh
# What the five hand workers share: their settings, their report, their pauses and the places where a test lets them
# die. The protocols themselves are in the scripts; nothing here touches a board.
#
# Settings, all from the environment:
#   HAND_DIR       the board's directory                        HAND_NAME      the worker
#   HAND_REPORT    the worker's own report, appended to         HAND_WORK      seconds of "work" on a task
#   HAND_PAUSE     seconds between tries                        HAND_RETRIES   tries of a document that counts them
#   HAND_PATIENCE  seconds without a claim after which the worker gives up with exit status 75
#   HAND_STAY      1: stay until every task is closed; otherwise leave when no task is waiting to be claimed
#   HAND_BREAKING  never: leave stale locks to others; otherwise the document's rule
#   HAND_DIE       POINT or POINT:N: die by SIGKILL at the Nth visit of a point that the script names
#
# The report has a line for each event, `WORD SUBJECT NANOSECONDS`. `claim` is written after the claim took effect and
# `end` before it is given up, so two intervals that overlap prove two holders. `done` follows a finish that was
# written; `lost` is a claim that turned out to be somebody else's by then; `broke` is a stale lock removed.

set -u

: "${HAND_DIR:?}" "${HAND_NAME:?}" "${HAND_REPORT:?}"
HAND_WORK=${HAND_WORK:-0.003}
HAND_PATIENCE=${HAND_PATIENCE:-60}
HAND_STAY=${HAND_STAY:-0}
HAND_BREAKING=${HAND_BREAKING:-document}
HAND_DIE=${HAND_DIE:-}

die_point=${HAND_DIE%%:*}
die_left=1
case $HAND_DIE in *:*) die_left=${HAND_DIE#*:} ;; esac

note() { # word subject
    printf '%s %s %s\n' "$1" "$2" "$(date +%s%N)" >>"$HAND_REPORT"
}

fail() {
    printf '%s: error: %s\n' "$HAND_NAME" "$1" >&2
    exit 1
}

dies_at() { # point: true if the test wants the end here
    [ "$1" = "$die_point" ] || return 1
    die_left=$((die_left - 1))
    [ "$die_left" -le 0 ]
}

die() { # point
    note died "$1"
    kill -KILL $$
}

die_at() { # point; never in a subshell, which would outlive the worker
    if dies_at "$1"; then die "$1"; fi
}

work() {
    sleep "$HAND_WORK"
}

awake_since=$(date +%s)

not_tired() { # a claim has been made
    awake_since=$(date +%s)
}

rest() { # nothing to claim at the moment, but there may be soon
    if [ $(($(date +%s) - awake_since)) -ge "$HAND_PATIENCE" ]; then
        printf '%s: nothing could be claimed for %s s\n' "$HAND_NAME" "$HAND_PATIENCE" >&2
        exit 75
    fi
    sleep "$HAND_PAUSE"
}
