#!/usr/bin/env bash
# Puts one pinned set of another vendor's clients into the machine's cache, and prints its folder.
#
#     tools/compat_clients.sh python|node FOLDER-OR-REQUIREMENTS
#
# A set is keyed by its pins: it is installed once, aside, and appears under its name when it is whole.
set -euo pipefail

kind=$1
pins=$2
cache="${ATOLL_CACHE:-/var/cache/atoll}/compat"

case $kind in
python) key=$(sha256sum <"$pins" | cut -c1-16) ;;
node) key=$(cat "$pins/package.json" "$pins/package-lock.json" | sha256sum | cut -c1-16) ;;
*) echo "usage: $0 python|node PINS" >&2 && exit 2 ;;
esac

target="$cache/$kind-$key"
if [ ! -e "$target/whole" ]; then
    mkdir -p "$cache"
    exec 9>"$target.lock"
    flock 9 # two runs at once: the second finds the work done
    if [ ! -e "$target/whole" ]; then
        rm -rf "$target"
        if [ "$kind" = python ]; then
            "${PYTHON:-python3}" -m venv "$target" >&2
            "$target/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$pins" >&2
        else
            mkdir -p "$target"
            cp "$pins/package.json" "$pins/package-lock.json" "$target/"
            (cd "$target" && npm ci --no-audit --no-fund --loglevel=error >&2)
        fi
        touch "$target/whole"
    fi
fi
printf '%s\n' "$target"
