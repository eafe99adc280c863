#!/bin/bash
# Exit with status 0 if the `kafkabus serve` of this container is ready; the health check.
set -euo pipefail

[[ $KAFKABUS_HTTP != off ]] || exit 0
exec 3<>"/dev/tcp/127.0.0.1/${KAFKABUS_HTTP##*:}"
printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
read -r _ status _ <&3
[[ $status == 200 ]]
