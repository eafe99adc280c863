#!/usr/bin/env bash
# Build the images of docker/Dockerfile under the names that the tests run; needs a Docker daemon.
#
# A machine that cannot pull the image that they are based on, but can install Debian's packages, builds one: that needs root
# and debootstrap.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

base=debian:bookworm-slim
docker image inspect "$base" >/dev/null 2>&1 ||
    docker pull --quiet "$base" 2>/dev/null ||
    tools/stand_in_base.sh "$base"
for target in kafkabus kafkabus-emulator; do
    docker build --quiet --network host --file docker/Dockerfile --target "$target" --tag "$target:tests" .
done
# Each change leaves a gigabyte of images without a name behind. The last ones are what the next build begins with.
for title in kafkabus kafkabus-emulator kafkabus-build; do
    docker image prune --force --filter "label=org.opencontainers.image.title=$title" --filter until=2h >/dev/null
done
