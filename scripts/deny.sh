#!/usr/bin/env bash
# Checks licences, bans and sources of the dependencies. cargo-deny takes minutes to compile: it is built once into the
# user's cache folder, and where that does not work in ten minutes the check says so and is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.20.2
root="${XDG_CACHE_HOME:-$HOME/.cache}/headcount-tools"
if ! command -v cargo-deny >/dev/null && [ ! -x "$root/bin/cargo-deny" ]; then
    echo "installing cargo-deny $version (once) ..."
    if ! CARGO_TARGET_DIR="$root/target" timeout 600 cargo install --quiet --locked --root "$root" --version "$version" cargo-deny; then
        echo "cargo-deny could not be installed; licences, bans and sources are not checked" >&2
        exit 0
    fi
    rm -rf "$root/target"
fi
PATH="$root/bin:$PATH" cargo deny --offline check bans licenses sources
