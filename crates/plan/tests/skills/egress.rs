//! What may be reached, by name and by address.

use macp_plan::egress::{Egress, Forbidden, Settings};
use macp_plan_core::cause::Cause;
use serde_json::json;
use url::Url;

use crate::server::{Server, answer};
use crate::world::{PATIENT, call, expect_code, registry_with, settings};

fn list(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn judged(settings: &Settings, url: &str) -> Result<(), Forbidden> {
    Egress::new(settings).expect("usable settings").check_url(&Url::parse(url).expect("a URL"))
}

#[test]
fn nothing_is_allowed_unless_it_is() {
    let settings = Settings::default();
    for url in ["https://example.com/", "https://93.184.216.34/", "https://localhost/", "http://example.com/"] {
        assert!(judged(&settings, url).is_err(), "{url}");
    }
}

#[test]
fn hosts_are_allowed_by_name_or_by_what_they_end_in() {
    let settings =
        Settings { allow_hosts: list(&["API.example.com", "*.wild.example", "93.184.216.34"]), ..Settings::default() };
    let allowed = |url: &str| judged(&settings, url).is_ok();
    assert!(allowed("https://api.example.com/"));
    assert!(allowed("https://api.example.com./"));
    assert!(allowed("https://API.EXAMPLE.COM:8443/"));
    assert!(allowed("https://a.wild.example/"));
    assert!(allowed("https://a.b.wild.example/"));
    assert!(allowed("https://93.184.216.34/"));
    assert!(!allowed("https://wild.example/"), "the name itself is not below itself");
    assert!(!allowed("https://notwild.example/"));
    assert!(!allowed("https://example.com/"));
    assert!(!allowed("https://api.example.com.evil.test/"));
    assert!(!allowed("https://evil.test/?api.example.com"));
    assert!(!allowed("https://api.example.com@evil.test/"));
}

#[test]
fn plain_http_must_be_allowed() {
    let mut settings = Settings { allow_hosts: list(&["a.example"]), ..Settings::default() };
    assert!(matches!(judged(&settings, "http://a.example/"), Err(Forbidden::Scheme { .. })));
    settings.allow_http = true;
    assert!(judged(&settings, "http://a.example/").is_ok());
    for url in ["ftp://a.example/", "gopher://a.example/", "ws://a.example/"] {
        assert!(matches!(judged(&settings, url), Err(Forbidden::Scheme { .. })), "{url}");
    }
    assert_eq!(judged(&settings, "file:///etc/passwd"), Err(Forbidden::NoHost));
}

#[test]
fn addresses_in_disguise_are_recognised() {
    let settings = Settings { allow_any_public: true, ..Settings::default() };
    let disguises = [
        "https://127.0.0.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f.0.0.1/",
        "https://0177.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:7f00:1]/",
        "https://[64:ff9b::10.0.0.1]/",
        "https://0/",
        "https://169.254.169.254/",
        "https://[fd00::1]/",
        "https://１２７.0.0.1/",
    ];
    for url in disguises {
        assert!(matches!(judged(&settings, url), Err(Forbidden::Address { .. })), "{url}");
    }
    assert!(judged(&settings, "https://8.8.8.8/").is_ok());
    assert!(judged(&settings, "https://[2606:4700::1111]/").is_ok());
}

#[test]
fn private_addresses_need_a_host_or_a_network() {
    let by_network = Settings { allow_networks: list(&["10.1.0.0/16", "fd00::/8"]), ..Settings::default() };
    assert!(judged(&by_network, "https://10.1.2.3/").is_ok());
    assert!(judged(&by_network, "https://[fd00::1]/").is_ok());
    assert!(judged(&by_network, "https://10.2.0.1/").is_err());
    let by_host = Settings { allow_private_hosts: list(&["192.168.1.1", "::1", "nas.home"]), ..Settings::default() };
    assert!(judged(&by_host, "https://192.168.1.1/").is_ok());
    assert!(judged(&by_host, "https://[::1]/").is_ok());
    assert!(judged(&by_host, "https://nas.home/").is_ok());
    assert!(judged(&by_host, "https://192.168.1.2/").is_err());
    // Allowing a host does not allow it to be anywhere.
    let by_name = Settings { allow_hosts: list(&["127.0.0.1"]), ..Settings::default() };
    let told = judged(&by_name, "https://127.0.0.1/").unwrap_err().to_string();
    assert!(told.contains("127.0.0.1") && told.contains("egress_allow_private_hosts"), "{told}");
}

#[test]
fn rules_that_mean_nothing_are_refused() {
    let unusable = |settings: Settings| Egress::new(&settings).expect_err("must be refused").to_string();
    let long = format!("{}.example", "a".repeat(64));
    let written = [
        "",
        "*",
        "*.",
        "*.*",
        "*.*.example",
        "**.example",
        "*example",
        "a.*",
        "a.*.example",
        "a..example",
        ".example",
        "*..example",
        "a b",
        "https://a.example",
        "a.example/",
        "a.example:443",
        "*.10.0.0.1",
        "a!b.example",
        &long,
    ];
    for host in written {
        let told = unusable(Settings { allow_hosts: list(&[host]), ..Settings::default() });
        assert!(told.contains("egress_allow_hosts"), "{host}: {told}");
    }
    let told = unusable(Settings { allow_private_hosts: list(&["*.home"]), ..Settings::default() });
    assert!(told.contains("egress_allow_private_hosts"), "{told}");
    let told = unusable(Settings { allow_networks: list(&["10.0.0.0/99"]), ..Settings::default() });
    assert!(told.contains("egress_allow_networks"), "{told}");
}

/// The address that is connected to is the one that was judged.
#[tokio::test]
async fn a_public_name_with_a_private_address_is_refused_at_connecting() {
    let server = Server::answering(answer(200, &[], "hello")).await;
    let port = server.address.port();
    let mut settings = settings();
    settings.egress = Settings { allow_hosts: list(&["*.example"]), allow_http: true, ..Settings::default() };
    let names = [("rebound.example", "127.0.0.1"), ("mapped.example", "::ffff:127.0.0.1"), ("six.example", "::1")];
    let skill = registry_with(&settings, &names).callable("http_call", "1.2.0").unwrap();
    for (name, _) in names {
        let seen = call(&*skill, json!({"url": format!("http://{name}:{port}/")}), PATIENT).await;
        assert_eq!(seen.cause, Cause::EgressForbidden, "{name}: {seen:?}");
        expect_code(&*skill, &seen, "ERR_POLICY_VIOLATION");
        assert!(seen.message.contains(name) && seen.message.contains("egress_allow_private_hosts"), "{}", seen.message);
    }
    assert!(server.requests().is_empty());

    settings.egress.allow_private_hosts = list(&["rebound.example"]);
    let skill = registry_with(&settings, &names).callable("http_call", "1.2.0").unwrap();
    let seen = call(&*skill, json!({"url": format!("http://rebound.example:{port}/")}), PATIENT).await;
    expect_code(&*skill, &seen, "OK_HTTP_CALL");
    assert_eq!(server.only_request().header("host"), Some(format!("rebound.example:{port}").as_str()));
}

/// Among several addresses only those that are allowed are tried.
#[tokio::test]
async fn forbidden_addresses_of_a_name_are_left_out() {
    let server = Server::answering(answer(200, &[], "hello")).await;
    let port = server.address.port();
    let mut settings = settings();
    settings.egress.allow_hosts = list(&["both.example"]);
    let names = [("both.example", "::1"), ("both.example", "127.0.0.1")];
    let skill = registry_with(&settings, &names).callable("http_call", "1.2.0").unwrap();
    let seen = call(&*skill, json!({"url": format!("http://both.example:{port}/")}), PATIENT).await;
    expect_code(&*skill, &seen, "OK_HTTP_CALL");
}

#[tokio::test]
async fn a_host_that_is_not_allowed_is_not_even_looked_up() {
    let skill = registry_with(&settings(), &[]).callable("http_call", "1.2.0").unwrap();
    let seen = call(&*skill, json!({"url": "https://other.example/?q=confidential"}), PATIENT).await;
    assert_eq!(seen.cause, Cause::EgressForbidden);
    let told = "the host other.example is not allowed: list it under egress_allow_hosts, or under \
                egress_allow_private_hosts if its address is not public";
    assert_eq!(seen.message, told);
}
