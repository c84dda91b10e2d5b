//! The bytes an envelope signature is made over.
//!
//! They are the label, a colon, and the deterministic protobuf encoding of the envelope: fields in ascending order of
//! their numbers, each at most once, fields at their default left out, varints in their shortest form, unknown fields
//! left out. That is what prost writes for this message, which has no map; the test below fixes it for other languages.

use prost::Message;

use crate::v1::Envelope;

/// Sets these signatures apart from any other use of the same key.
pub const LABEL: &str = "macp-envelope-signature/1";

/// What a key signs to vouch for `envelope`, with the sender as the signer sent it.
pub fn signing_bytes(envelope: &Envelope) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LABEL.len() + 1 + envelope.encoded_len());
    bytes.extend_from_slice(LABEL.as_bytes());
    bytes.push(b':');
    envelope.encode_raw(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_full() {
        let envelope = Envelope {
            macp_version: "1.0".into(),
            mode: "decision".into(),
            message_type: "Vote".into(),
            message_id: "m-7".into(),
            session_id: "s-1".into(),
            sender: "älice".into(),
            timestamp_unix_ms: 1_700_000_000_123,
            payload: br#"{"vote":"approve"}"#.as_slice().into(),
        };
        let expected = [
            b"macp-envelope-signature/1:".as_slice(),
            b"\x0a\x031.0",
            b"\x12\x08decision",
            b"\x1a\x04Vote",
            b"\x22\x03m-7",
            b"\x2a\x03s-1",
            b"\x32\x06\xc3\xa4lice",
            b"\x38\xfb\xd0\x95\xff\xbc\x31",
            b"\x42\x12{\"vote\":\"approve\"}",
        ]
        .concat();
        assert_eq!(signing_bytes(&envelope), expected);
    }

    #[test]
    fn golden_defaults_are_left_out() {
        assert_eq!(signing_bytes(&Envelope::default()), b"macp-envelope-signature/1:");

        let envelope = Envelope { sender: "bob".into(), timestamp_unix_ms: -1, ..Envelope::default() };
        let expected = b"macp-envelope-signature/1:\x32\x03bob\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert_eq!(signing_bytes(&envelope), expected);
    }

    #[test]
    fn order_and_unknown_fields_of_the_original_encoding_do_not_matter() {
        // Sender before session, an unknown field 99, and the default mode spelled out.
        let wire = b"\x32\x03bob\x2a\x03s-1\x9a\x06\x01x\x12\x00";
        let envelope = Envelope::decode(wire.as_slice()).expect("a valid encoding");
        assert_eq!(signing_bytes(&envelope), b"macp-envelope-signature/1:\x2a\x03s-1\x32\x03bob");
    }
}
