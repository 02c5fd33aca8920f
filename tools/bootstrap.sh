#!/usr/bin/env bash
# Makes a clone usable on Debian 12 or later, as root: system packages, .venv from pinned and hashed versions, then
# `atoll setup`. Every step looks first whether it is done, so a second run takes seconds and an interrupted one goes on.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
stop() {
    printf 'setup stopped: %s\nwhat to do: %s\n' "$1" "$2" >&2
    exit 1
}

check_host() {
    [ "$(uname -s)" = Linux ] || stop "this is $(uname -s)" "use a Linux machine (Debian 12 or later)"
    [ "$(id -u)" = 0 ] || stop "set-up needs root (mounts, namespaces, packages)" "sudo make setup; nothing has been changed"
}

install_packages() {
    local package missing=()
    # dpkg is asked before apt: when nothing is missing no package index is touched and no network is needed.
    for package in btrfs-progs ca-certificates iproute2 kmod mmdebstrap mount nftables tar util-linux zstd "$@"; do
        dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 && return 0
    apt-get update -qq || stop "apt-get update failed" "look at its messages above, then run make setup again"
    apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null ||
        stop "the packages ${missing[*]} could not be installed" "look at apt's messages above, then run make setup again"
}

check_debian() {
    command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
        stop "this is no Debian" "the built-in templates are made of the host's own Debian packages: use Debian 12 or later"
}

# New enough, and able to make a virtual environment: Debian has that in a package of its own.
is_good_python() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 /usr/bin/python3 python3.13 python3.12 python3.11; do
        if [ -n "$candidate" ] && command -v "$candidate" >/dev/null && is_good_python "$candidate"; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return 0
        fi
    done
    return 1
}

# The lines of one package in constraints.txt, with its hashes.
pinned() { awk -v name="$1==" 'index($0, name) == 1 { on = 1; print; next } /^[^ ]/ { on = 0 } on' constraints.txt; }

# uv lives in the machine's cache, so that the next clone finds it there.
find_uv() {
    local version tools unfinished
    version=$(pinned uv | sed -n '1s/^uv==\([^ ;\\]*\).*/\1/p')
    tools="${ATOLL_CACHE:-/var/cache/atoll}/uv/$version"
    if ! "$tools/bin/uv" --version >/dev/null 2>&1; then
        say "installing uv $version" >&2
        mkdir -p "$(dirname "$tools")"
        unfinished=$(mktemp -d "$tools.XXXXXX")
        "$1" -m venv "$unfinished/venv" >&2 ||
            stop "$1 cannot make a virtual environment" "look at its message above, then run make setup again"
        pinned uv >"$unfinished/uv.txt"
        "$unfinished/venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
            --requirement "$unfinished/uv.txt" >&2 || stop "uv could not be installed" "check that pip reaches a package index"
        # Only the program itself is kept: it needs nothing of the environment that it came in.
        mkdir -p "$tools/bin"
        mv "$unfinished/venv/bin/uv" "$tools/bin/uv"
        rm -rf "$unfinished"
    fi
    printf '%s\n' "$tools/bin/uv"
}

make_venv() {
    local python=$1 stamp uv
    stamp=$(cat constraints.txt pyproject.toml tools/bootstrap.sh | sha256sum | cut -c1-64)
    if [ "$(cat .venv/.atoll-stamp 2>/dev/null)" = "$stamp" ] && .venv/bin/python -c '' 2>/dev/null; then
        return 0
    fi
    uv=$(find_uv "$python")
    say "installing the Python packages into .venv"
    .venv/bin/python -c '' 2>/dev/null || { rm -rf .venv && "$uv" venv --quiet --python "$python" .venv; }
    rm -f .venv/.atoll-stamp
    "$uv" pip sync --quiet --python .venv/bin/python --require-hashes constraints.txt ||
        stop "the Python packages could not be installed" "look at the messages above, then run make setup again"
    # The build backend is pinned in constraints.txt like all the rest, so no isolated build fetches another.
    "$uv" pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable . ||
        stop "atoll itself could not be installed into .venv" "look at the messages above, then run make setup again"
    printf '%s\n' "$stamp" >.venv/.atoll-stamp
}

check_host
check_debian
install_packages
python=$(find_python) || { install_packages python3 python3-venv && python=$(find_python); } ||
    stop "there is no Python 3.11 or newer that has venv" "install one, or set PYTHON to it"
make_venv "$python"
exec .venv/bin/atoll setup
