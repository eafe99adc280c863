#!/usr/bin/env bash
# Import a Debian of this machine's package archive under the name of the image that docker/Dockerfile builds on.
#
# For machines that reach package registries, but no registry of images. Needs root, debootstrap and a Docker daemon.
# The image trusts the certificates that this machine trusts.
#
# Usage: tools/stand_in_base.sh [IMAGE]      (IMAGE: debian:bookworm-slim by default)
set -euo pipefail

image=${1:-debian:bookworm-slim}
if docker image inspect "$image" >/dev/null 2>&1; then
    exit
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

debootstrap --variant=minbase bookworm "$root" >&2
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*
if [[ -f /etc/apt/sources.list.d/debian.sources ]]; then
    rm -f "$root/etc/apt/sources.list"
    cp /etc/apt/sources.list.d/debian.sources "$root/etc/apt/sources.list.d/"
fi
# As in Debian's own images: apt keeps neither packages nor an index of them.
cat >"$root/etc/apt/apt.conf.d/docker-clean" <<'END'
APT::Keep-Downloaded-Packages "false";
APT::Install-Recommends "false";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
END
# Beside the bundle that Debian's package makes again whenever it is installed.
bundle=/etc/ssl/stand-in.pem
install -D --mode 644 "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$root$bundle"

tar --create --directory "$root" . | docker import \
    --change "ENV PIP_CERT=$bundle REQUESTS_CA_BUNDLE=$bundle SSL_CERT_FILE=$bundle" \
    --message "stand-in for $image" - "$image"
