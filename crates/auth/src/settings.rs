//! What an operator can set about authentication.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::key::Algorithm;
use crate::remote;
use crate::{Error, Secret};

/// Who is believed. The default is nobody in particular: local development.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub jwt: Option<JwtSettings>,
    pub tokens: Option<TokenSource>,
    /// What a role entitles to; a role that is not here entitles to nothing.
    pub roles: BTreeMap<String, RoleRights>,
}

/// JSON Web Tokens of one issuer.
#[derive(Clone, Debug)]
pub struct JwtSettings {
    /// What `iss` must be, byte for byte.
    pub issuer: String,
    /// What `aud` must be or hold.
    pub audience: String,
    pub keys: JwksSource,
    pub algorithms: BTreeSet<Algorithm>,
}

/// Where the keys that tokens are checked with come from.
#[derive(Clone)]
pub enum JwksSource {
    /// The set itself. Hidden in `Debug`, because it may hold a key for HS256.
    Inline(Secret),
    /// Read at start and on reload.
    File(PathBuf),
    /// Fetched at start, where a failure is an error, and then again every `ttl`. While that fails, the last set serves
    /// until it is `stale_max` old; after that every JWT is refused. So `stale_max` is to be well above `ttl`.
    Url { url: String, ttl: Duration, stale_max: Duration },
}

/// Where static tokens come from.
#[derive(Clone, Debug)]
pub enum TokenSource {
    Inline(Secret),
    /// Read at start and on reload.
    File(PathBuf),
}

/// What a role entitles to, on sessions and runs of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleRights {
    pub cancel: bool,
    /// Suspend and resume.
    pub suspend: bool,
    pub observe: bool,
    /// Repeat the effects of a plan, by running it as a new epoch.
    pub repeat: bool,
}

impl JwtSettings {
    pub const AUDIENCE: &str = "macp-runtime";

    /// With the default audience and algorithms.
    pub fn new(issuer: impl Into<String>, keys: JwksSource) -> JwtSettings {
        JwtSettings {
            issuer: issuer.into(),
            audience: Self::AUDIENCE.to_owned(),
            keys,
            algorithms: Algorithm::DEFAULT.into(),
        }
    }

    /// What no type can rule out.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |text: &str| Err(Error::Settings(text.to_owned()));
        if self.issuer.is_empty() {
            return refuse("the issuer of tokens is empty; name the `iss` that tokens carry (MACP_AUTH_ISSUER)");
        }
        if self.audience.is_empty() {
            return refuse("the audience of tokens is empty; name the `aud` that tokens carry (MACP_AUTH_AUDIENCE)");
        }
        if self.algorithms.is_empty() {
            return refuse("no algorithm for tokens is allowed; name at least one, such as RS256 (MACP_AUTH_JWT_ALGS)");
        }
        let JwksSource::Url { url, ttl, stale_max } = &self.keys else {
            return Ok(());
        };
        if self.algorithms.contains(&Algorithm::HS256) {
            return refuse(
                "HS256 needs a shared secret, and a secret is not fetched from a URL; give the key set inline or as a \
                 file, or do not allow HS256 (MACP_AUTH_JWT_ALGS)",
            );
        }
        if ttl.is_zero() || stale_max < ttl {
            return refuse(
                "keys fetched from a URL need a time to live above 0 (MACP_AUTH_JWKS_TTL_SECS) and a stale time not \
                 below it",
            );
        }
        remote::check_url(url).map(|_| ()).map_err(|problem| Error::Settings(problem.to_owned()))
    }
}

impl JwksSource {
    pub const TTL: Duration = Duration::from_secs(300);
    pub const STALE_MAX: Duration = Duration::from_secs(3600);

    /// A URL with the default times.
    pub fn url(url: impl Into<String>) -> JwksSource {
        JwksSource::Url { url: url.into(), ttl: Self::TTL, stale_max: Self::STALE_MAX }
    }
}

impl fmt::Debug for JwksSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JwksSource::Inline(secret) => f.debug_tuple("Inline").field(secret).finish(),
            JwksSource::File(path) => f.debug_tuple("File").field(path).finish(),
            JwksSource::Url { url, ttl, stale_max } => f
                .debug_struct("Url")
                .field("url", &remote::shown(url))
                .field("ttl", ttl)
                .field("stale_max", stale_max)
                .finish(),
        }
    }
}
