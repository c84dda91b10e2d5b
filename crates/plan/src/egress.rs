//! Which hosts and ports skills may reach. Names are judged before a request, addresses at the moment of connecting.
//!
//! ```text
//!  URL ──check_url──▶ scheme, host, port, literal address
//!                         │
//!  resolver ──────────────┴─▶ addresses ──permits──▶ the ones left are connected to
//! ```
//!
//! The addresses that were judged are the ones the client connects to, so a name that changes its answer in between
//! gains nothing. There is no proxy: a proxy would resolve names itself.
//!
//! | rule | ports without one of its own |
//! |---|---|
//! | a host, any public host | 443, and 80 if http is allowed |
//! | a private host, a network | all but those the server itself listens on |

mod listening;
mod rule;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::{Host, Url};

use crate::network::{Network, NotANetwork, is_public};
use crate::shares::Places;

use listening::Listening;
pub(crate) use rule::HostRule;
use rule::Rule;

/// The ports of https and http.
const HTTPS: u16 = 443;
const HTTP: u16 = 80;

/// What the operator allows. The default allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Hosts by exact name, or `*.example.com` for every name below `example.com`: their ports 443, and 80 if http is
    /// allowed, or the one that follows the name, as in `api.example.com:8443`.
    pub allow_hosts: Vec<String>,
    /// Every host with a public address is allowed, with the same ports.
    pub allow_any_public: bool,
    /// Plain `http` is allowed beside `https`.
    pub allow_http: bool,
    /// Hosts, by exact name or address, that may also have an address that is not public: all their ports but those of
    /// [`Settings::listening`], or the one that follows the name, whichever it is.
    pub allow_private_hosts: Vec<String>,
    /// Networks that are not public and yet allowed, such as `10.1.0.0/16`.
    pub allow_networks: Vec<String>,
    /// The addresses that the server itself listens on, as bound. Not for an operator to set.
    #[serde(skip)]
    pub listening: Vec<SocketAddr>,
}

/// A rule that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error(
        "egress_allow_hosts: `{0}` is neither a host name, an address nor `*.` and a name, with or without `:port`"
    )]
    Host(String),
    #[error(
        "egress_allow_private_hosts: `{0}` is neither a host name nor an address, with or without `:port`; wildcards are \
         not possible here"
    )]
    PrivateHost(String),
    #[error("egress_allow_networks: {0}")]
    Network(#[from] NotANetwork),
}

/// What may not be reached, and which setting would allow it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    #[error("the scheme `{scheme}` is not allowed for {host}: only https is, and http if egress_allow_http is set")]
    Scheme { scheme: String, host: String },
    #[error("the URL names no host")]
    NoHost,
    #[error(
        "the host {host} is not allowed: list it under egress_allow_hosts, or under egress_allow_private_hosts if its \
         address is not public"
    )]
    Host { host: String },
    #[error(
        "port {port} of {host} is not allowed: list {host}:{port} under egress_allow_hosts, or under \
         egress_allow_private_hosts if its address is not public"
    )]
    Port { host: String, port: u16 },
    #[error(
        "{host}:{port} is an address that this server listens on: list {host}:{port} under egress_allow_private_hosts if \
         plans may call it"
    )]
    Listening { host: String, port: u16 },
    #[error(
        "{host} is at {address}, which is not a public address: list the host under egress_allow_private_hosts or its \
         network under egress_allow_networks"
    )]
    Address { host: String, address: IpAddr },
}

/// Egress rules, ready to be asked.
#[derive(Clone, Debug)]
pub struct Egress {
    hosts: Vec<Rule>,
    private_hosts: Vec<Rule>,
    networks: Vec<Network>,
    any_public: bool,
    http: bool,
    listening: Listening,
}

impl Egress {
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let allowed = |text: &String| Rule::parse(text).ok_or_else(|| SettingsError::Host(text.clone()));
        let private = |text: &String| {
            let rule = Rule::parse(text).filter(|rule| matches!(rule.host, HostRule::Exactly(_)));
            rule.ok_or_else(|| SettingsError::PrivateHost(text.clone()))
        };
        Ok(Self {
            hosts: settings.allow_hosts.iter().map(allowed).collect::<Result<_, _>>()?,
            private_hosts: settings.allow_private_hosts.iter().map(private).collect::<Result<_, _>>()?,
            networks: settings.allow_networks.iter().map(|text| text.parse()).collect::<Result<_, _>>()?,
            any_public: settings.allow_any_public,
            http: settings.allow_http,
            listening: Listening::new(&settings.listening),
        })
    }

    /// Rules that allow one endpoint the operator named, wherever it is, and nothing else.
    #[must_use]
    pub fn only(endpoint: &Url) -> Self {
        let http = endpoint.scheme() == "http";
        let rule = endpoint.host().map(|host| Rule::only(normal(&host), port_of(endpoint)));
        let private_hosts = rule.into_iter().collect();
        let (hosts, networks) = (Vec::new(), Vec::new());
        Self { hosts, private_hosts, networks, any_public: false, http, listening: Listening::default() }
    }

    /// Judges everything about a URL that is known without asking a resolver.
    pub fn check_url(&self, url: &Url) -> Result<(), Forbidden> {
        let host = url.host().ok_or(Forbidden::NoHost)?;
        let name = normal(&host);
        if !(url.scheme() == "https" || url.scheme() == "http" && self.http) {
            return Err(Forbidden::Scheme { scheme: url.scheme().to_owned(), host: name });
        }
        let (literal, port) = (literal(&host), port_of(url));
        let in_networks = literal.is_some_and(|address| self.in_networks(address));
        let named_by = |rules: &[Rule]| rules.iter().any(|rule| rule.host.matches(&name, literal));
        let is_private_host = named_by(&self.private_hosts);
        // Of an address it is known what it takes, whether the host is allowed or not.
        if let Some(address) = literal.filter(|address| !(is_private_host || in_networks || is_public(*address))) {
            return Err(Forbidden::Address { host: name, address });
        }
        if !(self.any_public || is_private_host || in_networks || named_by(&self.hosts)) {
            return Err(Forbidden::Host { host: name });
        }
        if !(in_networks || self.permits_port(&name, literal, port)) {
            return Err(Forbidden::Port { host: name, port });
        }
        literal.map_or(Ok(()), |address| self.permits_address(&name, port, address))
    }

    /// Whether a rule about the host is for this port.
    fn permits_port(&self, name: &str, literal: Option<IpAddr>, port: u16) -> bool {
        let is_usual = port == HTTPS || port == HTTP && self.http;
        let permits = |rule: &Rule| rule.host.matches(name, literal) && rule.port.map_or(is_usual, |own| own == port);
        self.any_public && is_usual || self.hosts.iter().any(permits) || self.permits_private(name, port)
    }

    /// Whether a rule lets this port of the host be at an address that is not public.
    fn permits_private(&self, name: &str, port: u16) -> bool {
        let permits = |rule: &Rule| rule.host.matches(name, None) && rule.port.is_none_or(|own| own == port);
        self.private_hosts.iter().any(permits)
    }

    /// Judges an address that belongs to a host whose name and port may be reached.
    pub fn permits_address(&self, host: &str, port: u16, address: IpAddr) -> Result<(), Forbidden> {
        let mut rules = self.hosts.iter().chain(&self.private_hosts);
        if self.listening.contains(address, port) && !rules.any(|rule| rule.lists(host, port)) {
            return Err(Forbidden::Listening { host: host.to_owned(), port });
        }
        if self.permits_private(host, port) || is_public(address) || self.in_networks(address) {
            return Ok(());
        }
        Err(Forbidden::Address { host: host.to_owned(), address })
    }

    fn in_networks(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }
}

/// Lower case, no dot at the end, IPv6 in brackets: what rules are compared with and effects are named by.
#[must_use]
pub fn normal<S: AsRef<str>>(host: &Host<S>) -> String {
    match host {
        Host::Domain(name) => name.as_ref().trim_end_matches('.').to_ascii_lowercase(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => format!("[{address}]"),
    }
}

/// The target of an HTTP effect: the host, and the port if it is not the scheme's own. Never path, query or user.
#[must_use]
pub fn target(url: &Url) -> Option<String> {
    let host = normal(&url.host()?);
    Some(match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host,
    })
}

/// The port a request goes to. Only https and http get this far, and both have one of their own.
fn port_of(url: &Url) -> u16 {
    url.port_or_known_default().unwrap_or_default()
}

fn literal<S>(host: &Host<S>) -> Option<IpAddr> {
    match host {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(IpAddr::V4(*address)),
        Host::Ipv6(address) => Some(IpAddr::V6(*address)),
    }
}

/// What [`Resolver::resolve`] answers with.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Turns names into addresses.
pub trait Resolver: fmt::Debug + Send + Sync {
    fn resolve(&self, name: &str) -> Resolving;
}

/// Names looked up at the same time. Each takes a thread until the system answers, also if nobody waits for it any more,
/// and the store needs threads too.
const LOOKUPS_MAX: usize = 64;
/// Of one agent.
const AGENT_LOOKUPS_MAX: usize = 16;

static LOOKUPS: LazyLock<Places> = LazyLock::new(|| Places::new(LOOKUPS_MAX, AGENT_LOOKUPS_MAX));

/// How long a lookup waits for its place. Well below the time of a call, so that a call which got none ends as one that
/// sent nothing: who runs out of its own time may have been heard, and is not repeated lightly.
const LOOKUP_WAIT: Duration = Duration::from_secs(2);

/// The resolver of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Resolver for System {
    fn resolve(&self, name: &str) -> Resolving {
        Box::pin(look_up(name.to_owned(), &LOOKUPS))
    }
}

async fn look_up(name: String, places: &Places) -> io::Result<Vec<IpAddr>> {
    let place = tokio::time::timeout(LOOKUP_WAIT, places.take()).await.map_err(|_elapsed| {
        let told = "the name was not looked up: other names are, and the system does not answer";
        io::Error::new(io::ErrorKind::TimedOut, told)
    })?;
    let found = tokio::task::spawn_blocking(move || {
        let _place = place;
        let found = (name.as_str(), 0).to_socket_addrs()?;
        Ok(found.map(|address| address.ip()).collect())
    });
    found.await.map_err(io::Error::other)?
}

tokio::task_local! {
    /// The port that the request under way goes to. The client looks up names alone, and judging an address takes both.
    static PORT: u16;
}

/// Makes a request whose address is judged together with the port it goes to.
pub(crate) async fn towards<F: Future>(url: &Url, request: F) -> F::Output {
    PORT.scope(port_of(url), request).await
}

/// Resolves, and lets through only what the rules permit. This is what the client connects by.
#[derive(Clone, Debug)]
pub(crate) struct Governed {
    pub(crate) egress: Arc<Egress>,
    pub(crate) resolver: Arc<dyn Resolver>,
}

impl reqwest::dns::Resolve for Governed {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let host = name.as_str().trim_end_matches('.').to_ascii_lowercase();
        let Self { egress, resolver } = self.clone();
        Box::pin(async move {
            let port = PORT.try_with(|port| *port).map_err(io::Error::other)?;
            let found = resolver.resolve(name.as_str()).await?;
            if found.is_empty() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
            }
            let mut permitted = Vec::new();
            let mut refusal = None;
            for address in found {
                match egress.permits_address(&host, port, address) {
                    Ok(()) => permitted.push(SocketAddr::new(address, 0)),
                    Err(forbidden) => refusal = refusal.or(Some(forbidden)),
                }
            }
            match refusal {
                Some(forbidden) if permitted.is_empty() => Err(forbidden.into()),
                _ => Ok(Box::new(permitted.into_iter()) as reqwest::dns::Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use macp_plan_core::cause::Cause;
    use reqwest::Method;

    use super::*;
    use crate::shares::in_name_of;
    use crate::skills::exchange::{Exchange, Request, Trust};
    use crate::skills::fault::Fault;

    /// A resolver with places of its own.
    #[derive(Debug)]
    struct Placed(Arc<Places>);

    impl Resolver for Placed {
        fn resolve(&self, name: &str) -> Resolving {
            let (name, places) = (name.to_owned(), Arc::clone(&self.0));
            Box::pin(async move { look_up(name, &places).await })
        }
    }

    async fn fault_of(places: Arc<Places>, timeout: Duration) -> Fault {
        let url = Url::parse("https://localhost:9/").unwrap();
        let trust = Trust { system_roots: false, roots: Vec::new() };
        let exchange = Exchange::new(Egress::only(&url), Arc::new(Placed(places)), &trust, 1).unwrap();
        let (headers, confidential) = (Default::default(), Vec::new());
        let request = Request { method: Method::POST, url, headers, confidential, body: None, redirects_max: None };
        exchange.run(request, timeout).await.expect_err("nobody is there")
    }

    /// A call that is kept waiting by other lookups ends long before its time, as one that sent nothing.
    #[tokio::test(start_paused = true)]
    async fn a_call_does_not_wait_for_lookups_for_long() {
        let begun = tokio::time::Instant::now();
        let fault = fault_of(Arc::new(Places::new(0, 1)), Duration::from_secs(10)).await;
        assert_eq!(fault.cause, Cause::DnsFailure, "{}", fault.message);
        assert!(fault.cause.proves_no_effect() && begun.elapsed() < Duration::from_secs(5));
    }

    /// The client looks names up in the name of the agent whose call it is.
    #[tokio::test]
    async fn an_agent_has_its_own_lookups() {
        let places = Arc::new(Places::new(2, 1));
        let _taken = in_name_of("a".into(), places.take()).await;
        let told = |fault: Fault| fault.message.contains("was not looked up");
        let of = |agent: &str| in_name_of(agent.into(), fault_of(Arc::clone(&places), Duration::from_secs(20)));
        assert!(told(of("a").await));
        assert!(!told(of("b").await));
    }

    #[tokio::test]
    async fn a_name_is_looked_up_where_there_is_a_place() {
        let one = Places::new(1, 1);
        for _ in 0..2 {
            assert_eq!(look_up("127.0.0.1".to_owned(), &one).await.unwrap(), [IpAddr::from([127, 0, 0, 1])]);
        }
    }
}
