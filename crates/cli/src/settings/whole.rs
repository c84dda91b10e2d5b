//! Whether settings fit together.

use super::draft::Draft;

/// What no setting can see for itself.
pub(super) fn check(draft: &Draft) -> Vec<String> {
    let mut problems = Vec::new();
    let server = &draft.server;
    if server.list_page_size_default > server.list_page_size_max {
        problems.push(format!(
            "list_sessions_default_page_size ({}) is larger than list_sessions_max_page_size ({})",
            server.list_page_size_default, server.list_page_size_max
        ));
    }
    let limits = &server.engine.limits;
    if limits.payload_bytes_max > server.engine.bytes_in_flight_max {
        problems.push(format!(
            "max_payload_bytes ({}) is larger than max_bytes_in_flight ({}), so such a payload could never be taken",
            limits.payload_bytes_max, server.engine.bytes_in_flight_max
        ));
    }
    if limits.signatures == macp_kernel::SignatureRule::Required && draft.keys_file.is_none() {
        problems.push("signatures are required, but no signing_keys_file names any key".to_owned());
    }
    if draft.data.as_os_str().is_empty() {
        problems.push("data: the name of the directory is empty".to_owned());
    }
    if let Err(error) = tracing_subscriber::EnvFilter::try_new(&draft.log_filter) {
        problems.push(format!("log: {:?} is not a filter: {error}", draft.log_filter));
    }
    problems
}
