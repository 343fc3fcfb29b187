#!/bin/sh
# An agent that has no MCP and uses the command: sh commands.sh 'THE COMMAND OF DIBS' [WHAT TO DO WITH A TASK]
# Nothing of it lives from one call to the next, so only the pool can keep its leases.
dibs=$1
work=${2:-true}
while :; do
    said=$($dibs claim --json) || {
        case $said in
        *'"team":"over"'*) exit 0 ;;
        esac
        sleep 0.5
        continue
    }
    id=$(printf %s "$said" | sed 's/.*"id":"\([^"]*\)".*/\1/')
    touch "$POOL_NOTES/$DIBS_AGENT claimed $id"
    sh -c "$work" || exit 1
    $dibs done "$id" "by $DIBS_AGENT" || exit 1
done
