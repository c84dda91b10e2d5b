"""Starts the real binary, and holds what all tests share."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from macp.v1 import core_pb2, envelope_pb2
from macp_sdk import AuthConfig, MacpAckError, MacpClient

REPOSITORY = Path(__file__).resolve().parents[2]

# Long enough for a loaded machine; only a failing test waits for it.
PATIENCE = 60.0

OPEN = envelope_pb2.SESSION_STATE_OPEN
RESOLVED = envelope_pb2.SESSION_STATE_RESOLVED
EXPIRED = envelope_pb2.SESSION_STATE_EXPIRED
SUSPENDED = envelope_pb2.SESSION_STATE_SUSPENDED
CANCELLED = envelope_pb2.SESSION_STATE_CANCELLED

Item = TypeVar("Item")


def binary() -> Path:
    """The server to test; built by `cargo build`."""
    path = Path(os.environ.get("MACP_BIN") or REPOSITORY / "target" / "debug" / "macp")
    assert path.is_file(), f"{path} is missing; run cargo build, or name the binary with MACP_BIN"
    return path


class Server:
    """A running `macp serve` on a free port."""

    def __init__(self, scratch: Path, *arguments: str, **variables: str) -> None:
        self._ready = scratch / "ready"
        self.log = scratch / "server.log"
        self._arguments = arguments
        # What the environment of the tests says about MACP is not meant for this server.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MACP_")}
        self._environment = environment | variables
        self.start("127.0.0.1:0")

    def start(self, listen: str) -> None:
        """Returns when the server is ready."""
        self._ready.unlink(missing_ok=True)
        command = [str(binary()), "serve", "--listen", listen, "--ready-file", str(self._ready), *self._arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, env=self._environment)
        try:
            self.address = eventually(self._address)
        except BaseException:
            self.kill()
            raise

    def _address(self) -> str | None:
        code = self._process.poll()
        assert code is None, f"the server ended with {code}:\n{self.log.read_text()}"
        return self._ready.read_text().strip() or None if self._ready.exists() else None

    def kill(self) -> None:
        """SIGKILL: no chance to tidy up."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM; whatever is in flight ends, and the server says that all went well."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(PATIENCE)
        assert code == 0, f"the server ended with {code}:\n{self.log.read_text()}"


@contextlib.contextmanager
def serving(scratch: Path, *arguments: str, **variables: str) -> Iterator[Server]:
    """A server of a test's own; histories stay in memory unless the arguments say otherwise."""
    if os.environ.get("MACP_ADDRESS"):
        pytest.skip("needs a server with settings of its own, and MACP_ADDRESS names one that runs already")
    if "--data" not in arguments:
        arguments = ("--memory", *arguments)
    server = Server(scratch, *arguments, **variables)
    try:
        yield server
    except BaseException:
        server.kill()
        raise
    server.stop()


def connect(address: str, **options: Any) -> MacpClient:
    return MacpClient(target=address, allow_insecure=True, default_timeout=PATIENCE, **options)


def agent(name: str) -> AuthConfig:
    """Who speaks, in local development."""
    return AuthConfig.for_dev_agent(name)


@contextlib.contextmanager
def refused(code: str) -> Iterator[pytest.ExceptionInfo[MacpAckError]]:
    """Expects the runtime to refuse a message with this code."""
    with pytest.raises(MacpAckError) as caught:
        yield caught
    assert caught.value.failure.code == code, repr(caught.value)
    assert caught.value.failure.message, "a refusal says what is wrong"


def eventually(look: Callable[[], Item | None]) -> Item:
    """Looks again and again until there is something to see."""
    deadline = time.monotonic() + PATIENCE
    while True:
        seen = look()
        if seen is not None:
            return seen
        assert time.monotonic() < deadline, f"nothing to see after {PATIENCE} s: {look}"
        time.sleep(0.02)


def history(client: MacpClient, session_id: str, auth: AuthConfig, count: int, after: int = 0) -> list[Any]:
    """The accepted envelopes of a session after an ordinal, and proof that there are no more."""
    stream = client.open_stream(auth=auth)
    stream.send_subscribe(session_id, after_sequence=after)
    envelopes = [stream.read(timeout=PATIENCE) for _ in range(count)]
    # Half-closing makes the server deliver what is left and end the stream.
    stream.close()
    rest = list(stream.responses(timeout=PATIENCE))
    assert [envelope.message_type for envelope in rest] == []
    return envelopes


def metadata(client: MacpClient, session_id: str, auth: AuthConfig) -> core_pb2.SessionMetadata:
    return client.get_session(session_id, auth=auth).metadata


class Watching:
    """Reads a stream of the SDK in a thread, so that a test can wait for items of it."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._queue: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._pump, args=(items,), daemon=True)
        self._thread.start()

    def _pump(self, items: Iterator[Any]) -> None:
        try:
            for item in items:
                self._queue.put(item)
        except Exception as error:
            self._queue.put(error)

    def next(self, wanted: Callable[[Any], bool] = lambda _: True) -> Any:
        """The next item a test cares about."""
        deadline = time.monotonic() + PATIENCE
        while True:
            item = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(item, Exception):
                raise item
            if wanted(item):
                return item

    def seen(self, wanted: Callable[[Any], bool]) -> Any | None:
        """An item a test cares about, if it has arrived."""
        with contextlib.suppress(queue.Empty):
            while True:
                item = self._queue.get_nowait()
                if isinstance(item, Exception):
                    raise item
                if wanted(item):
                    return item
        return None
