#!/usr/bin/env python3
"""A rain of red packets in the terminal, from the campaign to the ledger: `make demo`.

Starts a gateway on the embedded store, in a temporary folder and on free ports, with the ledger that it has by default
(a SQLite file). 300 users want one of 200 packets. At the end store, ledger and results must agree to the cent.
Ctrl-C ends it. HEADCOUNT_BINARY: another binary than target/release/headcount.
"""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

PACKETS, TOTAL_CENTS, MIN_CENTS, MAX_CENTS = 200, 20_000, 1, 500
USERS, CLIENTS = 300, 50
OPENS_IN_S = 2
PATIENCE_S = 20

ROOT = pathlib.Path(__file__).resolve().parent.parent
IS_TERMINAL = sys.stdout.isatty()
CAMPAIGN = "/v1/campaigns/demo"
NAMES = ["ada", "bo", "chen", "dana", "emre", "fei", "grace", "hui", "ines", "jun"]


class Failed(Exception):
    """What went wrong, for a person."""


class Gateway:
    """The program as a process; its log is shown when something goes wrong."""

    def __init__(self, folder):
        self.binary = os.environ.get("HEADCOUNT_BINARY") or ROOT / "target/release/headcount"
        self.public, self.admin = (f"127.0.0.1:{port}" for port in free_ports(2))
        self.log = folder / "gateway.log"
        # Settings of the caller's own are for other gateways.
        env = {name: value for name, value in os.environ.items() if not name.startswith("HEADCOUNT_")}
        env |= {"HEADCOUNT_LISTEN": self.public, "HEADCOUNT_ADMIN_LISTEN": self.admin}
        env |= {"HEADCOUNT_DATA_DIR": str(folder / "data")}
        with open(self.log, "wb") as log:
            # A group of its own: Ctrl-C reaches this script alone, which then ends the gateway in order.
            self.process = subprocess.Popen([self.binary], env=env, stdout=log, stderr=log, start_new_session=True)

    def is_ready(self):
        if self.process.poll() is not None:
            raise Failed(f"the gateway ended with {self.process.returncode}:\n{self.log.read_text()}")
        try:
            return ask(self.admin, "GET", "/readyz")[0] == 200
        except OSError:
            return False

    def admin_call(self, method, path, body=None):
        status, text = ask(self.admin, method, path, body)
        if status not in (200, 201):
            raise Failed(f"{method} {path}: {status} {text}")
        return json.loads(text)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in sockets]


def ask(address, method, path, body=None):
    """Status and text of an answer."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=PATIENCE_S)) as connection:
        connection.request(method, path, body and json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def wait_for(what, holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f"waited {PATIENCE_S} s for {what}")
        time.sleep(0.02)


def progress(text, last=False):
    """A line that is written over again and again in a terminal, and only once elsewhere."""
    if IS_TERMINAL:
        print(f"\r\x1b[K{text}", end="\n" if last else "", flush=True)
    elif last:
        print(text, flush=True)


class Crowd:
    """Users who all want a packet, and what they were told."""

    def __init__(self, gateway):
        self.address = gateway.public
        self.lock = threading.Lock()
        self.waiting = [f"{name}-{number:02}" for number in range(USERS // 10) for name in NAMES]
        self.packets = {}  # user: (number, cents)
        self.late = 0

    def run(self):
        began = time.monotonic()
        clients = [threading.Thread(target=self.client, daemon=True) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients):
            progress(self.line(began))
            time.sleep(0.05)
        progress(self.line(began), last=True)
        if len(self.packets) + self.late != USERS:
            raise Failed(f"{len(self.packets) + self.late} of {USERS} users were told yes or no")

    def client(self):
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        with contextlib.suppress(IndexError):  # when nobody is waiting any more
            while user := self.waiting.pop():
                try:
                    self.claim(connection, user)
                except (OSError, http.client.HTTPException):
                    connection.close()

    def claim(self, connection, user):
        while True:
            connection.request("POST", f"{CAMPAIGN}/claims", json.dumps({"user": user}))
            answer = connection.getresponse()
            told = json.loads(answer.read())
            # Not open yet by the store's clock, or busy: as every client should, it asks again a little later.
            if answer.status == 503 or told.get("outcome") == "not_open":
                time.sleep(0.05)
                continue
            with self.lock:
                if answer.status in (200, 201):
                    self.packets[user] = (told["unit"], told["cents"])
                elif told.get("outcome") == "sold_out":
                    self.late += 1
            return

    def line(self, began):
        with self.lock:
            count, cents, late = len(self.packets), sum(cents for _, cents in self.packets.values()), self.late
        rate = (count + late) / max(time.monotonic() - began, 0.001)
        told = f"{count:3} of {PACKETS} packets claimed, {money(cents):>6} of {money(TOTAL_CENTS)}"
        return f"{told}; {late:3} heard sold out; {rate:.0f} claims/s"


def money(cents):
    return f"{cents // 100}.{cents % 100:02}"


def countdown(opens_at):
    while (left := opens_at - time.time()) > 0:
        progress(f"the rain begins in {left:.1f} s")
        time.sleep(min(0.1, left))
    progress("the rain begins", last=True)


def ledger_has(ledger):
    """Packets of the ledger that somebody holds: user, number, cents."""
    with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=PATIENCE_S) as database:
        query = "SELECT user_name, unit, cents FROM ledger_packet_holders WHERE campaign = 'demo'"
        return database.execute(f"{query} AND user_name IS NOT NULL").fetchall()


def histogram(amounts):
    width = -(-max(amounts) // 10)
    print("\nhow much was in them")
    for low in range(1, max(amounts) + 1, width):
        count = sum(low <= cents < low + width for cents in amounts)
        print(f"  {money(low)} to {money(low + width - 1)}  {count:3}  {'#' * count}".rstrip())


def check(what, *figures):
    """All figures of this must be the same."""
    if len(set(figures)) != 1:
        raise Failed(f"{what}: {figures}")
    print(f"  {what:<36} {'yes' if figures[0] is True else figures[0]}")


def rain(folder):
    gateway = Gateway(folder)
    try:
        wait_for("the gateway to be ready", gateway.is_ready)
        opens_at = time.time() + OPENS_IN_S
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(opens_at)) + f".{int(opens_at % 1 * 1000):03}Z"
        packets = {"total_cents": TOTAL_CENTS, "count": PACKETS, "min_cents": MIN_CENTS, "max_cents": MAX_CENTS}
        gateway.admin_call("PUT", CAMPAIGN, {"admission": "packets", "packets": packets, "opens_at": at})
        print(f"{PACKETS} red packets, {money(TOTAL_CENTS)} in all; {USERS} users and {CLIENTS} clients are waiting")
        countdown(opens_at)
        crowd = Crowd(gateway)
        crowd.run()
        ledger = folder / "data" / "ledger.sqlite"
        began = time.monotonic()
        wait_for("the ledger to have every packet", lambda: len(ledger_has(ledger)) == len(crowd.packets))
        print(f"the ledger had all of it {(time.monotonic() - began) * 1000:.0f} ms later")
        report(gateway, crowd, ledger_has(ledger))
    finally:
        gateway.stop()


def report(gateway, crowd, rows):
    get = lambda what: gateway.admin_call("GET", f"{CAMPAIGN}/{what}")
    wait_for("results that are up to date", lambda: get("results")["claimed"] == PACKETS)
    results, audit = get("results"), get("audit")
    luckiest = sorted(rows, key=lambda row: (-row[2], row[1]))[:5]
    print("\nthe luckiest, as the ledger names them")
    for user, number, cents in luckiest:
        print(f"  {user:<10} packet {number:3}  {money(cents):>5}")
    histogram([cents for _, _, cents in rows])
    told = {(user, *packet) for user, packet in crowd.packets.items()}
    claimed = sum(packet[1] for packet in crowd.packets.values())
    print("\nwhat users were told, the ledger, the results and the store's books agree")
    check("packets claimed", len(told), len(rows), results["claimed"], audit["confirmed"], PACKETS)
    check("cents claimed", claimed, sum(row[2] for row in rows), results["claimed_cents"], TOTAL_CENTS)
    check("the largest packet, cents", luckiest[0][2], results["luckiest"]["cents"])
    check("users who heard sold out", crowd.late, USERS - PACKETS)
    check("the ledger names who was told", told == set(rows), True)
    check("the books balance", audit["balances"], True)


def main():
    # Ended from outside is as Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="headcount-demo-") as folder:
        try:
            rain(pathlib.Path(folder))
        except KeyboardInterrupt:
            print("\nstopped")
            return 130
        except Failed as failure:
            print(f"\nfailed: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
