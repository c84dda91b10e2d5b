//! Who calls: credentials to identities, and nothing else of the protocol.
//!
//! ```text
//!                 ┌ holds a dot, JWT configured ─▶ JWT ─────▶ identity or refused, the end of the chain
//!  credential ────┤
//!                 └ otherwise ───────────────────▶ tokens ──▶ identity or refused
//!                     neither configured ────────▶ local development: the value is the sender
//! ```
//!
//! Three promises hold everywhere in here:
//! a credential is never in a message, a log line or a `Debug` text;
//! what cannot be read for certain gives no right;
//! and whoever presents nothing hears the same as whoever presents an unknown token (STD-SEC-15).

mod authenticator;
mod error;
mod exposure;
mod given;
mod identity;
mod json;
mod jwt;
mod key;
mod keyset;
mod place;
mod refusal;
mod remote;
mod scopes;
mod secret;
mod settings;
mod tokens;
mod verified;

pub use authenticator::{Authenticator, Presented, Reloaded, Resolution};
pub use error::Error;
pub use exposure::{Exposure, Unsafe};
pub use given::Given;
pub use identity::{Identity, Modes};
pub use key::{Algorithm, UnknownAlgorithm};
pub use keyset::Problem as KeysProblem;
pub use place::Place;
pub use refusal::Refusal;
pub use secret::Secret;
pub use settings::{JwksSource, JwtSettings, RoleRights, Settings, TokenSource};
pub use tokens::Problem as TokensProblem;

/// Longest sender, in bytes, as everywhere in the protocol.
pub const SENDER_BYTES_MAX: usize = 256;

/// Longest credential that is looked at, in bytes. Header fields of common servers end near here, and it bounds what a
/// bad token can cost.
pub const CREDENTIAL_BYTES_MAX: usize = 16 * 1024;
