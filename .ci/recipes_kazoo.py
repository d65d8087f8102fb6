"""The steps of client/examples/recipe.rs with kazoo: recipes_kazoo.py SERVERS RECIPE PATH [COUNT]

Locks and elections are told which names of our nodes to wait for. An election also has the step "plain", an acquisition without that.
"""

import sys
import threading

from kazoo.client import KazooClient
from kazoo.recipe.queue import LockingQueue

# How long `Queue.get`, which does not wait, is repeated.
PAUSE = 0.05


class Steps:
    def __init__(self, client, recipe, path, count):
        self.client = client
        self.path = path
        if recipe == "lock":
            self.held = client.Lock(path, "kazoo", extra_lock_patterns=["-lock-"])
        elif recipe == "read":
            self.held = client.ReadLock(path, "kazoo", extra_lock_patterns=["__WRIT__"])
        elif recipe == "write":
            self.held = client.WriteLock(path, "kazoo", extra_lock_patterns=["__READ__", "__WRIT__"])
        elif recipe == "semaphore":
            self.held = client.Semaphore(path, "kazoo", max_leases=count)
        elif recipe == "election":
            self.election = client.Election(path, "kazoo")
            self.election.lock = client.Lock(path, "kazoo", extra_lock_patterns=["-latch-"])
            self.held = self
            self.leads = threading.Event()
            self.resigns = threading.Event()
        elif recipe == "queue":
            self.queue = client.Queue(path)
        elif recipe == "work":
            self.queue = LockingQueue(client, path)
        elif recipe == "barrier":
            self.barrier = client.Barrier(path)
        elif recipe == "double":
            self.barrier = client.DoubleBarrier(path, count)
        elif recipe == "counter":
            self.counter = client.Counter(path)
        elif recipe == "shared-count":
            self.counter = client.Counter(path, support_curator=True)
        elif recipe == "group":
            self.party = client.Party(path)

    # Of the election, in place of a lock.
    def acquire(self):
        def lead():
            self.leads.set()
            self.resigns.wait()

        self.leading = threading.Thread(target=self.election.run, args=(lead,), daemon=True)
        self.leading.start()
        self.leads.wait()

    def release(self):
        self.resigns.set()
        self.leading.join()

    def step(self, step, argument):
        if step == "acquire":
            self.held.acquire()
            return "holds"
        if step == "release" and hasattr(self, "held"):
            self.held.release()
            return "released"
        if step == "contenders":
            return f"contenders {' '.join(self.election.contenders())}"
        if step == "put":
            self.queue.put(argument.encode())
            return f"put {argument}"
        if step == "take":
            item = self.queue.get()
            while item is None:
                threading.Event().wait(PAUSE)
                item = self.queue.get()
            return f"took {item.decode()}"
        if step == "claim":
            return f"claimed {self.queue.get().decode()}"
        if step == "complete":
            assert self.queue.consume(), "the item is not held"
            return "completed"
        if step == "release":
            assert self.queue.release(), "the item is not held"
            return "released"
        if step == "set":
            self.barrier.create()
            return "set"
        if step == "wait":
            assert self.barrier.wait()
            return "passed"
        if step == "remove":
            assert self.barrier.remove()
            return "removed"
        if step == "enter":
            self.barrier.enter()
            return "entered"
        if step == "leave":
            self.barrier.leave()
            return "left"
        if step == "add":
            self.counter += int(argument)
            return f"is {self.counter.post_value}"
        if step == "get":
            return f"is {self.counter.value}"
        if step == "join":
            self.party = self.client.Party(self.path, argument)
            self.party.join()
            return f"joined {argument}"
        if step == "members":
            return f"members {' '.join(sorted(self.party))}"
        raise ValueError(f"no step {step}")


def main():
    servers, recipe, path = sys.argv[1:4]
    client = KazooClient(servers, timeout=20)
    client.start()
    steps = Steps(client, recipe, path, int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    for line in sys.stdin:
        step, _, argument = line.rstrip("\n").partition(" ")
        print(steps.step(step, argument), flush=True)
    client.stop()


if __name__ == "__main__":
    main()
