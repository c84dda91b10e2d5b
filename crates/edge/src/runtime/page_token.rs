//! Page tokens: where the next page of a listing begins. To a client they are opaque.
//!
//! A page usually ends at something the caller was shown, and its token names that. A page that ends in the middle of
//! what others own must not tell of it, so its token is sealed: with a key that lasts as long as the process, and for
//! the caller alone who got it. After a restart such a token is refused, and the listing begins anew.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tonic::Status;

use crate::status;

/// Prefix of what is inside a token that names something its holder was shown.
const SHOWN: &str = "v1:";

/// Prefix of a token that tells its holder nothing.
const SEALED: &[u8] = b"v2:";

/// Longest token: the longest id, sealed and encoded, with room to spare.
const TOKEN_BYTES_MAX: usize = 512;

/// A token for what follows an id the caller knows.
fn write_token(last_id: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{SHOWN}{last_id}"))
}

/// What sealed tokens are made with.
#[derive(Debug)]
pub(crate) struct Sealer {
    key: RandomizedNonceKey,
}

impl Sealer {
    pub(crate) fn new() -> Self {
        let mut key = [0; 32];
        aws_lc_rs::rand::fill(&mut key).expect("the operating system gives random bytes");
        Sealer { key: RandomizedNonceKey::new(&AES_256_GCM, &key).expect("the key has the cipher's length") }
    }

    /// A token for what follows an id; sealed unless it was shown to the caller.
    pub(crate) fn write(&self, caller: &str, last_id: &str, is_shown: bool) -> Result<String, Status> {
        if is_shown { Ok(write_token(last_id)) } else { self.seal(caller, last_id) }
    }

    fn seal(&self, caller: &str, last_id: &str) -> Result<String, Status> {
        let mut sealed = last_id.as_bytes().to_vec();
        let nonce = self.key.seal_in_place_append_tag(Aad::from(caller), &mut sealed);
        let nonce = nonce.map_err(|_unspecified| status::internal("a page token cannot be made"))?;
        Ok(URL_SAFE_NO_PAD.encode([SEALED, nonce.as_ref(), &sealed].concat()))
    }

    /// The id in a token of either kind; none in the empty one, with which a listing begins.
    pub(crate) fn read(&self, caller: &str, token: &str) -> Result<Option<String>, Status> {
        if token.is_empty() {
            return Ok(None);
        }
        let mut bytes = decode(token).ok_or_else(unknown)?;
        let id = match bytes.starts_with(SEALED) {
            true => self.open(caller, &mut bytes[SEALED.len()..]),
            false => shown(&bytes),
        };
        id.map(Some).ok_or_else(unknown)
    }

    fn open(&self, caller: &str, sealed: &mut [u8]) -> Option<String> {
        let (nonce, sealed) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let id = self.key.open_in_place(nonce, Aad::from(caller), sealed).ok()?;
        String::from_utf8(id.to_vec()).ok()
    }
}

fn decode(token: &str) -> Option<Vec<u8>> {
    (token.len() <= TOKEN_BYTES_MAX).then(|| URL_SAFE_NO_PAD.decode(token).ok()).flatten()
}

fn shown(bytes: &[u8]) -> Option<String> {
    Some(str::from_utf8(bytes).ok()?.strip_prefix(SHOWN)?.to_owned())
}

/// How it is malformed helps nobody.
fn unknown() -> Status {
    status::invalid_request("page_token is none that was given out here; begin the listing anew")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back() {
        let sealer = Sealer::new();
        assert_eq!(sealer.read("alice", "").expect("where a listing begins"), None);
        for id in ["s1", "", "späť", &"x".repeat(256)] {
            for is_shown in [true, false] {
                let token = sealer.write("alice", id, is_shown).expect("a token");
                assert_eq!(sealer.read("alice", &token).expect("a token").as_deref(), Some(id));
            }
        }
    }

    #[test]
    fn a_sealed_token_tells_nothing_and_is_for_one_caller_of_one_process() {
        let sealer = Sealer::new();
        let id = "the-merger-with-acme";
        let token = sealer.seal("alice", id).expect("a token");
        let bytes = URL_SAFE_NO_PAD.decode(&token).expect("base64");
        assert!(!bytes.windows(4).any(|window| id.as_bytes().windows(4).any(|part| part == window)));
        assert!(sealer.read("bob", &token).is_err());
        assert!(Sealer::new().read("alice", &token).is_err());
    }

    #[test]
    fn other_tokens_are_refused() {
        let sealer = Sealer::new();
        let foreign = URL_SAFE_NO_PAD.encode("v3:s1");
        let cut = URL_SAFE_NO_PAD.encode("v2:s1");
        let forged = URL_SAFE_NO_PAD.encode([SEALED, &[7; 60]].concat());
        let binary = URL_SAFE_NO_PAD.encode([b'v', b'1', b':', 0xff]);
        let padded = format!("{}==", write_token("s1"));
        for token in ["s1", "!", &foreign, &cut, &forged, &binary, &padded, &"A".repeat(516)] {
            let refused = sealer.read("alice", token).expect_err(token);
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        }
    }
}
