//! Settings as an operator gives them, one text each, put together so that nothing half-configured passes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use crate::key::Algorithm;
use crate::{Error, JwksSource, JwtSettings, RoleRights, Secret, Settings, TokenSource};

/// What was said about authentication, by flag, variable or file. `None` is not said at all.
///
/// Messages name the variables of deployment guides, since every way to say a thing is listed beside its variable.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// `MACP_AUTH_ISSUER`
    pub issuer: Option<String>,
    /// `MACP_AUTH_AUDIENCE`
    pub audience: Option<String>,
    /// `MACP_AUTH_JWKS_JSON`
    pub jwks_json: Option<Secret>,
    /// `MACP_AUTH_JWKS_FILE`
    pub jwks_file: Option<PathBuf>,
    /// `MACP_AUTH_JWKS_URL`
    pub jwks_url: Option<Secret>,
    /// `MACP_AUTH_JWKS_TTL_SECS`
    pub jwks_ttl: Option<Duration>,
    /// `MACP_AUTH_JWT_ALGS`: names separated by commas.
    pub algorithms: Option<String>,
    /// `MACP_AUTH_TOKENS_JSON`
    pub tokens_json: Option<Secret>,
    /// `MACP_AUTH_TOKENS_FILE`
    pub tokens_file: Option<PathBuf>,
    pub roles: BTreeMap<String, RoleRights>,
}

impl Given {
    /// The settings it amounts to, or everything that is wrong with it at once.
    pub fn settings(self) -> Result<Settings, Vec<Error>> {
        let mut problems = Vec::new();
        let tokens = match (self.tokens_json, self.tokens_file) {
            (None, None) => None,
            (Some(json), None) => Some(TokenSource::Inline(json)),
            (None, Some(path)) => Some(TokenSource::File(path)),
            (Some(_), Some(_)) => {
                problems.push("MACP_AUTH_TOKENS_JSON and MACP_AUTH_TOKENS_FILE are both given; keep one of them");
                None
            }
        };
        if self.jwks_ttl.is_some() && self.jwks_url.is_none() {
            problems.push("MACP_AUTH_JWKS_TTL_SECS only has a meaning for keys from MACP_AUTH_JWKS_URL; remove it");
        }
        let ttl = self.jwks_ttl.unwrap_or(JwksSource::TTL);
        let url = |url: Secret| JwksSource::Url {
            url: url.expose().to_owned(),
            ttl,
            stale_max: JwksSource::STALE_MAX.max(ttl.saturating_mul(2)),
        };
        let keys: Vec<JwksSource> =
            [self.jwks_json.map(JwksSource::Inline), self.jwks_file.map(JwksSource::File), self.jwks_url.map(url)]
                .into_iter()
                .flatten()
                .collect();
        if keys.len() > 1 {
            problems.push(
                "more than one of MACP_AUTH_JWKS_JSON, MACP_AUTH_JWKS_FILE and MACP_AUTH_JWKS_URL is given; keep one",
            );
        }
        let mut problems: Vec<Error> = problems.into_iter().map(|text| Error::Settings(text.to_owned())).collect();
        let algorithms = self.algorithms.as_deref().map(algorithms).transpose().unwrap_or_else(|problem| {
            problems.push(problem);
            None
        });
        let said = self.audience.is_some() || algorithms.is_some();
        let jwt = match jwt(self.issuer, keys.into_iter().next(), said) {
            Ok(jwt) => jwt,
            Err(problem) => {
                problems.push(Error::Settings(problem.to_owned()));
                None
            }
        };
        let jwt = jwt.map(|defaults| JwtSettings {
            audience: self.audience.unwrap_or(defaults.audience),
            algorithms: algorithms.unwrap_or(defaults.algorithms),
            ..defaults
        });
        if let Some(Err(problem)) = jwt.as_ref().map(JwtSettings::check) {
            problems.push(problem);
        }
        if problems.is_empty() { Ok(Settings { jwt, tokens, roles: self.roles }) } else { Err(problems) }
    }
}

/// An issuer needs keys, keys need an issuer, and the rest needs both.
fn jwt(issuer: Option<String>, keys: Option<JwksSource>, said: bool) -> Result<Option<JwtSettings>, &'static str> {
    match (issuer, keys) {
        (Some(issuer), Some(keys)) => Ok(Some(JwtSettings::new(issuer, keys))),
        (Some(_), None) => Err("MACP_AUTH_ISSUER is given, but no keys to check its tokens with; add one of \
                                MACP_AUTH_JWKS_URL, MACP_AUTH_JWKS_FILE and MACP_AUTH_JWKS_JSON"),
        (None, Some(_)) => Err("keys for tokens are given, but no issuer, so tokens would not be checked at all; add \
                                MACP_AUTH_ISSUER"),
        (None, None) if said => Err("MACP_AUTH_AUDIENCE or MACP_AUTH_JWT_ALGS is given, but neither an issuer nor \
                                     keys, so tokens would not be checked at all; add MACP_AUTH_ISSUER and one of \
                                     MACP_AUTH_JWKS_URL, MACP_AUTH_JWKS_FILE and MACP_AUTH_JWKS_JSON"),
        (None, None) => Ok(None),
    }
}

fn algorithms(names: &str) -> Result<BTreeSet<Algorithm>, Error> {
    names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(|name| name.parse().map_err(|unknown| Error::Settings(format!("MACP_AUTH_JWT_ALGS: {unknown}"))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(given: Given) -> String {
        let problems = given.settings().expect_err("it must be refused");
        problems.iter().map(Error::to_string).collect::<Vec<_>>().join("\n")
    }

    fn jwt() -> Given {
        Given { issuer: Some("https://i".into()), jwks_json: Some("{}".into()), ..Given::default() }
    }

    #[test]
    fn nothing_said_is_local_development() {
        let settings = Given::default().settings().unwrap();
        assert!(settings.jwt.is_none() && settings.tokens.is_none());
    }

    #[test]
    fn defaults_are_those_of_the_standard() {
        let given = Given { jwks_json: None, jwks_url: Some("https://i/jwks".into()), ..jwt() };
        let jwt = given.settings().unwrap().jwt.unwrap();
        assert_eq!(jwt.audience, "macp-runtime");
        assert_eq!(jwt.algorithms, [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA].into());
        let JwksSource::Url { ttl, stale_max, .. } = jwt.keys else { panic!("a URL was given") };
        assert_eq!((ttl.as_secs(), stale_max.as_secs()), (300, 3600));
    }

    #[test]
    fn half_a_configuration_is_refused_with_what_to_do() {
        let text = problems(Given { jwks_json: None, ..jwt() });
        assert!(text.contains("add one of MACP_AUTH_JWKS_URL"), "{text}");
        let text = problems(Given { issuer: None, ..jwt() });
        assert!(text.contains("add MACP_AUTH_ISSUER"), "{text}");
        let text = problems(Given { audience: Some("x".into()), ..Given::default() });
        assert!(text.contains("add MACP_AUTH_ISSUER"), "{text}");
        let text = problems(Given { issuer: Some(String::new()), ..jwt() });
        assert!(text.contains("issuer of tokens is empty"), "{text}");
        let text = problems(Given { algorithms: Some(" , ".into()), ..jwt() });
        assert!(text.contains("no algorithm"), "{text}");
    }

    #[test]
    fn contradictions_are_refused_all_at_once() {
        let text = problems(Given {
            jwks_url: Some("https://i/jwks".into()),
            tokens_json: Some("[]".into()),
            tokens_file: Some("t".into()),
            algorithms: Some("RS256,none".into()),
            ..jwt()
        });
        assert!(text.contains("MACP_AUTH_TOKENS_JSON and MACP_AUTH_TOKENS_FILE are both given"), "{text}");
        assert!(text.contains("more than one of MACP_AUTH_JWKS_JSON"), "{text}");
        assert!(text.contains("MACP_AUTH_JWT_ALGS: \"none\""), "{text}");
    }

    #[test]
    fn keys_are_not_fetched_over_ways_others_can_change() {
        let at = |url: &str| Given { jwks_json: None, jwks_url: Some(url.into()), ..jwt() };
        for url in ["https://i.example/jwks", "http://127.0.0.1:8080/jwks", "http://localhost/jwks", "http://[::1]/j"] {
            assert!(at(url).settings().is_ok(), "{url}");
        }
        for url in ["http://i.example/jwks", "http://10.0.0.1/jwks", "ftp://i/jwks", "file:///jwks", "jwks", ""] {
            assert!(at(url).settings().is_err(), "{url}");
        }
        let text = problems(at("https://user:hunter2@i.example/jwks"));
        assert!(text.contains("without a user name") && !text.contains("hunter2"), "{text}");
        let text = problems(Given { algorithms: Some("HS256".into()), ..at("https://i.example/jwks") });
        assert!(text.contains("HS256 needs a shared secret"), "{text}");
    }
}
