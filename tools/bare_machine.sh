#!/usr/bin/env bash
# Run commands on a copy of this repository in a Debian that has Python, Java and make, and nothing else: no Redis, no compiler,
# no Docker, no git. It is made by debootstrap, and kept in the user's cache folder.
#
# Usage: tools/bare_machine.sh [SUITE [COMMAND]]      (SUITE: trixie by default; COMMAND: what `make test-all` runs there)
#
# Needs root and debootstrap; without them, or without a mirror of the suite, it says so in one line, and succeeds unless the
# variable CI is set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suite=${1:-trixie}
command=${2:-"make venv && make test-fast && make test-installed"}

left_out() { # say in one line why nothing is run: REASON
    echo "a bare Debian ($suite) is not tried here: $1"
    [[ -z ${CI:-} ]] || exit 1
    exit 0
}

((EUID == 0)) || left_out 'that needs root'
command -v debootstrap >/dev/null || left_out 'debootstrap is not installed'

cache=${KAFKABUS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kafkabus}/matrix
base=$cache/bare-$suite
scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT

make_base() { # the Debian, without anything of the repository
    mkdir -p "$cache"
    debootstrap --variant=minbase --include=python3,python3-venv,make,default-jre-headless \
        "$suite" "$scratch/base" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$scratch/log" 2>&1 || {
        left_out "debootstrap failed: $(tail -n 1 "$scratch/log")"
    }
    rm -rf "$scratch"/base/var/cache/apt/archives/*.deb "$scratch"/base/var/lib/apt/lists/* "$scratch"/base/usr/share/{doc,man,locale}
    chroot "$scratch/base" useradd --create-home developer
    # Another run may have been faster.
    mv --no-target-directory "$scratch/base" "$base" 2>/dev/null || [[ -d $base ]]
}

[[ -d $base ]] || make_base

root=$scratch/root
cp --archive --reflink=auto "$base" "$root"
# What this machine trusts, and where it finds packages and names.
bundle=/etc/ssl/of-the-machine.pem
install -D --mode 644 "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$root$bundle"
cp --dereference /etc/resolv.conf /etc/hosts "$root/etc/"
[[ ! -f /etc/pip.conf ]] || cp /etc/pip.conf "$root/etc/"
mkdir "$root/home/developer/kafkabus"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [[ ! -e $file ]] || printf '%s\0' "$file"
done | tar --create --null --files-from - | tar --extract --directory "$root/home/developer/kafkabus"
chroot "$root" chown --recursive developer: /home/developer/kafkabus

variables=(HOME=/home/developer PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8
    PIP_CERT=$bundle SSL_CERT_FILE=$bundle REQUESTS_CA_BUNDLE=$bundle)
for name in CI PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_DEFAULT_TIMEOUT UV_DEFAULT_INDEX UV_INDEX KAFKABUS_MAVEN_REPOSITORY \
    http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [[ -z ${!name:-} ]] || variables+=("$name=${!name}")
done

# Processes and mounts end with the namespace that they are in.
unshare --mount --pid --fork --kill-child /bin/bash -euo pipefail -c '
    root=$1 command=$2; shift 2
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --make-rslave "$root/dev"
    exec chroot --userspec developer:developer "$root" /usr/bin/env --ignore-environment "$@" /bin/bash -c "
        cd /home/developer/kafkabus
        python3 --version
        for missing in gcc git docker redis-server valkey-server luacheck; do
            ! command -v \$missing || { echo \"\$missing is there\"; exit 1; }
        done
        $command"
' bare "$root" "$command" "${variables[@]}"
