//! The unguessable form today's standard asks of session ids. Classic sessions take any short string; the form only
//! helps to tell a standard client that forgot its credential from a classic one.

/// Whether an id has the form a standard start needs: a lowercase UUID of version 4 or 7, or a base64url token of at
/// least 22 characters.
pub(crate) fn is_unguessable(id: &str) -> bool {
    if id.is_empty() || id.len() > 128 {
        return false;
    }
    if is_uuid_shaped(id) {
        let version = id.as_bytes()[14];
        return (version == b'4' || version == b'7') && !id.bytes().any(|b| b.is_ascii_uppercase());
    }
    id.len() >= 22 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The hyphenated rendering of a UUID of any version, in any case.
fn is_uuid_shaped(id: &str) -> bool {
    id.len() == 36
        && id.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::is_unguessable;

    #[test]
    fn accepts_what_the_standard_accepts() {
        let cases = [
            ("s1", false),
            ("", false),
            ("3f2504e0-4f89-41d3-9a0c-0305e82c3301", true),
            ("018f4e0a-7b1c-7d3e-8a9b-0123456789ab", true),
            ("3F2504E0-4F89-41D3-9A0C-0305E82C3301", false),
            ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", false),
            ("abcdefghijklmnopqrstu_", true),
            ("abcdefghijklmnopqrstu", false),
            ("abcdefghijklmnopqrst u", false),
        ];
        for (id, expected) in cases {
            assert_eq!(is_unguessable(id), expected, "{id:?}");
        }
        assert!(!is_unguessable(&"a".repeat(129)));
    }
}
