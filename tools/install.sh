#!/usr/bin/env bash
# Install kafkabus and its extras into an existing virtual environment, at the pinned versions.
#
# Usage: tools/install.sh VENV [EXTRA]      (EXTRA: dev by default)
#
# uv takes a third of pip's time, and this is most of the wait before a first message. It reads
# neither pip's configuration nor pip's variables, so they are handed over here; where uv fails all
# the same, pip does the work.
set -euo pipefail

venv=${1:?usage: tools/install.sh VENV [EXTRA]}
target=".[${2:-dev}]"
python=$venv/bin/python

setting() { # what pip would use for an option, whether from a variable or a file
    local variable=PIP_${1^^}
    variable=${variable//-/_}
    printf %s "${!variable:-$("$python" -m pip config get "global.$1" 2>/dev/null || true)}"
}

hand_over() { # a pip setting to one of uv's variables, unless that is set already
    local value
    value=$(setting "$1")
    if [[ -n $value && -z ${!2:-} ]]; then
        export "$2=$value"
    fi
}

install_with_uv() {
    "$python" -m pip install --quiet --constraint constraints.txt uv || return
    hand_over index-url UV_DEFAULT_INDEX
    hand_over extra-index-url UV_INDEX
    hand_over find-links UV_FIND_LINKS
    hand_over cert SSL_CERT_FILE
    UV_NO_PROGRESS=1 UV_PYTHON_DOWNLOADS=never "$python" -m uv pip install --quiet \
        --python "$python" --constraint constraints.txt --editable "$target"
}

if ! install_with_uv; then
    echo "uv could not install; trying pip" >&2
    "$python" -m pip install --quiet --constraint constraints.txt --editable "$target"
fi
