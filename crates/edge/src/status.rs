//! gRPC statuses, each with the code of the registry that clients branch on.

use bytes::Bytes;
use macp_engine::{Error, SubscriptionError};
use macp_wire::codes::Code;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code as Grpc, Status};

/// Where the code of the registry travels beside a status.
pub(crate) const ERROR_CODE: &str = "macp-error-code";

/// Where the details of a refusal travel beside a status.
const ERROR_DETAILS: &str = "macp-error-details-bin";

/// A status as the registry maps the code.
pub(crate) fn coded(code: Code, message: impl Into<String>) -> Status {
    with_grpc(Grpc::from_i32(code.grpc_status().number()), code, message)
}

/// A status other than the one the registry maps the code to.
pub(crate) fn with_grpc(grpc: Grpc, code: Code, message: impl Into<String>) -> Status {
    let mut metadata = MetadataMap::with_capacity(1);
    metadata.insert(ERROR_CODE, MetadataValue::from_static(code.as_str()));
    Status::with_metadata(grpc, message, metadata)
}

/// As [`coded`], with what programs can read of it.
pub(crate) fn with_details(code: Code, message: impl Into<String>, details: Bytes) -> Status {
    let mut status = coded(code, message);
    if !details.is_empty() {
        status.metadata_mut().insert_bin(ERROR_DETAILS, MetadataValue::from_bytes(&details));
    }
    status
}

pub(crate) fn session_not_found(session_id: &str) -> Status {
    coded(Code::SessionNotFound, format!("there is no session {:?}", shown(session_id)))
}

pub(crate) fn invalid_request(message: impl Into<String>) -> Status {
    coded(Code::InvalidRequest, message)
}

pub(crate) fn internal(message: impl Into<String>) -> Status {
    coded(Code::InternalError, message)
}

/// A bug of ours, which its panic has told.
pub(crate) fn panicked() -> Status {
    internal("the request failed in a way it should not")
}

/// The client may try another server, or this one later.
pub(crate) fn shutting_down() -> Status {
    with_grpc(Grpc::Unavailable, Code::InternalError, "the server is shutting down")
}

/// What came of the request is not known, as after a failure of ours.
pub(crate) fn too_late() -> Status {
    with_grpc(Grpc::DeadlineExceeded, Code::InternalError, "the request took too long; what came of it is not known")
}

pub(crate) fn lagged() -> Status {
    coded(Code::StreamLagged, "read too slowly and fell too far behind; subscribe again to go on")
}

pub(crate) fn of_engine(error: &Error) -> Status {
    match error {
        Error::Overloaded => coded(Code::RateLimited, error.to_string()),
        Error::ShuttingDown => shutting_down(),
        _ours => internal(error.to_string()),
    }
}

pub(crate) fn of_subscription(error: &SubscriptionError) -> Status {
    match error {
        SubscriptionError::Lagged(_) => lagged(),
        SubscriptionError::Engine(error) => of_engine(error),
        SubscriptionError::Read(_) | SubscriptionError::Frame { .. } => internal(error.to_string()),
    }
}

/// A text with its causes, for failures that only their source explains.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Ids of any length arrive; a status travels in a header and must stay small.
pub(crate) fn shown(id: &str) -> &str {
    match id.char_indices().nth(macp_kernel::ID_BYTES_MAX) {
        Some((at, _)) => &id[..at],
        None => id,
    }
}
