//! The chain: JWT, then static tokens, then local development (STD-SEC-1).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;

use crate::identity::Identity;
use crate::jwt::{Rejected, Rules};
use crate::keyset::KeySet;
use crate::place::Place;
use crate::refusal::Refusal;
use crate::remote::{self, Refresher, Remote};
use crate::settings::{JwksSource, JwtSettings, RoleRights, Settings, TokenSource};
use crate::tokens::Tokens;
use crate::{CREDENTIAL_BYTES_MAX, Error, SENDER_BYTES_MAX};

/// A credential as it came in.
#[derive(Clone, Copy)]
pub enum Presented<'a> {
    Absent,
    /// From `authorization: Bearer`, without that prefix.
    Bearer(&'a str),
    /// From `x-macp-token`: static tokens and local development only (STD-SEC-2).
    Token(&'a str),
}

impl std::fmt::Debug for Presented<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Presented::Absent => "Absent",
            Presented::Bearer(_) => "Bearer(hidden)",
            Presented::Token(_) => "Token(hidden)",
        })
    }
}

/// What a credential amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    Identity(Arc<Identity>),
    /// None was presented and none is required: local development.
    Absent,
    Refused(Refusal),
}

/// What a reload took in; `None` where nothing is configured that could be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reloaded {
    pub tokens: Option<usize>,
    pub keys: Option<usize>,
}

/// Finds out who calls. Shared by reference; everything that changes is swapped inside.
#[derive(Debug, Default)]
pub struct Authenticator {
    jwt: Option<Jwt>,
    tokens: Option<StaticTokens>,
    roles: BTreeMap<String, RoleRights>,
}

#[derive(Debug)]
struct StaticTokens {
    source: TokenSource,
    list: ArcSwap<Tokens>,
}

#[derive(Debug)]
struct Jwt {
    rules: Rules,
    keys: Keys,
}

#[derive(Debug)]
enum Keys {
    Inline(Arc<KeySet>),
    File { path: PathBuf, set: ArcSwap<KeySet> },
    Remote { remote: Arc<Remote>, _refresher: Refresher },
}

impl Authenticator {
    /// Local development: whoever names itself is believed.
    pub fn development() -> Authenticator {
        Authenticator::default()
    }

    /// Reads tokens and keys. Keys at a URL are fetched, and it is an error if that fails: a server that cannot check
    /// tokens refuses everyone, and its operator should learn so from the start-up and not from the users.
    ///
    /// Needs a tokio runtime with timers and I/O if keys come from a URL.
    pub async fn start(settings: Settings) -> Result<Authenticator, Error> {
        let Settings { jwt, tokens, roles } = settings;
        let tokens = match tokens {
            None => None,
            Some(source) => {
                let list = ArcSwap::from_pointee(Tokens::load(&source, &roles)?);
                Some(StaticTokens { source, list })
            }
        };
        let jwt = match jwt {
            None => None,
            Some(settings) => Some(Jwt::start(settings, &roles).await?),
        };
        Ok(Authenticator { jwt, tokens, roles })
    }

    /// Whether senders are proven. If not, this is local development.
    pub fn is_configured(&self) -> bool {
        self.jwt.is_some() || self.tokens.is_some()
    }

    /// Whether a static token is for this sender.
    pub fn has_token_of(&self, sender: &str) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| tokens.list.load().has_sender(sender))
    }

    /// Who presents this. Waits for nothing, but for new keys if a JWT names a key that is not known, which happens at
    /// most once in 30 seconds and takes some seconds at most.
    pub async fn resolve(&self, presented: Presented<'_>) -> Resolution {
        let (credential, bearer) = match presented {
            Presented::Absent if self.is_configured() => return Resolution::Refused(Refusal::Unknown),
            Presented::Absent => return Resolution::Absent,
            Presented::Bearer(credential) => (credential, true),
            Presented::Token(credential) => (credential, false),
        };
        if credential.is_empty() {
            return Resolution::Refused(Refusal::Unknown);
        }
        if credential.len() > CREDENTIAL_BYTES_MAX {
            return Resolution::Refused(Refusal::TooLong);
        }
        let resolved = match &self.jwt {
            // What fails here is not tried as a static token (STD-SEC-3).
            Some(jwt) if bearer && credential.contains('.') => Box::pin(jwt.resolve(credential)).await,
            _ => self.resolve_static(credential),
        };
        resolved.map_or_else(Resolution::Refused, Resolution::Identity)
    }

    fn resolve_static(&self, credential: &str) -> Result<Arc<Identity>, Refusal> {
        match &self.tokens {
            Some(tokens) => tokens.list.load().find(credential).cloned().ok_or(Refusal::Unknown),
            None if self.is_configured() => Err(Refusal::Unknown),
            None if credential.len() > SENDER_BYTES_MAX => Err(Refusal::NoSender),
            None => Ok(Arc::new(Identity::development(credential))),
        }
    }

    /// Reads the files with tokens and keys again, and has keys at a URL fetched again in the background. Either
    /// everything read is taken, or, if anything cannot be used, nothing changes.
    ///
    /// What a token may do counts from the next request on; requests under way and open streams keep what they have.
    pub fn reload(&self) -> Result<Reloaded, Error> {
        let tokens = match &self.tokens {
            Some(StaticTokens { source: source @ TokenSource::File(_), list }) => {
                Some((list, Tokens::load(source, &self.roles)?))
            }
            _ => None,
        };
        let keys = match &self.jwt {
            Some(Jwt { rules, keys: Keys::File { path, set } }) => Some((set, KeySet::read(path, &rules.algorithms)?)),
            _ => None,
        };
        let reloaded = Reloaded {
            tokens: tokens.as_ref().map(|(_, tokens)| tokens.len()),
            keys: keys.as_ref().map(|(_, keys)| keys.len()),
        };
        if let Some((list, tokens)) = tokens {
            list.store(Arc::new(tokens));
        }
        if let Some((set, keys)) = keys {
            set.store(Arc::new(keys));
        }
        if let Some(Jwt { keys: Keys::Remote { remote, .. }, .. }) = &self.jwt {
            remote.refresh_soon();
        }
        Ok(reloaded)
    }
}

impl Jwt {
    async fn start(settings: JwtSettings, roles: &BTreeMap<String, RoleRights>) -> Result<Jwt, Error> {
        settings.check()?;
        let JwtSettings { issuer, audience, keys, algorithms } = settings;
        let keys = match keys {
            JwksSource::Inline(text) => {
                Keys::Inline(Arc::new(KeySet::parse(text.expose(), &Place::InlineKeys, &algorithms)?))
            }
            JwksSource::File(path) => {
                let set = ArcSwap::from_pointee(KeySet::read(&path, &algorithms)?);
                Keys::File { path, set }
            }
            JwksSource::Url { url, ttl, stale_max } => {
                let options = remote::Options { url: &url, ttl, stale_max, algorithms: algorithms.clone() };
                let (remote, refresher) = Remote::start(options).await?;
                Keys::Remote { remote, _refresher: refresher }
            }
        };
        Ok(Jwt { rules: Rules { issuer, audience, algorithms, roles: roles.clone() }, keys })
    }

    async fn resolve(&self, token: &str) -> Result<Arc<Identity>, Refusal> {
        match self.check(token) {
            Ok(identity) => Ok(identity),
            Err(Rejected { kid_unknown: true, refusal }) => match &self.keys {
                Keys::Remote { remote, .. } => {
                    remote.refresh_early().await;
                    self.check(token).map_err(|rejected| rejected.refusal)
                }
                Keys::Inline(_) | Keys::File { .. } => Err(refusal),
            },
            Err(Rejected { refusal, .. }) => Err(refusal),
        }
    }

    /// With the keys there are.
    fn check(&self, token: &str) -> Result<Arc<Identity>, Rejected> {
        match &self.keys {
            Keys::Inline(set) => self.rules.check(set, token, now()),
            Keys::File { set, .. } => self.rules.check(&set.load(), token, now()),
            Keys::Remote { remote, .. } => {
                let set = remote.keys().ok_or(Refusal::KeysUnavailable)?;
                self.rules.check(&set, token, now())
            }
        }
    }
}

/// Seconds since 1970. A clock before that is broken, and then every token counts as expired.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(u64::MAX, |elapsed| elapsed.as_secs())
}
