//! Where secrets come from, and that they go nowhere.

use std::ffi::OsString;

use macp_plan::secrets::{Configured, Error, Held, Secrets, Settings, check, expand};

fn environment(variables: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
}

#[test]
fn variables_and_files() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("from-file"), "value-of-file\n").unwrap();
    std::fs::write(directory.path().join("both"), "value-of-file").unwrap();
    std::fs::write(directory.path().join("binary"), [0xff, 0xfe]).unwrap();
    std::fs::create_dir(directory.path().join("folder")).unwrap();
    let settings = Settings { directory: Some(directory.path().to_owned()), ..Settings::default() };
    let variables = environment(&[
        ("MACP_SECRET_API_KEY", "value-of-variable"),
        ("MACP_SECRET_BOTH", "value-of-variable"),
        ("PATH", "x"),
    ]);
    let secrets = Configured::from_variables(settings, variables);
    let value = |name: &str| secrets.secret(name).unwrap().to_string();
    assert_eq!(value("api-key"), "value-of-variable");
    assert_eq!(value("api.key"), "value-of-variable");
    assert_eq!(value("both"), "value-of-variable");
    assert_eq!(value("from-file"), "value-of-file");
    // A rotated file is seen.
    std::fs::write(directory.path().join("from-file"), "rotated\r\n").unwrap();
    assert_eq!(value("from-file"), "rotated");

    // The texts that plans read show neither which of them exist nor where secrets are stored.
    for name in ["absent", "binary", "folder"] {
        let error = secrets.secret(name).unwrap_err();
        let told = format!("the secret `{name}` is not available to this call; the server's log has the reason");
        assert_eq!((error.to_string(), error), (told, Error::Unavailable { name: name.to_owned() }));
    }
    for name in ["", "..", "../etc/passwd", "a/b", ".hidden", "a b", "é", &"a".repeat(129)] {
        assert!(matches!(secrets.secret(name), Err(Error::Name)), "{name}");
    }
    assert!(!format!("{secrets:?}").contains("value-of"));
}

#[test]
fn sources_can_be_switched_off() {
    let settings = Settings { environment_prefix: None, ..Settings::default() };
    let secrets = Configured::from_variables(settings, environment(&[("MACP_SECRET_A", "x")]));
    assert_eq!(secrets.secret("a").unwrap_err(), Error::Unavailable { name: "a".to_owned() });
}

#[test]
fn references_are_replaced_inside_texts() {
    let held = Held::default().with("one", "1").with("two.b", "2");
    let expanded = |text: &str| expand(text, &held).map(|text| text.to_string());
    assert_eq!(expanded("plain").unwrap(), "plain");
    assert_eq!(expanded("secret://one").unwrap(), "1");
    assert_eq!(expanded("Bearer secret://one").unwrap(), "Bearer 1");
    assert_eq!(expanded("secret://one:secret://two.b!").unwrap(), "1:2!");
    for broken in ["secret://", "a secret:// b", "secret://.x"] {
        assert!(matches!(expanded(broken), Err(Error::Name)), "{broken}");
        assert!(check(broken).is_err());
    }
    assert!(matches!(expanded("secret://three"), Err(Error::Unavailable { .. })));
    assert!(check("secret://three").is_ok(), "whether it exists is asked when it is needed");
    assert_eq!(format!("{held:?}"), r#"Held(["one", "two.b"])"#);
}
