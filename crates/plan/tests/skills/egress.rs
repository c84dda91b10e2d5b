//! What may be reached, by name and by address.

use macp_plan::egress::{Egress, Forbidden, Settings};
use macp_plan::skills::SkillSettings;
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
    assert!(allowed("https://API.EXAMPLE.COM:443/"));
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

/// A public host has the ports of https and, if that is allowed, of http, unless a rule names another.
#[test]
fn ports_of_public_hosts() {
    let forbidden = |settings: &Settings, url: &str| matches!(judged(settings, url), Err(Forbidden::Port { .. }));
    let named = Settings {
        allow_hosts: list(&[
            "a.example",
            "b.example:8443",
            "*.c.example:9000",
            "93.184.216.34",
            "[2606:4700::1111]:444",
        ]),
        ..Settings::default()
    };
    for url in [
        "https://a.example/",
        "https://a.example:443/",
        "https://b.example:8443/",
        "https://x.c.example:9000/",
        "https://93.184.216.34/",
        "https://[2606:4700::1111]:444/",
    ] {
        assert_eq!(judged(&named, url), Ok(()), "{url}");
    }
    for url in [
        "https://a.example:80/",
        "https://a.example:8443/",
        "https://a.example:22/",
        "https://b.example/",
        "https://x.c.example/",
        "https://93.184.216.34:8443/",
        "https://[2606:4700::1111]/",
    ] {
        assert!(forbidden(&named, url), "{url}");
    }
    let told = judged(&named, "https://b.example/").unwrap_err().to_string();
    assert!(told.contains("b.example:443") && told.contains("egress_allow_hosts"), "{told}");
    // Several rules about one host add up.
    let both = Settings { allow_hosts: list(&["a.example", "a.example:8443"]), ..Settings::default() };
    for (url, allowed) in
        [("https://a.example/", true), ("https://a.example:8443/", true), ("https://a.example:1/", false)]
    {
        assert_eq!(judged(&both, url).is_ok(), allowed, "{url}");
    }
    let any = Settings { allow_any_public: true, allow_hosts: list(&["b.example:8443"]), ..Settings::default() };
    assert!(judged(&any, "https://anything.example/").is_ok() && judged(&any, "https://b.example:8443/").is_ok());
    assert!(forbidden(&any, "https://anything.example:8443/") && forbidden(&any, "https://8.8.8.8:853/"));
    let plain = Settings { allow_http: true, ..any };
    assert!(judged(&plain, "http://anything.example/").is_ok() && judged(&plain, "http://b.example:8443/").is_ok());
    assert!(forbidden(&plain, "http://anything.example:8080/"));
}

/// A private host has all its ports, unless a rule names one; what the server itself listens on must be named.
#[test]
fn ports_of_private_hosts() {
    let settings = Settings {
        allow_private_hosts: list(&["127.0.0.1", "nas.home:8080", "10.0.0.9:443"]),
        allow_networks: list(&["10.1.0.0/16", "127.8.0.0/16"]),
        listening: vec!["0.0.0.0:50051".parse().unwrap()],
        ..Settings::default()
    };
    for url in [
        "https://127.0.0.1/",
        "https://127.0.0.1:8000/",
        "https://127.0.0.1:50052/",
        "https://nas.home:8080/",
        "https://10.0.0.9/",
        "https://10.1.2.3:5432/",
        "https://127.8.0.1:1/",
    ] {
        assert_eq!(judged(&settings, url), Ok(()), "{url}");
    }
    for url in ["https://nas.home/", "https://nas.home:80/", "https://10.0.0.9:8443/"] {
        assert!(matches!(judged(&settings, url), Err(Forbidden::Port { .. })), "{url}");
    }
    for url in ["https://127.0.0.1:50051/", "https://[::ffff:127.8.0.1]:50051/", "https://2130706433:50051/"] {
        let told = judged(&settings, url).unwrap_err();
        assert!(matches!(told, Forbidden::Listening { .. }), "{url}: {told}");
        assert!(told.to_string().contains(":50051 under egress_allow_private_hosts"), "{told}");
    }
    let mut listed = settings;
    listed.allow_private_hosts.push("127.0.0.1:50051".to_owned());
    assert_eq!(judged(&listed, "https://127.0.0.1:50051/"), Ok(()));
    assert!(judged(&listed, "https://127.8.0.1:50051/").is_err(), "another name for the same place is not listed");
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
        "a.example:",
        "a.example:0",
        "a.example:65536",
        "a.example:https",
        "*.10.0.0.1",
        "a!b.example",
        &long,
    ];
    for host in written {
        let told = unusable(Settings { allow_hosts: list(&[host]), ..Settings::default() });
        assert!(told.contains("egress_allow_hosts"), "{host}: {told}");
    }
    for host in ["*.home", "*.home:80", "nas.home:"] {
        let told = unusable(Settings { allow_private_hosts: list(&[host]), ..Settings::default() });
        assert!(told.contains("egress_allow_private_hosts"), "{host}: {told}");
    }
    let told = unusable(Settings { allow_networks: list(&["10.0.0.0/99"]), ..Settings::default() });
    assert!(told.contains("egress_allow_networks"), "{told}");
}

/// The address that is connected to is the one that was judged.
#[tokio::test]
async fn a_public_name_with_a_private_address_is_refused_at_connecting() {
    let server = Server::answering(answer(200, &[], "hello")).await;
    let port = server.address.port();
    let mut settings = settings();
    settings.egress =
        Settings { allow_hosts: vec![format!("*.example:{port}")], allow_http: true, ..Settings::default() };
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

/// A name that leads to the server itself, past the port that was judged with the name.
#[tokio::test]
async fn a_name_does_not_lead_to_the_server_itself() {
    let server = Server::answering(answer(200, &[], "hello")).await;
    let port = server.address.port();
    let mut settings = settings();
    settings.egress.allow_private_hosts = list(&["own.example"]);
    settings.egress.listening = vec![server.address];
    let names = [("own.example", "127.0.0.1"), ("mapped.example", "::ffff:127.0.0.1")];
    let called = async |settings: &SkillSettings, name: &str| {
        let skill = registry_with(settings, &names).callable("http_call", "1.2.0").unwrap();
        call(&*skill, json!({"url": format!("http://{name}:{port}/")}), PATIENT).await
    };
    let seen = called(&settings, "own.example").await;
    assert_eq!(seen.cause, Cause::EgressForbidden, "{seen:?}");
    assert!(seen.message.contains("this server listens on"), "{}", seen.message);
    settings.egress.allow_private_hosts = list(&["mapped.example"]);
    assert_eq!(called(&settings, "mapped.example").await.cause, Cause::EgressForbidden);
    settings.egress.listening = vec![format!("0.0.0.0:{port}").parse().unwrap()];
    assert_eq!(called(&settings, "mapped.example").await.cause, Cause::EgressForbidden);
    assert!(server.requests().is_empty());
    settings.egress.allow_private_hosts = vec![format!("own.example:{port}")];
    assert_eq!(called(&settings, "own.example").await.cause, Cause::http(200));
    assert_eq!(server.requests().len(), 1);
}

/// A private address is allowed for the port that the rule about private hosts names, not for one that another allows.
#[tokio::test]
async fn a_private_address_needs_a_rule_for_its_port() {
    let (open, other) =
        (Server::answering(answer(200, &[], "x")).await, Server::answering(answer(200, &[], "x")).await);
    let mut settings = settings();
    settings.egress = Settings {
        allow_hosts: vec![format!("both.example:{}", other.address.port())],
        allow_private_hosts: vec![format!("both.example:{}", open.address.port())],
        allow_http: true,
        ..Settings::default()
    };
    let skill = registry_with(&settings, &[("both.example", "127.0.0.1")]).callable("http_call", "1.2.0").unwrap();
    for (server, cause) in [(&open, Cause::http(200)), (&other, Cause::EgressForbidden)] {
        let url = format!("http://both.example:{}/", server.address.port());
        assert_eq!(call(&*skill, json!({ "url": url }), PATIENT).await.cause, cause);
    }
    assert!(other.requests().is_empty());
}

/// Among several addresses only those that are allowed are tried.
#[tokio::test]
async fn forbidden_addresses_of_a_name_are_left_out() {
    let server = Server::answering(answer(200, &[], "hello")).await;
    let port = server.address.port();
    let mut settings = settings();
    settings.egress.allow_hosts = vec![format!("both.example:{port}")];
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
