//! Two unequal values as people read them: names for states, hexadecimal digits for bytes, and no more than tells them apart.

use std::fmt::Write as _;

use bytes::Bytes;
use macp_wire::history::v1::{Entry, ExpiryCause, Profile, RecordedSignature};
use macp_wire::v1::{ModeDescriptor, PolicyDescriptor, Root, SessionState};

/// Name of a field, and its two values as text.
pub(super) type Difference = (&'static str, (String, String));

/// Longest text of a value: a payload may be a megabyte long, and a report is for people.
const CHARACTERS_MAX: usize = 400;

/// Bytes shown of a value that is none of text.
const BYTES_SHOWN: usize = 48;

/// What is shown of the part two values have in common, when the difference lies far behind their beginning.
const LEAD: usize = 8;

/// The field with its two values, if they differ.
pub(super) fn shown<T: Shown>(field: &'static str, expected: &T, found: &T) -> Option<Difference> {
    (expected != found).then(|| (field, T::texts(field, expected, found)))
}

/// How two unequal values are told apart.
pub(super) trait Shown: PartialEq {
    fn text(&self, field: &str) -> String;

    fn texts(field: &str, expected: &Self, found: &Self) -> (String, String) {
        excerpts(&expected.text(field), &found.text(field))
    }
}

/// Numbers, and text in quotation marks.
macro_rules! shown_as_written {
    ($($type:ty),+) => {
        $(impl Shown for $type {
            fn text(&self, _field: &str) -> String {
                format!("{self:?}")
            }
        })+
    };
}

shown_as_written!(bool, i64, u32, u64, String, Vec<String>);

/// One of our own words.
impl Shown for &str {
    fn text(&self, _field: &str) -> String {
        (*self).to_owned()
    }
}

/// A number that stands for a name.
impl Shown for i32 {
    fn text(&self, field: &str) -> String {
        let name = match field {
            "binding.profile" => Profile::try_from(*self).ok().map(|profile| match profile {
                Profile::Unspecified => "unspecified",
                Profile::Classic => "classic",
                Profile::Standard => "standard",
            }),
            "input.cause" => ExpiryCause::try_from(*self).ok().map(|cause| match cause {
                ExpiryCause::Unspecified => "deadline",
                ExpiryCause::SuspensionTime => "suspension_time",
                ExpiryCause::SuspensionCount => "suspension_count",
            }),
            _ => None,
        };
        name.map_or_else(|| self.to_string(), str::to_owned)
    }
}

/// How an entry ends its session, if it does. The hash of what came before is left out.
#[derive(PartialEq)]
pub(super) struct Ending<'a>(Option<(i32, &'a Bytes)>);

impl<'a> Ending<'a> {
    pub(super) fn of(entry: &'a Entry) -> Self {
        Ending(entry.terminal.as_ref().map(|terminal| (terminal.state, &terminal.resolution_sha256)))
    }
}

impl Shown for Ending<'_> {
    fn text(&self, _field: &str) -> String {
        let Some((state, resolution_sha256)) = self.0 else {
            return "not the end of the session".to_owned();
        };
        let state = match SessionState::try_from(state) {
            Ok(SessionState::Unspecified) => "no state".to_owned(),
            Ok(SessionState::Open) => "Open".to_owned(),
            Ok(SessionState::Resolved) => "Resolved".to_owned(),
            Ok(SessionState::Expired) => "Expired".to_owned(),
            Ok(SessionState::Suspended) => "Suspended".to_owned(),
            Ok(SessionState::Cancelled) => "Cancelled".to_owned(),
            Err(_unknown) => format!("state {state}"),
        };
        match resolution_sha256.is_empty() {
            true => format!("{state}, no resolution"),
            false => format!("{state}, resolution of SHA-256 {}", hex::encode(resolution_sha256)),
        }
    }
}

impl Shown for Vec<Root> {
    fn text(&self, _field: &str) -> String {
        let roots: Vec<_> = self.iter().map(|Root { uri, name }| format!("{name:?} at {uri:?}")).collect();
        format!("[{}]", roots.join(", "))
    }
}

/// What may be absent.
macro_rules! shown_if_there {
    ($($type:ty: $text:path),+ $(,)?) => {
        $(impl Shown for Option<$type> {
            fn text(&self, _field: &str) -> String {
                self.as_ref().map_or_else(|| "none".to_owned(), $text)
            }
        })+
    };
}

shown_if_there!(RecordedSignature: signature, PolicyDescriptor: policy, ModeDescriptor: mode);

fn signature(recorded: &RecordedSignature) -> String {
    let RecordedSignature { signature, public_key } = recorded;
    let signature = signature.clone().unwrap_or_default();
    let (bytes, public_key) = (hex::encode(signature.signature), hex::encode(public_key));
    format!("key_id {:?}, signature {bytes}, public_key {public_key}", signature.key_id)
}

/// The rules come last: they may be long, and are JSON already.
fn policy(descriptor: &PolicyDescriptor) -> String {
    let PolicyDescriptor { policy_id, mode, description, rules, schema_version, registered_at_unix_ms } = descriptor;
    format!(
        "policy_id {policy_id:?}, mode {mode:?}, description {description:?}, schema_version {schema_version}, \
         registered_at_unix_ms {registered_at_unix_ms}, rules {rules}"
    )
}

fn mode(descriptor: &ModeDescriptor) -> String {
    let ModeDescriptor {
        mode,
        mode_version,
        title,
        description,
        determinism_class,
        participant_model,
        message_types,
        terminal_message_types,
        schema_uris,
    } = descriptor;
    format!(
        "mode {mode:?}, mode_version {mode_version:?}, title {title:?}, description {description:?}, \
         determinism_class {determinism_class:?}, participant_model {participant_model:?}, \
         message_types {message_types:?}, terminal_message_types {terminal_message_types:?}, schema_uris {schema_uris:?}"
    )
}

impl Shown for Bytes {
    fn text(&self, _field: &str) -> String {
        excerpt_of_bytes(self, 0)
    }

    fn texts(_field: &str, expected: &Self, found: &Self) -> (String, String) {
        let common = expected.iter().zip(found).take_while(|(expected, found)| expected == found).count();
        let from = if common < BYTES_SHOWN { 0 } else { common - LEAD };
        (excerpt_of_bytes(expected, from), excerpt_of_bytes(found, from))
    }
}

/// Length and a few bytes, from an offset on.
fn excerpt_of_bytes(bytes: &[u8], from: usize) -> String {
    let mut text = format!("{} bytes", bytes.len());
    if from > 0 {
        write!(text, ", from byte {from}").expect("a String takes everything");
    }
    let rest = bytes.get(from..).unwrap_or_default();
    if !rest.is_empty() {
        text.push_str(": ");
    }
    for byte in rest.iter().take(BYTES_SHOWN) {
        write!(text, "{byte:02x}").expect("a String takes everything");
    }
    if rest.len() > BYTES_SHOWN {
        text.push('…');
    }
    text
}

/// Two texts, cut to where they differ.
pub(super) fn excerpts(expected: &str, found: &str) -> (String, String) {
    let common = expected.chars().zip(found.chars()).take_while(|(expected, found)| expected == found).count();
    let from = if common < CHARACTERS_MAX { 0 } else { common - LEAD };
    (excerpt(expected, from), excerpt(found, from))
}

fn excerpt(text: &str, from: usize) -> String {
    let mut rest = text.chars().skip(from);
    let mut excerpt = String::new();
    if from > 0 {
        excerpt.push('…');
    }
    excerpt.extend(rest.by_ref().take(CHARACTERS_MAX));
    if rest.next().is_some() {
        excerpt.push('…');
    }
    excerpt
}
