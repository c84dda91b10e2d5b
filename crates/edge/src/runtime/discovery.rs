//! What the runtime says about itself: Initialize, GetManifest, ListModes. Only what works is listed.

use macp_kernel::{PROTOCOL_VERSION, Profile, ProfileSetting, mode};
use macp_wire::codes::Code;
use macp_wire::v1::{
    AgentManifest, CancellationCapability, Capabilities, DecisionReceiptCapability, ExperimentalCapabilities,
    GetManifestRequest, GetManifestResponse, InitializeRequest, InitializeResponse, ListExtModesResponse,
    ListModesResponse, ManifestCapability, ModeRegistryCapability, PolicyRegistryCapability, ProgressCapability,
    RootsCapability, RuntimeInfo, SessionsCapability,
};
use tonic::Status;

use crate::context::Context;
use crate::status;

const NAME: &str = "macp-runtime";
const TITLE: &str = "MACP Coordination Runtime";
const DESCRIPTION: &str = "A durable, replayable runtime for the Multi-Agent Coordination Protocol.";
const INSTRUCTIONS: &str = "Start a session with a SessionStart envelope, send its messages with Send or \
    StreamSession, and watch it with StreamSession's subscribe. Sending a message again with the same message_id is \
    safe. The history of a session is in macp.history.v1.HistoryService.";
const CONTENT_TYPE: &str = "application/macp-envelope+proto";

pub(super) fn initialize(ctx: &Context, request: &InitializeRequest) -> Result<InitializeResponse, Status> {
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
        capabilities: Some(capabilities(ctx)),
        supported_modes: supported_modes(ctx),
        instructions: INSTRUCTIONS.to_owned(),
    })
}

/// Only what works is told: where no standard session can be started, nothing is registered for one. Those that were
/// started before can still be looked into.
fn capabilities(ctx: &Context) -> Capabilities {
    let registers = offers(ctx, Profile::Standard);
    Capabilities {
        sessions: Some(SessionsCapability { stream: true, list_sessions: true, watch_sessions: true }),
        cancellation: Some(CancellationCapability { cancel_session: true }),
        progress: Some(ProgressCapability { progress: true }),
        manifest: Some(ManifestCapability { get_manifest: true }),
        mode_registry: Some(ModeRegistryCapability { list_modes: true, list_changed: true }),
        roots: Some(RootsCapability { list_roots: true, list_changed: true }),
        policy_registry: Some(PolicyRegistryCapability {
            register_policy: registers && !ctx.settings.policies_read_only,
            list_policies: true,
            list_changed: true,
            rule_extensions: Vec::new(),
            what_if_replay: true,
        }),
        decision_receipt: Some(DecisionReceiptCapability {
            get_decision_receipt: true,
            signed: ctx.receipts.signing_key.is_some(),
        }),
        experimental: Some(ExperimentalCapabilities {
            features: registers.then(|| ("ext_mode_lifecycle".to_owned(), "true".to_owned())).into_iter().collect(),
        }),
    }
}

/// Full names of everything offered, each once, by their bytes.
fn supported_modes(ctx: &Context) -> Vec<String> {
    let registered = ctx.registry.modes(true).into_iter().chain(ctx.registry.modes(false));
    let mut names: Vec<_> = offered(ctx).map(|spec| spec.name.to_owned()).collect();
    if offers(ctx, Profile::Standard) {
        names.extend(registered.map(|descriptor| descriptor.mode));
    }
    names.sort_unstable();
    names.dedup();
    names
}

pub(super) fn offers(ctx: &Context, profile: Profile) -> bool {
    match ctx.engine.limits().profile {
        ProfileSetting::Auto => true,
        ProfileSetting::Classic => profile == Profile::Classic,
        ProfileSetting::Standard => profile == Profile::Standard,
    }
}

/// The built-in modes of the profiles this server offers.
fn offered(ctx: &Context) -> impl Iterator<Item = &'static mode::Spec> {
    let kinds = mode::ALL.iter().filter(|kind| **kind != mode::Kind::Extension);
    kinds.map(|kind| kind.spec()).filter(|spec| offers(ctx, spec.profile))
}

/// The runtime's own manifest, which is the only one. The classic protocol has no use for the name asked for; but
/// clients of the standard ask without a credential too, and must not take it for somebody else's.
pub(super) fn manifest(ctx: &Context, request: &GetManifestRequest) -> Result<GetManifestResponse, Status> {
    let runtime_id = &ctx.settings.runtime_id;
    if !request.agent_id.is_empty() && request.agent_id != *runtime_id {
        return Err(status::coded(Code::AgentNotFound, format!("only the manifest of {runtime_id:?} is kept here")));
    }
    Ok(GetManifestResponse {
        manifest: Some(AgentManifest {
            agent_id: runtime_id.to_owned(),
            title: TITLE.to_owned(),
            description: DESCRIPTION.to_owned(),
            supported_modes: supported_modes(ctx),
            input_content_types: vec![CONTENT_TYPE.to_owned()],
            output_content_types: vec![CONTENT_TYPE.to_owned()],
            ..AgentManifest::default()
        }),
    })
}

/// Whether a built-in mode is an extension to the standard.
fn is_extension(spec: &mode::Spec) -> bool {
    spec.name.starts_with("ext.")
}

/// The standard's own modes first and in its order, then the classic ones it has no place for, then the promoted.
pub(super) fn modes(ctx: &Context) -> ListModesResponse {
    let of = |profile| offered(ctx).filter(move |spec| spec.profile == profile && !is_extension(spec));
    let mut specs: Vec<_> = of(Profile::Standard).collect();
    for spec in of(Profile::Classic) {
        if !specs.iter().any(|listed| listed.name == spec.name) {
            specs.push(spec);
        }
    }
    let mut modes: Vec<_> = specs.into_iter().map(mode::Spec::descriptor).collect();
    if offers(ctx, Profile::Standard) {
        modes.extend(ctx.registry.modes(true));
    }
    ListModesResponse { modes }
}

/// By name: those built in and those registered.
pub(super) fn extension_modes(ctx: &Context) -> ListExtModesResponse {
    let mut modes: Vec<_> = offered(ctx).filter(|spec| is_extension(spec)).map(mode::Spec::descriptor).collect();
    if offers(ctx, Profile::Standard) {
        modes.extend(ctx.registry.modes(false));
    }
    modes.sort_by(|a, b| a.mode.cmp(&b.mode));
    ListExtModesResponse { modes }
}
