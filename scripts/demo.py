#!/usr/bin/env python3
"""A rain of red packets in the terminal, from the campaign to the ledger: `make demo`.

Starts a gateway on the embedded store, in a temporary folder and on free ports, with the ledger that it has by default (a
SQLite file). 300 users claim 200 packets at the same instant. At the end store, ledger and results must agree to the
cent. Ctrl-C ends all of it. HEADCOUNT_BINARY: another binary than target/release/headcount.
"""

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
import urllib.error
import urllib.request

PACKETS, TOTAL_CENTS, MIN_CENTS, MAX_CENTS = 200, 20_000, 1, 500
USERS, CLIENTS = 300, 50
OPENS_IN_S = 2
PATIENCE_S = 20

ROOT = pathlib.Path(__file__).resolve().parent.parent
IS_TERMINAL = sys.stdout.isatty()
CAMPAIGN = "/v1/campaigns/demo"


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

    def wait_until_ready(self):
        def ready():
            if self.process.poll() is not None:
                raise Failed(f"the gateway ended with {self.process.returncode}:\n{self.log.read_text()}")
            try:
                return ask("GET", f"http://{self.admin}/readyz")[0] == 200
            except OSError:
                return False

        wait_for("the gateway to be ready", ready)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def ask(method, url, body=None):
    """Status and text of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def admin(gateway, method, path, body=None):
    status, text = ask(method, f"http://{gateway.admin}{path}", body)
    if status not in (200, 201):
        raise Failed(f"{method} {path}: {status} {text}")
    return json.loads(text)


def wait_for(what, holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f"waited {PATIENCE_S} s for {what}")
        time.sleep(0.02)


class Progress:
    """A line that is written over again and again in a terminal, and only once elsewhere."""

    def live(self, text):
        if IS_TERMINAL:
            print(f"\r\x1b[K{text}", end="", flush=True)

    def last(self, text):
        print(f"\r\x1b[K{text}" if IS_TERMINAL else text, flush=True)


class Crowd:
    """Users who all want a packet, and what they were told."""

    def __init__(self, gateway):
        self.address = gateway.public
        self.lock = threading.Lock()
        self.waiting = [f"{name}-{number:02}" for number in range(USERS // 10) for name in NAMES]
        self.packets = {}  # user: (number, cents)
        self.late = self.failed = 0

    def run(self, progress):
        began = time.monotonic()
        clients = [threading.Thread(target=self.client, daemon=True) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients):
            progress.live(self.line(began))
            time.sleep(0.05)
        progress.last(self.line(began))
        if self.failed or len(self.packets) + self.late != USERS:
            raise Failed(f"{self.failed} claims failed, {len(self.packets) + self.late} of {USERS} were answered")

    def client(self):
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        while True:
            with self.lock:
                if not self.waiting:
                    return
                user = self.waiting.pop()
            try:
                self.claim(connection, user)
            except (OSError, http.client.HTTPException):
                with self.lock:
                    self.failed += 1
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
                else:
                    self.failed += 1
            return

    def line(self, began):
        with self.lock:
            count, cents, late = len(self.packets), sum(cents for _, cents in self.packets.values()), self.late
        rate = (count + late) / max(time.monotonic() - began, 0.001)
        return f"claimed {count:3} of {PACKETS}   {money(cents):>7} of {money(TOTAL_CENTS)}   sold out to {late:3}   {rate:.0f} claims/s"


NAMES = ["ada", "bo", "chen", "dana", "emre", "fei", "grace", "hui", "ines", "jun"]


def money(cents):
    return f"{cents // 100}.{cents % 100:02}"


def countdown(progress, opens_at):
    while (left := opens_at - time.time()) > 0:
        progress.live(f"the rain begins in {left:.1f} s")
        time.sleep(min(0.1, left))
    progress.last("the rain begins")


def ledger_has(ledger):
    """Packets of the ledger that somebody holds: user, number, cents."""
    with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=PATIENCE_S) as database:
        query = "SELECT user_name, unit, cents FROM ledger_packet_holders WHERE campaign = 'demo' AND user_name IS NOT NULL"
        return database.execute(query).fetchall()


def histogram(amounts):
    width = -(-max(amounts) // 10)
    print("\nhow much was in them")
    for low in range(1, max(amounts) + 1, width):
        count = sum(low <= cents < low + width for cents in amounts)
        print(f"  {money(low)} to {money(low + width - 1)}  {count:3}  {'#' * count}".rstrip())


def check(what, *figures):
    if len(set(figures)) != 1:
        raise Failed(f"{what}: {figures}")
    print(f"  {what:<34} {figures[0]}")


def rain(folder):
    gateway = Gateway(folder)
    try:
        gateway.wait_until_ready()
        progress = Progress()
        opens_at = time.time() + OPENS_IN_S
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(opens_at)) + f".{int(opens_at % 1 * 1000):03}Z"
        packets = {"total_cents": TOTAL_CENTS, "count": PACKETS, "min_cents": MIN_CENTS, "max_cents": MAX_CENTS}
        admin(gateway, "PUT", CAMPAIGN, {"admission": "packets", "packets": packets, "opens_at": at})
        print(f"{PACKETS} red packets, {money(TOTAL_CENTS)} in all; {USERS} users and {CLIENTS} clients are waiting")
        countdown(progress, opens_at)
        crowd = Crowd(gateway)
        crowd.run(progress)
        ledger = folder / "data" / "ledger.sqlite"
        began = time.monotonic()
        wait_for("the ledger to have every packet", lambda: len(ledger_has(ledger)) == len(crowd.packets))
        print(f"the ledger had all of it {(time.monotonic() - began) * 1000:.0f} ms later")
        report(gateway, crowd, ledger_has(ledger))
    finally:
        gateway.stop()


def report(gateway, crowd, rows):
    wait_for("results that are up to date", lambda: admin(gateway, "GET", f"{CAMPAIGN}/results")["claimed"] == PACKETS)
    results = admin(gateway, "GET", f"{CAMPAIGN}/results")
    audit = admin(gateway, "GET", f"{CAMPAIGN}/audit")
    luckiest = sorted(rows, key=lambda row: (-row[2], row[1]))[:5]
    print("\nthe luckiest, as the ledger names them")
    for user, number, cents in luckiest:
        print(f"  {user:<10} packet {number:3}  {money(cents):>5}")
    histogram([cents for _, _, cents in rows])
    told = {(user, *packet) for user, packet in crowd.packets.items()}
    claimed = sum(packet[1] for packet in crowd.packets.values())
    print("\nusers, ledger, results and books agree")
    check("packets claimed", len(told), len(rows), results["claimed"], audit["confirmed"], PACKETS)
    check("cents claimed", claimed, sum(row[2] for row in rows), results["claimed_cents"], TOTAL_CENTS)
    check("the largest packet, cents", luckiest[0][2], results["luckiest"]["cents"])
    check("users who heard sold out", crowd.late, USERS - PACKETS)
    check("each packet is who was told of it", told == set(rows), True)
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
