//! Generates the gRPC services alone. Their messages are those of `macp-wire`, so they exist once in a build.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

const SERVICES: [&str; 3] = ["macp/v1/core.proto", "macp/history/v1/history.proto", "macp/plan/v1/plan.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());

    let descriptors = protox::compile(SERVICES, [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Connecting is the caller's business; the stubs work over any transport.
    let stubs = || {
        tonic_prost_build::configure()
            .build_transport(false)
            .extern_path(".macp", "::macp_wire")
            .codec_path("crate::codec::ProtobufCodec")
    };
    let clients = stubs().build_server(false).out_dir(directory(&out, "client")?);
    clients.compile_fds(descriptors.clone())?;
    let servers = stubs()
        .build_client(false)
        // What goes out on a stream may have been encoded before, for somebody else.
        .extern_path(".macp.v1.StreamSessionResponse", "crate::StreamFrame")
        .out_dir(directory(&out, "server")?);
    servers.compile_fds(descriptors)?;
    Ok(())
}

fn directory(out: &Path, name: &str) -> io::Result<PathBuf> {
    let directory = out.join(name);
    fs::create_dir_all(&directory)?;
    Ok(directory)
}
