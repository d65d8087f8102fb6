"""kazoo, the Python client, against the real server: kazoo_check.py <server binary>

Nodes, versions, watches, sequences, a lock, a queue, a counter and a party; a transaction; four-letter commands; and a
session with an ephemeral node that goes on over `kill -9` of the server.
"""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

PATIENCE = 20


class Server:
    """The server process on a port and a directory that outlive it."""

    def __init__(self, binary, directory):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        self.binary = binary
        self.config = pathlib.Path(directory, "zoo.cfg")
        self.config.write_text(
            f"clientPort={self.port}\nclientPortAddress=127.0.0.1\ndataDir={directory}/data\n"
            "tickTime=1000\n4lw.commands.whitelist=*\nadmin.enableServer=false\n"
        )
        self.start()

    def start(self):
        self.process = subprocess.Popen([self.binary, self.config], stdout=subprocess.PIPE, text=True)
        assert "listens" in self.process.stdout.readline()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, "SIGTERM ends it with status 0"

    def client(self):
        client = KazooClient(f"127.0.0.1:{self.port}", timeout=10)
        client.start(PATIENCE)
        return client


def await_event(event):
    assert event.wait(PATIENCE), "nothing came"


def raises(error, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def nodes(client, _other):
    assert client.create("/nodes", b"one") == "/nodes"
    data, stat = client.get("/nodes")
    assert (data, stat.version) == (b"one", 0)
    assert client.set("/nodes", b"two", version=0).version == 1
    raises(BadVersionError, client.set, "/nodes", b"three", version=0)
    raises(NodeExistsError, client.create, "/nodes")
    raises(NoNodeError, client.create, "/missing/child")
    client.ensure_path("/nodes/a/b/c")
    raises(NotEmptyError, client.delete, "/nodes")
    assert client.get_children("/nodes") == ["a"]
    client.delete("/nodes", recursive=True)
    assert client.exists("/nodes") is None


def watches(client, other):
    seen, fired = [], threading.Event()

    def note(event):
        seen.append((event.type, event.path))
        fired.set()

    assert client.exists("/watched", watch=note) is None
    other.create("/watched", b"1")
    await_event(fired)
    fired.clear()
    client.get("/watched", watch=note)
    other.set("/watched", b"2")
    await_event(fired)
    fired.clear()
    client.get_children("/watched", watch=note)
    other.create("/watched/child")
    await_event(fired)
    assert seen == [("CREATED", "/watched"), ("CHANGED", "/watched"), ("CHILD", "/watched")], seen


def sequences(client, other):
    client.ensure_path("/sequences")
    made = [c.create("/sequences/n-", sequence=True) for c in (client, other, client)]
    assert made == [f"/sequences/n-{i:010}" for i in range(3)], made


def lock(client, other):
    order = []
    held = client.Lock("/lock", "first")
    assert held.acquire(timeout=PATIENCE)

    def contend():
        with other.Lock("/lock", "second"):
            order.append("second")

    thread = threading.Thread(target=contend)
    thread.start()
    time.sleep(0.3)
    order.append("first")
    held.release()
    thread.join(PATIENCE)
    assert order == ["first", "second"], order


def queue(client, other):
    for item in (b"a", b"b", b"c"):
        client.Queue("/queue").put(item)
    taken = [other.Queue("/queue").get() for _ in range(3)]
    assert taken == [b"a", b"b", b"c"], taken


def counter(client, other):
    for each in (client, other) * 5:
        counted = each.Counter("/counter")
        counted += 2
    assert client.Counter("/counter").value == 20


def party(client, other):
    mine, theirs = client.Party("/party", "me"), other.Party("/party", "them")
    mine.join()
    theirs.join()
    assert sorted(mine) == ["me", "them"]
    theirs.leave()
    assert list(mine) == ["me"]


def transaction(client, _other):
    attempt = client.transaction()
    attempt.create("/transaction", b"x")
    attempt.set_data("/transaction", b"y")
    attempt.check("/transaction", version=1)
    results = attempt.commit()
    assert results[0] == "/transaction" and results[1].version == 1, results
    attempt = client.transaction()
    attempt.create("/transaction/child")
    attempt.delete("/missing")
    attempt.commit()
    assert client.exists("/transaction/child") is None, "all or nothing"


def words(client, _other):
    assert client.command(b"ruok") == "imok"
    assert client.server_version() == (3, 9, 4)
    assert "Mode: standalone" in client.command(b"srvr")
    assert "zk_server_state\tstandalone" in client.command(b"mntr")


def over_a_crash(server):
    client = server.client()
    session = client.client_id
    client.create("/mine", ephemeral=True)
    client.create("/kept", b"value")
    lost, back = threading.Event(), threading.Event()

    def listen(state):
        {KazooState.SUSPENDED: lost, KazooState.CONNECTED: back}[state].set()

    client.add_listener(listen)
    server.kill()
    await_event(lost)
    server.start()
    await_event(back)
    assert client.client_id == session, "the session goes on"
    assert client.exists("/mine").owner_session_id == session[0]
    assert client.get("/kept")[0] == b"value"
    client.remove_listener(listen)
    client.stop()
    client = server.client()
    assert client.exists("/mine") is None, "the session was closed, its ephemerals with it"
    client.stop()


def main():
    binary = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        server = Server(binary, directory)
        try:
            client, other = server.client(), server.client()
            for check in (nodes, watches, sequences, lock, queue, counter, party, transaction, words):
                check(client, other)
                print(f"ok: {check.__name__}", flush=True)
            client.stop()
            other.stop()
            over_a_crash(server)
            print("ok: over_a_crash", flush=True)
            server.stop()
            print("ok: stops with status 0", flush=True)
        finally:
            server.kill()


if __name__ == "__main__":
    main()
