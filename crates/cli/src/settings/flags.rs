//! The flags of `macp serve`, made from the list of settings.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::list::{Default, Setting, settings};
use super::value::Kind;

/// What the command line says, by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingFlags {
    pub(crate) given: BTreeMap<&'static str, OsString>,
}

impl clap::Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        command.args(settings().filter_map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = settings().filter(|setting| setting.flag.is_some()).filter_map(|setting| {
            let said = matches.value_source(setting.key) == Some(ValueSource::CommandLine);
            let text = matches.get_one::<OsString>(setting.key).filter(|_| said)?;
            Some((setting.key, text.clone()))
        });
        Ok(SettingFlags { given: given.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(setting: &'static Setting) -> Option<Arg> {
    let default = match setting.default {
        Default::Is(text) => text,
        Default::Unset(words) => words,
    };
    let help = format!("{} [env: {}] [default: {default}]", setting.help, setting.env);
    let argument = Arg::new(setting.key)
        .long(setting.flag?)
        .help(help)
        .value_parser(clap::value_parser!(OsString))
        .value_name(value_name(setting));
    Some(match setting.kind {
        // `--memory` alone switches on; `--reflection=false` switches off.
        Kind::Switch => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => argument,
    })
}

fn value_name(setting: &Setting) -> &'static str {
    match setting.kind {
        Kind::Switch => "BOOL",
        Kind::Number { .. } => "N",
        Kind::Word(_) => "WORD",
        Kind::List => match setting.key {
            "rate_cards" => "FILES",
            _ => "NAMES",
        },
        Kind::Text | Kind::Secret => match setting.key {
            "data" | "policies_dir" | "secrets_dir" => "DIR",
            "listen" => "ADDR",
            "plan_namespace"
            | "execution_identity"
            | "runtime_id"
            | "auth_issuer"
            | "auth_audience"
            | "receipt_signing_kid" => "NAME",
            "auth_jwks_url" => "URL",
            "auth_jwt_algs" => "NAMES",
            "auth_roles_json" => "JSON",
            "log" => "FILTER",
            _ => "FILE",
        },
    }
}
