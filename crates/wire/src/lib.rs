//! The words of the protocol: protobuf messages, the history entry, payload codecs, canonical JSON, signing bytes and
//! error codes.
//!
//! Everything here is data and its encodings. No rule of the protocol, no I/O, no clock and no async runtime may live
//! here; the gRPC stubs over these messages are in `macp-rpc`.
//!
//! The messages are generated from `proto/`, one module per protobuf package. All `bytes` fields are
//! [`bytes::Bytes`], so that handing a payload on costs no copy, and all maps are ordered, so that encoding a message
//! twice gives the same bytes.

pub mod canonical;
pub mod codes;
pub mod informational;
pub mod memory;
pub mod payload;
pub mod signing;

/// Messages as generated. One tree with the nesting of the protobuf packages, since generated code refers from one
/// package to another by relative paths.
#[allow(clippy::all, rustdoc::all, unreachable_pub)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/packages.rs"));
}

pub use generated::macp::{classic, history, modes, plan, signature, v1};

/// The encoded `FileDescriptorSet` of every protobuf file of this project, for reflection and for tests.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
