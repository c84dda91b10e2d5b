//! Typed client of a MACP runtime, over the gRPC stubs of `macp-rpc`.
//!
//! A [`Client`] is cheap to clone and safe to share; its connection heals itself. Envelopes are written with the
//! functions of [`envelope`]. What can go wrong is told apart: [`Error::Refused`] is the protocol saying no,
//! [`Error::Status`] is a call that failed, the rest is on our side of the wire.
//!
//! ```no_run
//! # async fn tour() -> Result<(), macp_client::Error> {
//! use macp_client::{Client, envelope};
//!
//! let client = Client::connect("http://127.0.0.1:50051").await?;
//! client.submit(envelope::start("s1", "decision", "alice", envelope::Start::default())).await?;
//! client.submit(envelope::proposal("s1", "alice", "p1", "Deploy on Friday", "The tests pass.")).await?;
//! # Ok(())
//! # }
//! ```
//!
//! No rule of the protocol lives here: what may be sent is for the server to decide.

pub mod envelope;
mod error;
mod history;
mod incoming;
mod plans;
mod registries;
mod sessions;
mod tls;
mod transport;

pub use envelope::Draft;
pub use error::{Error, Refusal, Status};
pub use history::{LOG_PAGE_SIZE_MAX, Replayed};
pub use incoming::{Conversation, Incoming};
pub use plans::RunReplayed;
pub use tls::{ClientCertificate, Tls};
pub use transport::{Bearer, Client};
