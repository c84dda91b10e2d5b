//! Our wire contract against the published one: whatever a client of the public protocol may say or expect must exist
//! here with the same name, number and type, in the same file.

use std::collections::BTreeMap;

use macp_wire::FILE_DESCRIPTOR_SET;
use prost::Message;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet, ServiceDescriptorProto,
};

/// Packages of our own, which the published contract does not know.
const OWN_PACKAGES: [&str; 4] = ["macp.classic.v1", "macp.history.v1", "macp.plan.v1", "macp.signature.v1"];

/// Fields we add to published messages have numbers from here on.
const OWN_FIELDS_FROM: i32 = 1000;

/// Everything a descriptor set declares, by fully qualified name and number.
type Contract = BTreeMap<Key, String>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    File(String),
    Message(String),
    Field(String, i32),
    Oneof(String, String),
    Enum(String),
    EnumValue(String, String),
    Service(String),
    Method(String, String),
}

fn contract(set: &FileDescriptorSet) -> Contract {
    let mut contract = Contract::new();
    for file in &set.file {
        let package = file.package();
        contract.insert(Key::File(file.name().into()), format!("{} {package}", file.syntax()));
        for message in &file.message_type {
            add_message(&mut contract, file.name(), package, message);
        }
        for declared in &file.enum_type {
            add_enum(&mut contract, file.name(), package, declared);
        }
        for service in &file.service {
            add_service(&mut contract, file.name(), package, service);
        }
    }
    contract
}

fn add_message(contract: &mut Contract, file: &str, scope: &str, message: &DescriptorProto) {
    let name = format!("{scope}.{}", message.name());
    let map_entry = message.options.as_ref().is_some_and(|options| options.map_entry());
    contract.insert(Key::Message(name.clone()), format!("in {file}, map entry {map_entry}"));
    for field in &message.field {
        contract.insert(Key::Field(name.clone(), field.number()), describe_field(message, field));
    }
    for oneof in &message.oneof_decl {
        contract.insert(Key::Oneof(name.clone(), oneof.name().into()), String::new());
    }
    for nested in &message.nested_type {
        add_message(contract, file, &name, nested);
    }
    for nested in &message.enum_type {
        add_enum(contract, file, &name, nested);
    }
}

fn describe_field(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let oneof = field.oneof_index.map(|index| message.oneof_decl[usize::try_from(index).expect("an index")].name());
    format!(
        "{} ({}): {:?} {:?} {}, oneof {oneof:?}, optional {}",
        field.name(),
        field.json_name(),
        field.label(),
        field.r#type(),
        field.type_name(),
        field.proto3_optional(),
    )
}

fn add_enum(contract: &mut Contract, file: &str, scope: &str, declared: &EnumDescriptorProto) {
    let name = format!("{scope}.{}", declared.name());
    contract.insert(Key::Enum(name.clone()), format!("in {file}"));
    for value in &declared.value {
        let key = Key::EnumValue(name.clone(), value.name().into());
        contract.insert(key, value.number().to_string());
    }
}

fn add_service(contract: &mut Contract, file: &str, package: &str, service: &ServiceDescriptorProto) {
    let name = format!("{package}.{}", service.name());
    contract.insert(Key::Service(name.clone()), format!("in {file}"));
    for method in &service.method {
        let shape = format!(
            "{} (stream {}) -> {} (stream {})",
            method.input_type(),
            method.client_streaming(),
            method.output_type(),
            method.server_streaming(),
        );
        contract.insert(Key::Method(name.clone(), method.name().into()), shape);
    }
}

/// What makes `ours` more than a compatible extension of `theirs`, one line for each point.
fn differences(theirs: &FileDescriptorSet, ours: &FileDescriptorSet) -> Vec<String> {
    let (theirs, ours) = (contract(theirs), contract(ours));
    let mut differences = Vec::new();
    for (key, expected) in &theirs {
        match ours.get(key) {
            None => differences.push(format!("missing: {key:?}: {expected}")),
            Some(found) if found != expected => {
                differences.push(format!("changed: {key:?}: {expected} became {found}"));
            }
            Some(_) => {}
        }
    }
    for (key, found) in &ours {
        if !theirs.contains_key(key) && !is_own(key, found) {
            differences.push(format!("added: {key:?}: {found}"));
        }
    }
    differences
}

fn is_own(key: &Key, description: &str) -> bool {
    let in_own_package = |name: &str| {
        OWN_PACKAGES
            .iter()
            .any(|package| name.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    };
    match key {
        Key::File(_) => description.split(' ').next_back().is_some_and(in_own_package),
        Key::Field(message, number) => *number >= OWN_FIELDS_FROM || in_own_package(message),
        Key::Message(name) | Key::Enum(name) | Key::Service(name) => in_own_package(name),
        Key::Oneof(scope, _) | Key::EnumValue(scope, _) | Key::Method(scope, _) => in_own_package(scope),
    }
}

fn published() -> FileDescriptorSet {
    const FILES: [&str; 9] = [
        "macp/v1/envelope.proto",
        "macp/v1/core.proto",
        "macp/v1/policy.proto",
        "macp/modes/decision/v1/decision.proto",
        "macp/modes/proposal/v1/proposal.proto",
        "macp/modes/task/v1/task.proto",
        "macp/modes/handoff/v1/handoff.proto",
        "macp/modes/quorum/v1/quorum.proto",
        "macp/modes/multi_round/v1/multi_round.proto",
    ];
    protox::compile(FILES, [macp_proto::proto_dir()]).expect("the published files compile")
}

fn ours() -> FileDescriptorSet {
    FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("the embedded set decodes")
}

#[test]
fn ours_extends_the_published_contract() {
    let differences = differences(&published(), &ours());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn the_published_contract_is_the_one_we_think() {
    let contract = contract(&published());
    let methods = contract.keys().filter(|key| matches!(key, Key::Method(..))).count();
    let messages = contract.keys().filter(|key| matches!(key, Key::Message(_))).count();
    assert_eq!(methods, 27);
    assert!(messages > 90, "{messages}");
}

#[test]
fn classic_starts_share_their_first_six_fields_with_standard_ones() {
    let contract = contract(&ours());
    let field = |message: &str, number| contract.get(&Key::Field(message.into(), number));
    for number in 1..=6 {
        let classic = field("macp.classic.v1.SessionStartPayload", number);
        assert!(classic.is_some(), "{number}");
        assert_eq!(classic, field("macp.v1.SessionStartPayload", number));
    }
}

/// The comparison finds `expected`, and nothing else, after `mutate` has changed our set.
#[track_caller]
fn check_found(expected: &str, mutate: impl FnOnce(&mut FileDescriptorSet) -> Option<()>) {
    let mut mutated = ours();
    mutate(&mut mutated).expect("the place to change exists");
    let found = differences(&published(), &mutated);
    assert!(
        !found.is_empty() && found.iter().all(|line| line.starts_with(expected)),
        "expected {expected:?}, found {found:#?}",
    );
}

fn message<'a>(set: &'a mut FileDescriptorSet, name: &str) -> Option<&'a mut DescriptorProto> {
    set.file
        .iter_mut()
        .filter(|file| file.package() == "macp.v1")
        .flat_map(|file| &mut file.message_type)
        .find(|message| message.name() == name)
}

#[test]
fn the_comparison_can_fail() {
    check_found("missing: Field(\"macp.v1.Envelope\", 6)", |set| {
        message(set, "Envelope")?.field.retain(|field| field.number() != 6);
        Some(())
    });
    check_found("changed: Field(\"macp.v1.Ack\", 5)", |set| {
        let field = message(set, "Ack")?.field.iter_mut().find(|field| field.number() == 5)?;
        field.set_type(prost_types::field_descriptor_proto::Type::Uint64);
        Some(())
    });
    check_found("changed: Field(\"macp.v1.ListModesResponse\", 1)", |set| {
        let field = message(set, "ListModesResponse")?.field.first_mut()?;
        field.set_label(prost_types::field_descriptor_proto::Label::Optional);
        Some(())
    });
    check_found("changed: Field(\"macp.v1.WhatIfReplayResponse\", 5)", |set| {
        let fields = &mut message(set, "WhatIfReplayResponse")?.field;
        fields.iter_mut().find(|field| field.number() == 5)?.proto3_optional = None;
        Some(())
    });
    check_found("added: Field(\"macp.v1.Ack\", 8)", |set| {
        let fields = &mut message(set, "Ack")?.field;
        let mut extra = fields.first()?.clone();
        extra.number = Some(8);
        extra.name = Some("extra".into());
        fields.push(extra);
        Some(())
    });
    check_found("missing: EnumValue(\"macp.v1.SessionState\", \"SESSION_STATE_CANCELLED\")", |set| {
        set.file.iter_mut().flat_map(|file| &mut file.enum_type).for_each(|declared| {
            declared.value.retain(|value| value.name() != "SESSION_STATE_CANCELLED");
        });
        Some(())
    });
    check_found("changed: Method(\"macp.v1.MACPRuntimeService\", \"WatchRoots\")", |set| {
        set.file
            .iter_mut()
            .flat_map(|file| &mut file.service)
            .flat_map(|service| &mut service.method)
            .find(|method| method.name() == "WatchRoots")?
            .server_streaming = None;
        Some(())
    });
}
