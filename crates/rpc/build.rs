//! Generates the gRPC services alone. Their messages are those of `macp-wire`, so they exist once in a build.

use std::path::Path;

const SERVICES: [&str; 3] = ["macp/v1/core.proto", "macp/history/v1/history.proto", "macp/plan/v1/plan.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());

    let descriptors = protox::compile(SERVICES, [&root])?;
    tonic_prost_build::configure()
        // Connecting is the caller's business; the stubs work over any transport.
        .build_transport(false)
        .extern_path(".macp", "::macp_wire")
        .compile_fds(descriptors)?;
    Ok(())
}
