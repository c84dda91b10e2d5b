//! Every bound of the rules, by name and with its reason, and the limits a server sets.

use crate::{ProfileSetting, Rejection};

/// Longest session id, message id, sender, participant, mode, message type and version, and longest name or id in a payload,
/// in bytes.
/// Identifiers are kept in memory and shown to people; nothing sensible is longer.
pub const ID_BYTES_MAX: usize = 256;

/// Longest message id of a standard session, in bytes. The standard gives them no form, so this is generous; they are
/// kept as digests.
pub const STANDARD_MESSAGE_ID_BYTES_MAX: usize = 4096;

/// Longest id of a handoff, in bytes: the id of the accept the runtime may write is made from it and must itself be a legal
/// id.
pub const HANDOFF_ID_BYTES_MAX: usize = ID_BYTES_MAX - crate::mode::standard::handoff::IMPLICIT_ID_PREFIX.len();

/// Longest free text of a payload (intent, option, reason, rationale, title, summary and their like), in bytes. Text is for
/// people to read; what is longer than a long document is an attachment, and payloads have fields for those.
pub const TEXT_BYTES_MAX: usize = 65_536;

/// Longest reason of a cancellation, in bytes: a reason is a sentence, not a document.
pub const REASON_BYTES_MAX: usize = 4096;

/// Most participants of one session, the bound the public clients know.
pub const PARTICIPANTS_MAX: usize = 1000;

/// Most senders GetSession tells the activity of, those who wrote last: as many as a session may list participants.
/// Whoever likes may write to a session that lists none, and an answer must stay small.
pub const ACTIVITY_SHOWN_MAX: usize = PARTICIPANTS_MAX;

/// Longest context id that is told of a session, and most room its extension keys may take together, in bytes. The
/// standard lets both be of any length and a start is never refused for them; but they are in memory, in the index and in
/// every list, so what takes more room is in the first entry alone.
pub const LABEL_BYTES_MAX: usize = 16_384;

/// Longest value of one Multi-Round contribution, in bytes. The current value of every participant stays in memory
/// and all of them enter the resolution.
pub const CONTRIBUTION_BYTES_MAX: usize = 65_536;

/// Longest time a session may be suspended altogether when its start names none: seven days.
pub const SUSPEND_MS_DEFAULT: i64 = 604_800_000;

/// Life of a session that asks for none.
pub const TTL_MS_DEFAULT: i64 = 60_000;

/// Longest life a session may ask for: one day.
pub const TTL_MS_MAX: i64 = 86_400_000;

/// Holds a field to its bound.
pub(crate) fn check_length(field: &str, text: &str, bytes_max: usize) -> Result<(), Rejection> {
    if text.len() <= bytes_max {
        return Ok(());
    }
    Err(Rejection::invalid(format!("{field} is {} bytes long, at most {bytes_max} are allowed", text.len())))
}

/// What a server sets. Comes in as an argument, so that the same input under the same limits gets the same verdict.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Largest payload of an envelope, inclusive.
    pub payload_bytes_max: u64,
    /// How far in the future the timestamp of a SessionStart may lie.
    pub skew_ms_max: i64,
    /// Most entries of one session; bound at its start.
    pub session_entries_max: u64,
    /// Most bytes of envelopes of one session; bound at its start.
    pub session_bytes_max: u64,
    /// Which rules a SessionStart may choose.
    pub profile: ProfileSetting,
    /// Whether envelopes must be signed.
    pub signatures: SignatureRule,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            payload_bytes_max: 1_048_576,
            skew_ms_max: 300_000,
            session_entries_max: 100_000,
            session_bytes_max: 256 * 1024 * 1024,
            profile: ProfileSetting::Auto,
            signatures: SignatureRule::Optional,
        }
    }
}

/// Whether a server insists on signed envelopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignatureRule {
    /// A signature is checked when its key is registered and kept otherwise.
    #[default]
    Optional,
    /// Every envelope carries a signature of a registered key of its sender.
    Required,
}
