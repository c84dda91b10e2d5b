"""What a runtime says about itself."""

from __future__ import annotations

import grpc
import pytest
from harness import PATIENCE
from macp.v1 import core_pb2
from macp_sdk import MODE_MULTI_ROUND, STANDARD_MODES, MacpClient, macp_error_code

BUILT_IN = sorted([MODE_MULTI_ROUND, *STANDARD_MODES])


def test_capabilities(client: MacpClient) -> None:
    response = client.initialize()
    assert response.selected_protocol_version == "1.0"
    assert response.runtime_info.name and response.runtime_info.version
    able = response.capabilities
    assert able.sessions.stream and able.sessions.list_sessions and able.sessions.watch_sessions
    assert able.cancellation.cancel_session and able.progress.progress and able.manifest.get_manifest
    assert able.mode_registry.list_modes and able.mode_registry.list_changed
    assert able.roots.list_roots
    policies = able.policy_registry
    assert policies.register_policy and policies.list_policies and policies.list_changed and policies.what_if_replay
    assert list(policies.rule_extensions) == []
    assert able.decision_receipt.get_decision_receipt
    modes = list(response.supported_modes)
    assert modes == sorted(modes) and set(BUILT_IN) <= set(modes)


@pytest.mark.parametrize(
    ("versions", "code"), [([], "INVALID_REQUEST"), (["0.9", "2.0"], "UNSUPPORTED_PROTOCOL_VERSION")]
)
def test_versions_that_do_not_fit(client: MacpClient, versions: list[str], code: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Initialize(core_pb2.InitializeRequest(supported_protocol_versions=versions), timeout=PATIENCE)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert macp_error_code(caught.value) == code


def test_modes(client: MacpClient) -> None:
    standard = {found.mode: found for found in client.list_modes().modes}
    order = [f"macp.mode.{name}.v1" for name in ("decision", "proposal", "task", "handoff", "quorum")]
    assert list(standard)[:5] == order
    for name in order:
        assert standard[name].mode_version == "1.0.0"
        assert list(standard[name].terminal_message_types) == ["Commitment"]
    decision = standard["macp.mode.decision.v1"]
    assert list(decision.message_types) == ["SessionStart", "Proposal", "Evaluation", "Objection", "Vote", "Commitment"]
    assert (decision.participant_model, decision.determinism_class) == ("declared", "semantic-deterministic")
    extensions = {found.mode: found for found in client.list_ext_modes().modes}
    assert list(extensions) == sorted(extensions)
    assert list(extensions[MODE_MULTI_ROUND].message_types) == ["SessionStart", "Contribute", "Commitment"]


def test_the_manifest(client: MacpClient) -> None:
    manifest = client.get_manifest().manifest
    assert manifest.agent_id
    assert set(BUILT_IN) <= set(manifest.supported_modes)
    assert client.get_manifest(manifest.agent_id).manifest == manifest
    with pytest.raises(grpc.RpcError) as caught:
        client.get_manifest("somebody-else")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert macp_error_code(caught.value) == "AGENT_NOT_FOUND"
