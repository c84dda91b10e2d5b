//! The first field in which two entries differ, by name, with both values cut to where they do.

use std::fmt::{Debug, Write as _};

use bytes::Bytes;
use macp_wire::history::v1::entry::Input;
use macp_wire::history::v1::{Binding, Entry, RecordedSignature, TtlExpired};
use macp_wire::v1::{
    Envelope, ModeDescriptor, PolicyDescriptor, Root, SessionCancelPayload, SessionResumePayload, SessionSuspendPayload,
};

/// Name of a field, and its two values as text.
type Difference = (&'static str, (String, String));

/// Longest text of a value: a payload may be a megabyte long, and a report is for people.
const CHARACTERS_MAX: usize = 400;

/// Bytes shown of a value that is none of text.
const BYTES_SHOWN: usize = 48;

/// What is shown of the part two values have in common, when the difference lies far behind their beginning.
const LEAD: usize = 8;

/// The first of the named fields that differs. The type is taken apart in full, so that a new field is not forgotten.
macro_rules! first {
    ($prefix:literal, $expected:expr, $found:expr, $type:ident { $($field:ident),+ $(,)? }) => {{
        let (expected, found): (&$type, &$type) = ($expected, $found);
        let $type { $($field),+ } = expected;
        None$(.or_else(|| shown(concat!($prefix, stringify!($field)), $field, &found.$field)))+
    }};
}

/// Where two entries differ. The hash of what came before is the ledger's to fill in and `verify`'s to check, so the
/// end of a session is compared without it.
pub(super) fn difference(expected: &Entry, found: &Entry) -> Option<Difference> {
    let Entry {
        sequence,
        ordinal,
        accepted_at_unix_ms,
        identity,
        input: _,
        signature,
        binding: _,
        terminal: _,
        synthetic,
    } = expected;
    let ends =
        |entry: &Entry| entry.terminal.as_ref().map(|terminal| (terminal.state, terminal.resolution_sha256.clone()));
    shown("sequence", sequence, &found.sequence)
        .or_else(|| shown("ordinal", ordinal, &found.ordinal))
        .or_else(|| shown("accepted_at_unix_ms", accepted_at_unix_ms, &found.accepted_at_unix_ms))
        .or_else(|| shown("identity", identity, &found.identity))
        .or_else(|| input(expected.input.as_ref(), found.input.as_ref()))
        .or_else(|| shown("signature", signature, &found.signature))
        .or_else(|| shown("synthetic", synthetic, &found.synthetic))
        .or_else(|| binding(expected.binding.as_deref(), found.binding.as_deref()))
        .or_else(|| shown("terminal", &ends(expected), &ends(found)))
}

fn input(expected: Option<&Input>, found: Option<&Input>) -> Option<Difference> {
    match (expected, found) {
        (Some(Input::Envelope(expected)), Some(Input::Envelope(found))) => first!(
            "input.",
            expected,
            found,
            Envelope { macp_version, mode, message_type, message_id, session_id, sender, timestamp_unix_ms, payload }
        ),
        (Some(Input::TtlExpired(expected)), Some(Input::TtlExpired(found))) => {
            first!("input.", expected, found, TtlExpired { deadline_unix_ms, cause })
        }
        (Some(Input::SessionCancel(expected)), Some(Input::SessionCancel(found))) => {
            first!("input.", expected, found, SessionCancelPayload { reason, cancelled_by })
        }
        (Some(Input::SessionSuspend(expected)), Some(Input::SessionSuspend(found))) => {
            first!("input.", expected, found, SessionSuspendPayload { reason, suspended_by })
        }
        (Some(Input::SessionResume(expected)), Some(Input::SessionResume(found))) => {
            first!("input.", expected, found, SessionResumePayload { reason, resumed_by, banked_ms })
        }
        (expected, found) => shown("input", &kind(expected), &kind(found)),
    }
}

fn kind(input: Option<&Input>) -> &'static str {
    match input {
        None => "none",
        Some(Input::Envelope(_)) => "envelope",
        Some(Input::TtlExpired(_)) => "ttl_expired",
        Some(Input::SessionCancel(_)) => "session_cancel",
        Some(Input::SessionSuspend(_)) => "session_suspend",
        Some(Input::SessionResume(_)) => "session_resume",
    }
}

fn binding(expected: Option<&Binding>, found: Option<&Binding>) -> Option<Difference> {
    match (expected, found) {
        (Some(expected), Some(found)) => first!(
            "binding.",
            expected,
            found,
            Binding {
                profile,
                protocol_version,
                schema_major,
                semantics_revision,
                mode,
                mode_version,
                configuration_version,
                policy_version,
                initiator,
                participants,
                deadline_unix_ms,
                context,
                roots,
                entries_max,
                bytes_max,
                intent,
                ttl_ms,
                policy,
                suspend_ms_max,
                extension_mode,
                extension_promoted,
            }
        ),
        (expected, found) => {
            let presence = |binding: Option<&Binding>| if binding.is_some() { "present" } else { "absent" };
            shown("binding", &presence(expected), &presence(found))
        }
    }
}

fn shown<T: Shown>(field: &'static str, expected: &T, found: &T) -> Option<Difference> {
    (expected != found).then(|| (field, T::texts(expected, found)))
}

/// How two unequal values are told apart.
trait Shown: PartialEq + Debug {
    fn texts(expected: &Self, found: &Self) -> (String, String) {
        texts(expected, found)
    }
}

impl Shown for bool {}
impl Shown for i32 {}
impl Shown for i64 {}
impl Shown for u32 {}
impl Shown for u64 {}
impl Shown for &str {}
impl Shown for String {}
impl Shown for Vec<String> {}
impl Shown for Vec<Root> {}
impl Shown for Option<RecordedSignature> {}
impl Shown for Option<PolicyDescriptor> {}
impl Shown for Option<ModeDescriptor> {}
impl Shown for Option<(i32, Bytes)> {}

impl Shown for Bytes {
    fn texts(expected: &Self, found: &Self) -> (String, String) {
        let common = expected.iter().zip(found).take_while(|(expected, found)| expected == found).count();
        let from = if common < BYTES_SHOWN { 0 } else { common - LEAD };
        (hex(expected, from), hex(found, from))
    }
}

/// Length and a few bytes, from an offset on.
fn hex(bytes: &[u8], from: usize) -> String {
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

/// Two values as they are printed, cut to where they differ.
pub(super) fn texts(expected: &(impl Debug + ?Sized), found: &(impl Debug + ?Sized)) -> (String, String) {
    let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
    let common = expected.chars().zip(found.chars()).take_while(|(expected, found)| expected == found).count();
    let from = if common < CHARACTERS_MAX { 0 } else { common - LEAD };
    (excerpt(&expected, from), excerpt(&found, from))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn with(envelope: Envelope) -> Entry {
        Entry { input: Some(Input::Envelope(envelope)), ..Entry::default() }
    }

    #[track_caller]
    fn check(expected: &Entry, found: &Entry, field: &str, texts: [&str; 2]) {
        let (name, (expected, found)) = difference(expected, found).expect("they differ");
        assert_eq!((name, [expected.as_str(), &found]), (field, texts));
    }

    #[test]
    fn equal_entries_have_no_difference() {
        let entry = with(Envelope { payload: vec![1; 9].into(), ..Envelope::default() });
        assert_eq!(difference(&entry, &entry.clone()), None);
        assert_eq!(difference(&Entry::default(), &Entry::default()), None);
    }

    #[test]
    fn the_field_is_named() {
        let found = with(Envelope { message_id: "m2".into(), payload: "x".into(), ..Envelope::default() });
        let expected = with(Envelope { message_id: "m1".into(), ..Envelope::default() });
        check(&expected, &found, "input.message_id", ["\"m1\"", "\"m2\""]);
        let expired = Entry { input: Some(Input::TtlExpired(TtlExpired::default())), ..Entry::default() };
        check(&expected, &expired, "input", ["\"envelope\"", "\"ttl_expired\""]);
        let bound =
            |ttl_ms| Entry { binding: Some(Box::new(Binding { ttl_ms, ..Binding::default() })), ..Entry::default() };
        check(&bound(1), &bound(2), "binding.ttl_ms", ["1", "2"]);
        check(&bound(1), &Entry::default(), "binding", ["\"present\"", "\"absent\""]);
    }

    #[test]
    fn long_values_are_cut_to_where_they_differ() {
        let payload = |last: u8| {
            let mut payload = vec![0xab; 100_000];
            payload.push(last);
            with(Envelope { payload: payload.into(), ..Envelope::default() })
        };
        check(
            &payload(1),
            &payload(2),
            "input.payload",
            ["100001 bytes, from byte 99992: abababababababab01", "100001 bytes, from byte 99992: abababababababab02"],
        );
        let shorter = with(Envelope { payload: vec![0xab; 3].into(), ..Envelope::default() });
        let empty = with(Envelope::default());
        check(&shorter, &empty, "input.payload", ["3 bytes: ababab", "0 bytes"]);

        let sender = |end: &str| with(Envelope { sender: "ä".repeat(1_000) + end, ..Envelope::default() });
        check(&sender("x"), &sender("y"), "input.sender", ["…ääääääääx\"", "…ääääääääy\""]);
    }
}
