//! The first field in which two entries differ, by name, with both values cut to where they do.

use macp_wire::history::v1::entry::Input;
use macp_wire::history::v1::{Binding, Entry, TtlExpired};
use macp_wire::v1::{Envelope, SessionCancelPayload, SessionResumePayload, SessionSuspendPayload};

use super::shown::{Difference, Ending, shown};

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
    shown("sequence", sequence, &found.sequence)
        .or_else(|| shown("ordinal", ordinal, &found.ordinal))
        .or_else(|| shown("accepted_at_unix_ms", accepted_at_unix_ms, &found.accepted_at_unix_ms))
        .or_else(|| shown("identity", identity, &found.identity))
        .or_else(|| input(expected.input.as_ref(), found.input.as_ref()))
        .or_else(|| shown("signature", signature, &found.signature))
        .or_else(|| shown("synthetic", synthetic, &found.synthetic))
        .or_else(|| binding(expected.binding.as_deref(), found.binding.as_deref()))
        .or_else(|| shown("terminal", &Ending::of(expected), &Ending::of(found)))
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

#[cfg(test)]
mod tests {
    use macp_wire::history::v1::{ExpiryCause, Profile, RecordedSignature, Terminal};
    use macp_wire::signature::v1::EnvelopeSignature;
    use macp_wire::v1::{PolicyDescriptor, Root, SessionState};

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
        check(&expected, &expired, "input", ["envelope", "ttl_expired"]);
        let bound =
            |ttl_ms| Entry { binding: Some(Box::new(Binding { ttl_ms, ..Binding::default() })), ..Entry::default() };
        check(&bound(1), &bound(2), "binding.ttl_ms", ["1", "2"]);
        check(&bound(1), &Entry::default(), "binding", ["present", "absent"]);
    }

    /// Names and hexadecimal digits, as people and other tools write them.
    #[test]
    fn values_are_readable() {
        let ended = |state: SessionState, resolution: &'static [u8]| Entry {
            terminal: Some(Terminal {
                state: state.into(),
                resolution_sha256: resolution.into(),
                history_hash: "differs".into(),
            }),
            ..Entry::default()
        };
        let resolved = ended(SessionState::Resolved, b"\xfe\xc0\x01");
        check(
            &resolved,
            &ended(SessionState::Resolved, b"\x0f\x5a"),
            "terminal",
            ["Resolved, resolution of SHA-256 fec001", "Resolved, resolution of SHA-256 0f5a"],
        );
        check(
            &resolved,
            &ended(SessionState::Expired, b""),
            "terminal",
            ["Resolved, resolution of SHA-256 fec001", "Expired, no resolution"],
        );
        let unknown = ended(SessionState::Resolved, b"");
        let unknown = Entry { terminal: unknown.terminal.map(|it| Terminal { state: 77, ..it }), ..unknown };
        check(&unknown, &Entry::default(), "terminal", ["state 77, no resolution", "not the end of the session"]);

        let signed = |key_id: &str| Entry {
            signature: Some(RecordedSignature {
                signature: Some(EnvelopeSignature { key_id: key_id.into(), signature: vec![0xab; 3].into() }),
                public_key: vec![0xcd; 2].into(),
            }),
            ..Entry::default()
        };
        let text = r#"key_id "k1", signature ababab, public_key cdcd"#;
        check(&signed("k1"), &Entry::default(), "signature", [text, "none"]);
        check(&signed("k1"), &signed("k2"), "signature", [text, r#"key_id "k2", signature ababab, public_key cdcd"#]);

        let bound = |binding| Entry { binding: Some(Box::new(binding)), ..Entry::default() };
        let profile = |profile: Profile| bound(Binding { profile: profile.into(), ..Binding::default() });
        check(&profile(Profile::Classic), &profile(Profile::Standard), "binding.profile", ["classic", "standard"]);
        let roots = |roots| bound(Binding { roots, ..Binding::default() });
        let root = Root { uri: "file:///a".into(), name: "a".into() };
        check(&roots(vec![root]), &roots(Vec::new()), "binding.roots", [r#"["a" at "file:///a"]"#, "[]"]);
        let governed = |rules: &str| {
            let policy = PolicyDescriptor { policy_id: "p".into(), rules: rules.into(), ..Default::default() };
            bound(Binding { policy: Some(policy), ..Binding::default() })
        };
        let texts = ["{}", "{\"voting\":{}}"].map(|rules| {
            format!(
                r#"policy_id "p", mode "", description "", schema_version 0, registered_at_unix_ms 0, rules {rules}"#
            )
        });
        check(&governed("{}"), &governed("{\"voting\":{}}"), "binding.policy", [&texts[0], &texts[1]]);
        let expired = |cause: ExpiryCause| Entry {
            input: Some(Input::TtlExpired(TtlExpired { cause: cause.into(), ..Default::default() })),
            ..Entry::default()
        };
        check(
            &expired(ExpiryCause::Unspecified),
            &expired(ExpiryCause::SuspensionTime),
            "input.cause",
            ["deadline", "suspension_time"],
        );
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
