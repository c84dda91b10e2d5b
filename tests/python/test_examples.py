"""The programs of `examples/python`, as a user runs them."""

from __future__ import annotations

import re
import subprocess
import sys

from harness import PATIENCE, REPOSITORY

EXAMPLES = REPOSITORY / "examples" / "python"


def output(program: str, address: str) -> list[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLES / program), address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


def test_decision(address: str) -> None:
    for _ in range(2):  # The policy is there already the second time.
        lines = output("decision.py", address)
        assert lines[:2] == ["lead     asks: where do we deploy?", "alice    proposes Frankfurt"]
        assert sorted(lines[2:4]) == [
            "bob      approves: close to our users",
            "carol    approves: data stays in the union",
        ]
        assert lines[4] == "lead     decides: decision.selected"
        assert re.fullmatch(r"receipt  sha256:[0-9a-f]{12}… by runtime:\S+, integrity_only", lines[5]), lines[5]
        assert len(lines) == 6


def test_handoff(address: str) -> None:
    assert output("handoff.py", address) == [
        "dana     offers the pager to alice",
        "alice    declines: on a train",
        "dana     offers the pager to bob",
        "bob      accepts",
        "dana     hands over to bob",
        "session  resolved after 7 messages",
    ]


def test_the_readme_shows_what_is_said(address: str) -> None:
    readme = (EXAMPLES / "README.md").read_text()
    shown = readme.split("```text\n")[1].split("```")[0].splitlines()
    said = output("decision.py", address)
    assert sorted(line.split("sha256:")[0] for line in shown) == sorted(line.split("sha256:")[0] for line in said)


def test_the_same_sdk_is_shown_and_tested() -> None:
    def sdk(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith("macp-sdk-python")]

    shown = sdk((EXAMPLES / "requirements.txt").read_text())
    assert len(shown) == 1
    assert shown == sdk((REPOSITORY / "tests" / "python" / "requirements.txt").read_text())
