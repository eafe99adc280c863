#!/bin/bash
# A namespace in a container.
#
#   kafkabus-emulator [OPTION]...   runs it until the container is stopped; the options are those of "kafkabus up"
#   kafkabus-emulator healthy       exits with status 0 if it runs; the health check
#   kafkabus-emulator wait          waits until it runs
set -euo pipefail

readonly microsofts_file=/ServiceBus_Emulator/ConfigFiles/Config.json

healthy() {
    # Without Python, which would take a twentieth of a core all day.
    [[ -e $KAFKABUS_DATA/ready ]] &&
        : 2>/dev/null <"/dev/tcp/127.0.0.1/${KAFKABUS_LISTENER%%=*}" &&
        : 2>/dev/null <"/dev/tcp/127.0.0.1/$KAFKABUS_REDIS_PORT"
}

case ${1:-} in
healthy)
    healthy
    ;;
wait)
    until healthy; do sleep 0.2; done
    ;;
*)
    if [[ -z ${KAFKABUS_ENTITIES:-} && -f $microsofts_file ]]; then
        export KAFKABUS_ENTITIES=$microsofts_file
    fi
    # What an earlier container left says nothing about this one; the processes that it names ended with that container.
    rm -f "$KAFKABUS_DATA/ready" "$KAFKABUS_DATA/state.json"
    exec kafkabus up "$@"
    ;;
esac
