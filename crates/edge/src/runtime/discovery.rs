//! What the runtime says about itself: Initialize, GetManifest, ListModes. Only what works is listed.

use macp_kernel::{PROTOCOL_VERSION, mode};
use macp_wire::codes::Code;
use macp_wire::v1::{
    AgentManifest, CancellationCapability, Capabilities, GetManifestRequest, GetManifestResponse, InitializeRequest,
    InitializeResponse, ListModesResponse, ManifestCapability, ModeRegistryCapability, ProgressCapability,
    RootsCapability, RuntimeInfo, SessionsCapability,
};
use tonic::Status;

use crate::status;

const NAME: &str = "macp-runtime";
const TITLE: &str = "MACP Runtime";
const DESCRIPTION: &str = "A durable, replayable runtime for the Multi-Agent Coordination Protocol.";
const INSTRUCTIONS: &str = "Start a session with a SessionStart envelope, send its messages with Send or \
    StreamSession, and watch it with StreamSession's subscribe. Sending a message again with the same message_id is \
    safe. The history of a session is in macp.history.v1.HistoryService.";
const CONTENT_TYPE: &str = "application/macp-envelope+proto";

pub(super) fn initialize(request: &InitializeRequest) -> Result<InitializeResponse, Status> {
    let offered = &request.supported_protocol_versions;
    if offered.is_empty() {
        return Err(status::invalid_request("supported_protocol_versions is empty"));
    }
    if !offered.iter().any(|version| version == PROTOCOL_VERSION) {
        return Err(status::coded(
            Code::UnsupportedProtocolVersion,
            format!("this runtime speaks protocol version {PROTOCOL_VERSION} only"),
        ));
    }
    Ok(InitializeResponse {
        selected_protocol_version: PROTOCOL_VERSION.to_owned(),
        runtime_info: Some(RuntimeInfo {
            name: NAME.to_owned(),
            title: TITLE.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: DESCRIPTION.to_owned(),
            website_url: String::new(),
        }),
        capabilities: Some(capabilities()),
        supported_modes: supported_modes(),
        instructions: INSTRUCTIONS.to_owned(),
    })
}

fn capabilities() -> Capabilities {
    Capabilities {
        sessions: Some(SessionsCapability { stream: true, list_sessions: true, watch_sessions: true }),
        cancellation: Some(CancellationCapability { cancel_session: true }),
        progress: Some(ProgressCapability { progress: true }),
        manifest: Some(ManifestCapability { get_manifest: true }),
        mode_registry: Some(ModeRegistryCapability { list_modes: true, list_changed: true }),
        roots: Some(RootsCapability { list_roots: true, list_changed: true }),
        policy_registry: None,
        decision_receipt: None,
        experimental: None,
    }
}

/// Full names, each once, by their bytes.
fn supported_modes() -> Vec<String> {
    let mut names: Vec<_> = mode::ALL.iter().map(|kind| kind.spec().name.to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

pub(super) fn manifest(runtime_id: &str, request: &GetManifestRequest) -> Result<GetManifestResponse, Status> {
    if !request.agent_id.is_empty() && request.agent_id != runtime_id {
        return Err(status::coded(Code::AgentNotFound, format!("only the manifest of {runtime_id:?} is kept here")));
    }
    Ok(GetManifestResponse {
        manifest: Some(AgentManifest {
            agent_id: runtime_id.to_owned(),
            title: TITLE.to_owned(),
            description: DESCRIPTION.to_owned(),
            supported_modes: supported_modes(),
            input_content_types: vec![CONTENT_TYPE.to_owned()],
            output_content_types: vec![CONTENT_TYPE.to_owned()],
            ..AgentManifest::default()
        }),
    })
}

/// The decision mode first, the others in the order of the register.
pub(super) fn modes() -> ListModesResponse {
    let mut specs: Vec<_> = mode::ALL.iter().map(|kind| kind.spec()).collect();
    specs.sort_by_key(|spec| spec.name != mode::DECISION);
    ListModesResponse { modes: specs.into_iter().map(mode::Spec::descriptor).collect() }
}
