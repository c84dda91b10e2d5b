"""One server for all tests that need nothing special, and clients of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import connect, serving
from macp_sdk import MacpClient


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the server listens."""
    running = os.environ.get("MACP_ADDRESS")
    if running:
        yield running
        return
    scratch = tmp_path_factory.mktemp("server")
    limits = ("--session-start-limit-per-minute", "0", "--message-limit-per-minute", "0")
    with serving(scratch, *limits) as server:
        yield server.address


@pytest.fixture
def client(address: str) -> Iterator[MacpClient]:
    with connect(address) as client:
        yield client


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A directory of the test's own."""
    return tmp_path
