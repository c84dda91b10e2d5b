//! The doors: one port on which gRPC and plain HTTP are served.
//!
//! This room knows transports, credentials and limits, and no rule of the protocol: a request is decoded, its caller
//! identified, the engine asked, the answer encoded.
//!
//! ```text
//!  TCP, TLS ──▶ serving ──▶ connection ──▶ front ──▶ runtime (macp.v1): Send ──▶ engine ──▶ …
//!                                            └──▶ guard ──▶ runtime: everything else
//!                                                             │───▶ history (macp.history.v1) ──▶ store, archive
//!                                                             │───▶ plan (macp.plan.v1) ──▶ executor, store of runs
//!                                                             │───▶ health, reflection
//!                                                             └───▶ http (/healthz, /readyz, /metrics)
//! ```
//!
//! Invariants: every refusal of an envelope travels in its answer and not in a status; every status carries a code of
//! the registry; whatever streams is bounded, and ends when the client leaves or the server drains.

mod access;
mod ack;
mod attached;
mod bell;
mod connection;
mod connections;
mod context;
mod deadline;
mod drain;
mod front;
mod gather;
mod greeting;
mod guard;
mod health;
mod history;
mod http;
mod identity;
mod listener;
mod metrics;
mod observer;
mod outbound;
mod plan;
mod plan_metrics;
mod quota;
mod rate;
mod readers;
mod replies;
mod requests;
mod runtime;
mod scrape;
mod serving;
mod settings;
mod startup;
mod status;
mod streamed;
mod tls;
mod unary;

pub use settings::{AuditSettings, OperatorPolicy, PlanSettings, Receipts, Reloadable, Settings, Tls};
pub use startup::{Server, ShutdownError, StartError};
pub use tls::TlsError;
