//! Keys fetched from the issuer: refreshed in the background, served stale for a while, and fetched early when a token
//! names a key that is not known.
//!
//! One task does all the fetching, so a caller that goes away cannot stop a fetch others wait for.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use reqwest::{Client, StatusCode, Url, redirect};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::Error;
use crate::key::Algorithm;
use crate::keyset::KeySet;
use crate::place::Place;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const TOTAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest answer that is read, in bytes: real sets have some thousand.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

const REDIRECTS_MAX: usize = 3;

/// Unknown keys cause a fetch at most this often, since anyone can name one.
const EARLY_EVERY: Duration = Duration::from_secs(30);

/// How soon a failed fetch is tried again, unless the time to live is shorter.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The keys at a URL.
pub(crate) struct Remote {
    source: Source,
    fetched: ArcSwap<Fetched>,
    early: Mutex<Pace>,
    /// Set while a fetch that somebody asked for is still to end.
    pending: AtomicBool,
    wanted: Notify,
    /// Changes with every fetch that ended, good or bad.
    ended: watch::Sender<u64>,
}

struct Source {
    client: Client,
    url: Url,
    place: Place,
    ttl: Duration,
    stale_max: Duration,
    algorithms: BTreeSet<Algorithm>,
}

/// The last set that was fetched.
struct Fetched {
    set: Arc<KeySet>,
    digest: [u8; 32],
    at: Instant,
}

/// The task that fetches; ends with its owner.
#[derive(Debug)]
pub(crate) struct Refresher(JoinHandle<()>);

impl Drop for Refresher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What to fetch, and how often.
pub(crate) struct Options<'a> {
    pub(crate) url: &'a str,
    pub(crate) ttl: Duration,
    pub(crate) stale_max: Duration,
    pub(crate) algorithms: BTreeSet<Algorithm>,
}

impl Remote {
    /// Fetches the keys for the first time and keeps them fresh from then on.
    pub(crate) async fn start(options: Options<'_>) -> Result<(Arc<Remote>, Refresher), Error> {
        let Options { url, ttl, stale_max, algorithms } = options;
        let url = check_url(url).map_err(|problem| Error::Settings(problem.to_owned()))?;
        let place = Place::KeysUrl(shown(url.as_str()));
        let client = client(&url).map_err(|error| Error::Fetch { place: place.clone(), problem: causes(error) })?;
        let source = Source { client, url, place, ttl, stale_max, algorithms };
        let text = source.fetch().await.map_err(|problem| Error::Fetch { place: source.place.clone(), problem })?;
        let fetched = source.read(&text, None)?;
        let remote = Arc::new(Remote {
            source,
            fetched: ArcSwap::from_pointee(fetched),
            early: Mutex::new(Pace::new(EARLY_EVERY)),
            pending: AtomicBool::new(false),
            wanted: Notify::new(),
            ended: watch::Sender::new(0),
        });
        let refresher = Refresher(tokio::spawn(Arc::clone(&remote).run()));
        Ok((remote, refresher))
    }

    /// The keys, unless they are too old to be trusted.
    pub(crate) fn keys(&self) -> Option<Arc<KeySet>> {
        let fetched = self.fetched.load();
        (fetched.at.elapsed() <= self.source.stale_max).then(|| Arc::clone(&fetched.set))
    }

    /// Asks for a fetch and does not wait for it.
    pub(crate) fn refresh_soon(&self) {
        self.wanted.notify_one();
    }

    /// Waits for a fetch because of an unknown key, if one is due or under way.
    pub(crate) async fn refresh_early(&self) {
        let mut ended = self.ended.subscribe();
        if self.early.lock().unwrap_or_else(PoisonError::into_inner).allow(Instant::now()) {
            self.pending.store(true, Ordering::SeqCst);
            self.wanted.notify_one();
        }
        // The task clears this before it announces the end, so whoever sees it set still hears of the end.
        let fetched = ended.wait_for(|_| !self.pending.load(Ordering::SeqCst));
        // Twice the time, for a fetch that is already under way. If it runs out, the keys are what they are.
        let _no_newer_keys = tokio::time::timeout(TOTAL_TIMEOUT * 2, fetched).await;
    }

    async fn run(self: Arc<Remote>) {
        let mut wait = self.source.ttl;
        loop {
            let asked = tokio::select! {
                () = tokio::time::sleep(wait) => false,
                () = self.wanted.notified() => true,
            };
            wait = match self.refresh().await {
                Ok(()) => self.source.ttl,
                Err(problem) => {
                    let age = self.fetched.load().at.elapsed();
                    let (place, stale_max) = (&self.source.place, self.source.stale_max);
                    if age <= stale_max {
                        tracing::warn!(%place, %problem, ?age, ?stale_max, "the last keys serve: refreshing failed");
                    } else {
                        tracing::error!(%place, %problem, ?age, ?stale_max, "every JWT is refused: keys too old");
                    }
                    self.source.ttl.min(RETRY_AFTER)
                }
            };
            if asked {
                self.pending.store(false, Ordering::SeqCst);
            }
            self.ended.send_modify(|count| *count += 1);
        }
    }

    async fn refresh(&self) -> Result<(), String> {
        let text = self.source.fetch().await?;
        let last = self.fetched.load_full();
        let fetched = self.source.read(&text, Some(&last)).map_err(|error| error.to_string())?;
        if fetched.digest != last.digest {
            tracing::info!(place = %self.source.place, keys = fetched.set.len(), "the keys have changed");
        }
        self.fetched.store(Arc::new(fetched));
        Ok(())
    }
}

impl Source {
    async fn fetch(&self) -> Result<String, String> {
        let mut response = self.client.get(self.url.clone()).send().await.map_err(causes)?;
        if response.status() != StatusCode::OK {
            return Err(format!("the answer was {}", response.status()));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(causes)? {
            if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(format!("the answer is larger than {ANSWER_BYTES_MAX} bytes"));
            }
            bytes.extend_from_slice(&chunk);
        }
        String::from_utf8(bytes).map_err(|_not_text| "the answer is no text".to_owned())
    }

    /// The set in an answer. The same text is the same set, with everything that was verified under it.
    fn read(&self, text: &str, last: Option<&Fetched>) -> Result<Fetched, Error> {
        let digest = Sha256::digest(text.as_bytes()).into();
        let set = match last {
            Some(last) if last.digest == digest => Arc::clone(&last.set),
            _ => Arc::new(KeySet::parse(text, &self.place, &self.algorithms)?),
        };
        Ok(Fetched { set, digest, at: Instant::now() })
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("place", &self.source.place).finish_non_exhaustive()
    }
}

/// Lets something happen once in a while.
struct Pace {
    every: Duration,
    last: Option<Instant>,
}

impl Pace {
    fn new(every: Duration) -> Pace {
        Pace { every, last: None }
    }

    fn allow(&mut self, now: Instant) -> bool {
        let due = self.last.is_none_or(|last| now.saturating_duration_since(last) >= self.every);
        if due {
            self.last = Some(now);
        }
        due
    }
}

fn client(url: &Url) -> Result<Client, reqwest::Error> {
    let scheme = url.scheme().to_owned();
    let builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(TOTAL_TIMEOUT)
        .user_agent(concat!("macp-runtime/", env!("CARGO_PKG_VERSION")))
        .referer(false)
        .redirect(redirect::Policy::custom(move |attempt| {
            let allowed = attempt.url().scheme() == scheme && check_url(attempt.url().as_str()).is_ok();
            if !allowed {
                attempt.error("it redirects to a URL that keys must not come from")
            } else if attempt.previous().len() > REDIRECTS_MAX {
                attempt.error("it redirects too often")
            } else {
                attempt.follow()
            }
        }));
    match url.scheme() {
        // Loopback: no proxy could reach it, and no certificate is needed.
        "http" => builder.no_proxy().tls_certs_only([]).build(),
        _ => builder.build(),
    }
}

/// An error with its causes, and without the URL, whose query may hold a secret.
fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// A URL keys may come from: nobody on the way can change what it answers. The problem does not repeat the URL.
pub(crate) fn check_url(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_not_a_url| "the URL of the key set (MACP_AUTH_JWKS_URL) is not a URL")?;
    let loopback = url.host_str().is_some_and(is_loopback);
    match url.scheme() {
        "https" => {}
        "http" if loopback => {}
        "http" => {
            return Err("the URL of the key set (MACP_AUTH_JWKS_URL) must use https: over http whoever is on the way \
                        could put in keys of their own; only a loopback address may use http");
        }
        _ => return Err("the URL of the key set (MACP_AUTH_JWKS_URL) must use https"),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL of the key set (MACP_AUTH_JWKS_URL) must be one without a user name or password");
    }
    Ok(url)
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A URL as messages may show it: without user, password, query and fragment.
pub(crate) fn shown(text: &str) -> String {
    match Url::parse(text) {
        Ok(url) => {
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
        }
        Err(_not_a_url) => "(not a URL)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_fetches_keep_their_distance() {
        let mut pace = Pace::new(EARLY_EVERY);
        let start = Instant::now();
        let mut allow = |seconds| pace.allow(start + Duration::from_secs(seconds));
        assert!(allow(0) && !allow(0) && !allow(29));
        assert!(allow(30) && !allow(59) && allow(60));
    }

    #[test]
    fn a_url_is_shown_without_what_may_be_secret() {
        assert_eq!(
            shown("https://user:hunter2@i.example:8443/keys?key=hunter2#hunter2"),
            "https://i.example:8443/keys"
        );
        assert_eq!(shown("hunter2"), "(not a URL)");
    }
}
