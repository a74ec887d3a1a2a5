#!/bin/sh
# A Redis Cluster of three masters and three replicas and two gateways on this machine, to play with. Ctrl-C ends all
# of it and removes what it wrote.
#
# Redis listens on 7101 to 7106, the gateways on 8081 and 8082 (admin: 9091 and 9092), all on 127.0.0.1. Another base
# for Redis: REDIS_PORT=7201 scripts/cluster.sh
set -eu
cd "$(dirname "$0")/.."

first=${REDIS_PORT:-7101}
last=$((first + 5))
gateway=${HEADCOUNT_BINARY:-target/release/headcount}
dir=$(mktemp -d)
pids=""

end() {
    trap - INT TERM EXIT
    echo
    echo "stopping"
    # The gateways first, so that they can still push what they hold.
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
    for pid in $pids; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap end EXIT
trap 'exit 0' INT TERM

[ -n "${HEADCOUNT_BINARY:-}" ] || cargo build --release --quiet

nodes=""
for port in $(seq "$first" "$last"); do
    mkdir "$dir/$port"
    redis-server --port "$port" --bind 127.0.0.1 --dir "$dir/$port" --save "" --appendonly no \
        --cluster-enabled yes --cluster-node-timeout 2000 --cluster-require-full-coverage no \
        --repl-diskless-sync-delay 0 >"$dir/redis-$port.log" 2>&1 &
    pids="$pids $!"
    nodes="$nodes 127.0.0.1:$port"
done

# Waits for a command to succeed, ten seconds at most.
wait_for() {
    tries=100
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { tail -n 20 "$dir"/*.log >&2; echo "waited in vain for: $*" >&2; exit 1; }
        sleep 0.1
    done
}

for port in $(seq "$first" "$last"); do wait_for redis-cli -p "$port" ping; done
# shellcheck disable=SC2086 # a list of addresses
redis-cli --cluster create $nodes --cluster-replicas 1 --cluster-yes >"$dir/create.log"
cluster_ok() { redis-cli -p "$first" cluster info | grep -q '^cluster_state:ok'; }
wait_for cluster_ok

for number in 1 2; do
    HEADCOUNT_REDIS_URL="redis://127.0.0.1:$first" HEADCOUNT_LISTEN="127.0.0.1:808$number" \
        HEADCOUNT_ADMIN_LISTEN="127.0.0.1:909$number" "$gateway" >"$dir/gateway-$number.log" 2>&1 &
    pids="$! $pids"
    wait_for curl -fsS "http://127.0.0.1:909$number/readyz"
done

cat <<TEXT
Redis Cluster on ports $first to $last, gateways on 8081 and 8082; logs in $dir. Try:

  curl -s localhost:8081/v1/events/sale/visits -H 'content-type: application/json' -d '{"users":["ada","grace","ada"]}'
  curl -s localhost:8082/v1/events/sale/count
  redis-cli -c -p $first cluster nodes

Stop a master (kill -STOP), and see both gateways go on counting. Ctrl-C ends all of it.
TEXT
wait
