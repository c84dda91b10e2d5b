//! The error code registry of the protocol, with what each code becomes on each transport.
//!
//! [`Code`] is a closed set for what we emit. Codes that arrive from elsewhere stay strings: a client must tolerate
//! ones it does not know.

use std::fmt;

/// Why the protocol refused something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// No valid identity, or the sender is another than the identity.
    Unauthenticated,
    /// The identity is valid but may not do this.
    Forbidden,
    SessionNotFound,
    /// The session is suspended or has ended.
    SessionNotOpen,
    /// Reserved. A duplicate is a success, so this is never emitted.
    DuplicateMessage,
    /// A second start for a session id.
    SessionAlreadyExists,
    /// The envelope's shape, its payload, a rule of the mode or a version binding is violated.
    InvalidEnvelope,
    UnsupportedProtocolVersion,
    ModeNotSupported,
    PayloadTooLarge,
    RateLimited,
    InvalidSessionId,
    /// Storage or the runtime itself failed; the outcome is unknown.
    InternalError,
    UnknownPolicyVersion,
    /// Governance refused it.
    PolicyDenied,
    InvalidPolicyDefinition,
    RegistryReadOnly,
    /// A request message, not an envelope, is malformed.
    InvalidRequest,
    /// A subscriber read too slowly.
    StreamLagged,
    AgentNotFound,
    /// The history needed is no longer kept.
    HistoryUnavailable,
    ReceiptUnavailable,
    /// Deprecated alias of [`Code::Forbidden`]. Understood, never emitted.
    Unauthorized,
    RunNotFound,
    SkillNotFound,
    /// A text is no plan that could be executed; what is wrong with it is said.
    PlanInvalid,
    /// The plan is well formed, and yet must not run like this.
    PlanRefused,
    /// How a run stands rules out what was asked of it.
    RunConflict,
    /// The request id was used before, for something else.
    RequestReused,
}

/// The gRPC status codes the registry uses, with their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum GrpcStatus {
    InvalidArgument = 3,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Internal = 13,
    Unauthenticated = 16,
}

struct Row {
    code: Code,
    name: &'static str,
    grpc: GrpcStatus,
    http: u16,
    retryable: bool,
}

const fn row(code: Code, name: &'static str, grpc: GrpcStatus, http: u16) -> Row {
    Row { code, name, grpc, http, retryable: false }
}

const fn retryable(row: Row) -> Row {
    Row { retryable: true, ..row }
}

/// In the order of [`Code`]'s variants, so that a code is its own index.
#[rustfmt::skip]
static TABLE: [Row; 29] = {
    use Code::*;
    use GrpcStatus as Grpc;
    [
        row(Unauthenticated, "UNAUTHENTICATED", Grpc::Unauthenticated, 401),
        row(Forbidden, "FORBIDDEN", Grpc::PermissionDenied, 403),
        row(SessionNotFound, "SESSION_NOT_FOUND", Grpc::NotFound, 404),
        row(SessionNotOpen, "SESSION_NOT_OPEN", Grpc::FailedPrecondition, 409),
        row(DuplicateMessage, "DUPLICATE_MESSAGE", Grpc::AlreadyExists, 409),
        row(SessionAlreadyExists, "SESSION_ALREADY_EXISTS", Grpc::AlreadyExists, 409),
        row(InvalidEnvelope, "INVALID_ENVELOPE", Grpc::InvalidArgument, 400),
        row(UnsupportedProtocolVersion, "UNSUPPORTED_PROTOCOL_VERSION", Grpc::InvalidArgument, 400),
        row(ModeNotSupported, "MODE_NOT_SUPPORTED", Grpc::InvalidArgument, 400),
        row(PayloadTooLarge, "PAYLOAD_TOO_LARGE", Grpc::ResourceExhausted, 413),
        retryable(row(RateLimited, "RATE_LIMITED", Grpc::ResourceExhausted, 429)),
        row(InvalidSessionId, "INVALID_SESSION_ID", Grpc::InvalidArgument, 400),
        retryable(row(InternalError, "INTERNAL_ERROR", Grpc::Internal, 500)),
        row(UnknownPolicyVersion, "UNKNOWN_POLICY_VERSION", Grpc::NotFound, 404),
        row(PolicyDenied, "POLICY_DENIED", Grpc::PermissionDenied, 403),
        row(InvalidPolicyDefinition, "INVALID_POLICY_DEFINITION", Grpc::InvalidArgument, 400),
        row(RegistryReadOnly, "REGISTRY_READ_ONLY", Grpc::FailedPrecondition, 409),
        row(InvalidRequest, "INVALID_REQUEST", Grpc::InvalidArgument, 400),
        row(StreamLagged, "STREAM_LAGGED", Grpc::ResourceExhausted, 503),
        row(AgentNotFound, "AGENT_NOT_FOUND", Grpc::NotFound, 404),
        row(HistoryUnavailable, "HISTORY_UNAVAILABLE", Grpc::FailedPrecondition, 409),
        row(ReceiptUnavailable, "RECEIPT_UNAVAILABLE", Grpc::FailedPrecondition, 409),
        row(Unauthorized, "UNAUTHORIZED", Grpc::PermissionDenied, 403),
        row(RunNotFound, "RUN_NOT_FOUND", Grpc::NotFound, 404),
        row(SkillNotFound, "SKILL_NOT_FOUND", Grpc::NotFound, 404),
        row(PlanInvalid, "PLAN_INVALID", Grpc::InvalidArgument, 400),
        row(PlanRefused, "PLAN_REFUSED", Grpc::FailedPrecondition, 409),
        row(RunConflict, "RUN_CONFLICT", Grpc::FailedPrecondition, 409),
        row(RequestReused, "REQUEST_REUSED", Grpc::AlreadyExists, 409),
    ]
};

impl Code {
    /// Every code, in the order of the registry.
    pub fn all() -> impl Iterator<Item = Code> {
        TABLE.iter().map(|row| row.code)
    }

    /// The code as it is spelled on the wire.
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// The code spelled `name`; none when the registry has no such code.
    pub fn parse(name: &str) -> Option<Code> {
        TABLE.iter().find(|row| row.name == name).map(|row| row.code)
    }

    /// The gRPC status where the code ends a call rather than travelling in an Ack.
    pub const fn grpc_status(self) -> GrpcStatus {
        self.row().grpc
    }

    /// The HTTP status of the JSON binding.
    pub const fn http_status(self) -> u16 {
        self.row().http
    }

    /// Whether the same request, sent again unchanged and later, may succeed.
    pub const fn retryable(self) -> bool {
        self.row().retryable
    }

    const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}

impl GrpcStatus {
    /// The number of the status on the wire.
    pub const fn number(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_its_own_index() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.code as usize, index, "{}", row.name);
        }
    }

    #[test]
    fn names_are_the_variants_and_parse_back() {
        for code in Code::all() {
            let name: String =
                code.as_str().split('_').map(|word| format!("{}{}", &word[..1], word[1..].to_lowercase())).collect();
            assert_eq!(name, format!("{code:?}"));
            assert_eq!(Code::parse(code.as_str()), Some(code));
        }
        assert_eq!(Code::parse("forbidden"), None);
        assert_eq!(Code::parse(""), None);
    }

    #[test]
    fn only_overload_and_own_failures_are_retryable() {
        let retryable: Vec<_> = Code::all().filter(|code| code.retryable()).collect();
        assert_eq!(retryable, [Code::RateLimited, Code::InternalError]);
    }

    #[test]
    fn transports_agree_on_the_kind_of_failure() {
        use GrpcStatus::*;
        for code in Code::all() {
            let http: &[u16] = match code.grpc_status() {
                InvalidArgument => &[400],
                Unauthenticated => &[401],
                PermissionDenied => &[403],
                NotFound => &[404],
                AlreadyExists | FailedPrecondition => &[409],
                ResourceExhausted => &[413, 429, 503],
                Internal => &[500],
            };
            assert!(http.contains(&code.http_status()), "{code}");
        }
        assert_eq!(Code::Unauthenticated.grpc_status().number(), 16);
    }
}
