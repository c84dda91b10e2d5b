//! Tokens that were verified a moment ago, so that a signature is not checked for every message.
//!
//! Two generations in each of some shards: what is used stays, what is not is forgotten when its shard has filled up
//! twice. Only tokens with a good signature get in here, so only the issuer could fill it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::identity::Identity;

/// So that requests on different cores seldom meet.
const SHARDS: usize = 16;

/// In one generation of one shard. All in all at most 2 × 16 × 512 tokens of some 100 bytes.
const TOKENS_PER_GENERATION: usize = 512;

/// SHA-256 of a token.
pub(crate) type Digest = [u8; 32];

/// Identities by the digest of their tokens.
#[derive(Default)]
pub(crate) struct Verified {
    shards: [RwLock<Generations>; SHARDS],
}

#[derive(Default)]
struct Generations {
    young: HashMap<Digest, Entry>,
    old: HashMap<Digest, Entry>,
}

#[derive(Clone)]
struct Entry {
    identity: Arc<Identity>,
    /// First second in which the token is no longer good.
    until: u64,
}

impl Verified {
    pub(crate) fn get(&self, digest: &Digest, now: u64) -> Option<Arc<Identity>> {
        let shard = self.shard(digest).read().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = shard.young.get(digest) {
            return (now < entry.until).then(|| Arc::clone(&entry.identity));
        }
        let entry = shard.old.get(digest).filter(|entry| now < entry.until)?.clone();
        drop(shard);
        self.put(*digest, &entry.identity, entry.until);
        Some(entry.identity)
    }

    pub(crate) fn put(&self, digest: Digest, identity: &Arc<Identity>, until: u64) {
        let mut shard = self.shard(&digest).write().unwrap_or_else(PoisonError::into_inner);
        if shard.young.len() >= TOKENS_PER_GENERATION {
            shard.old = std::mem::take(&mut shard.young);
        }
        shard.young.insert(digest, Entry { identity: Arc::clone(identity), until });
    }

    fn shard(&self, digest: &Digest) -> &RwLock<Generations> {
        &self.shards[usize::from(digest[0]) % SHARDS]
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().map_or(0, |shard| shard.young.len() + shard.old.len())).sum()
    }
}

impl fmt::Debug for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verified").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spread over all shards.
    fn digest(number: u32) -> Digest {
        let mut digest = [0; 32];
        digest[0] = number as u8;
        digest[4..8].copy_from_slice(&number.to_be_bytes());
        digest
    }

    #[test]
    fn a_token_is_known_until_it_expires() {
        let verified = Verified::default();
        verified.put(digest(1), &Arc::new(Identity::development("alice")), 100);
        assert_eq!(verified.get(&digest(1), 99).unwrap().sender, "alice");
        assert!(verified.get(&digest(1), 100).is_none());
        assert!(verified.get(&digest(2), 0).is_none());
    }

    #[test]
    fn it_stays_bounded_and_keeps_what_is_used() {
        let verified = Verified::default();
        let identity = Arc::new(Identity::development("alice"));
        verified.put(digest(0), &identity, 100);
        for number in 1..100_000 {
            verified.put(digest(number), &identity, 100);
            if number % 1000 == 0 {
                assert!(verified.get(&digest(0), 1).is_some(), "forgotten after {number}");
            }
        }
        assert!(verified.get(&digest(1), 1).is_none(), "what nobody used is forgotten");
        assert!(verified.len() <= 2 * SHARDS * TOKENS_PER_GENERATION, "{}", verified.len());
    }
}
