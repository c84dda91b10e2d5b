//! Reading an authored object field by field: spellings, kinds, and what is left over.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::finding::Finding;
use crate::plan::limits::shown;

/// An object being read. Every field that is asked for counts as known; the rest is reported at the end.
pub(super) struct Fields<'a, 'f> {
    members: &'a Map<String, Value>,
    place: &'a str,
    step_id: Option<&'a str>,
    known: BTreeSet<&'static str>,
    found: &'f mut Vec<Finding>,
}

impl<'a, 'f> Fields<'a, 'f> {
    pub(super) fn new(
        members: &'a Map<String, Value>,
        place: &'a str,
        step_id: Option<&'a str>,
        found: &'f mut Vec<Finding>,
    ) -> Self {
        Self { members, place, step_id, known: BTreeSet::new(), found }
    }

    pub(super) fn push(&mut self, mut finding: Finding) {
        finding.step_id = finding.step_id.or_else(|| self.step_id.map(str::to_owned));
        self.found.push(finding);
    }

    /// The value under one of several spellings; only one may be used. Null is the same as nothing.
    pub(super) fn value(&mut self, spellings: &[&'static str]) -> Option<&'a Value> {
        self.known.extend(spellings);
        let given: Vec<&str> = spellings.iter().copied().filter(|name| self.given(name)).collect();
        if let [first, second, ..] = given[..] {
            let problem = format!("{} has both `{first}` and `{second}`, which mean the same", self.place);
            self.push(Finding::error("AOS-11", "field_twice", problem).fix(format!("keep `{first}`")));
        }
        given.first().and_then(|name| self.members.get(*name))
    }

    fn given(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|value| !value.is_null())
    }

    fn wrong(&mut self, name: &str, wanted: &str) {
        let problem = format!("{}: `{name}` must be {wanted}", self.place);
        self.push(Finding::error("AOS-10", "field_kind", problem).fix(format!("write {wanted}")));
    }

    fn read<T>(
        &mut self,
        spellings: &[&'static str],
        wanted: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(spellings)?;
        let read = read(value);
        if read.is_none() {
            let name = spellings.iter().find(|name| self.given(name)).copied().unwrap_or_default();
            self.wrong(name, wanted);
        }
        read
    }

    pub(super) fn text(&mut self, spellings: &[&'static str]) -> Option<String> {
        self.read(spellings, "a text", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn integer(&mut self, spellings: &[&'static str]) -> Option<u64> {
        self.read(spellings, "a whole number that is not negative", whole)
    }

    pub(super) fn small(&mut self, spellings: &[&'static str]) -> Option<u32> {
        self.read(spellings, "a small whole number", |value| u32::try_from(whole(value)?).ok())
    }

    pub(super) fn flag(&mut self, spellings: &[&'static str]) -> Option<bool> {
        self.read(spellings, "true or false", Value::as_bool)
    }

    pub(super) fn object(&mut self, spellings: &[&'static str]) -> Option<&'a Map<String, Value>> {
        self.read(spellings, "an object", Value::as_object)
    }

    pub(super) fn array(&mut self, spellings: &[&'static str]) -> Option<&'a Vec<Value>> {
        self.read(spellings, "an array", Value::as_array)
    }

    pub(super) fn texts(&mut self, spellings: &[&'static str]) -> Option<Vec<String>> {
        self.read(spellings, "an array of texts", texts)
    }

    /// Reads a field into a type of the model.
    pub(super) fn typed<T: serde::de::DeserializeOwned>(
        &mut self,
        spellings: &[&'static str],
        wanted: &str,
    ) -> Option<T> {
        self.read(spellings, wanted, |value| T::deserialize(value).ok())
    }

    /// A part that nothing stands in for.
    pub(super) fn required<T>(&mut self, name: &'static str, value: Option<T>, rule: &'static str) -> Option<T> {
        // A field of the wrong kind has been reported already.
        if value.is_none() && !self.given(name) {
            let problem = format!("{} has no `{name}`", self.place);
            self.push(Finding::error(rule, "field_missing", problem).fix(format!("add `{name}`")));
        }
        value
    }

    /// A field that is read by nobody and harms nobody.
    pub(super) fn dropped(&mut self, name: &'static str, rule: &'static str, why: &str) {
        if self.value(&[name]).is_some() {
            let problem = format!("`{name}` is left out: {why}");
            self.push(Finding::warning(rule, "field_dropped", problem).fix(format!("remove `{name}`")));
        }
    }

    /// A field that would change what the plan does, in a way that cannot be had.
    pub(super) fn refused(&mut self, name: &'static str, rule: &'static str, why: &str, fix: &str) {
        if self.value(&[name]).is_some() {
            let problem = format!("`{name}` is not accepted: {why}");
            self.push(Finding::error(rule, "field_refused", problem).fix(fix));
        }
    }

    /// Reports what nobody asked for.
    pub(super) fn finish(mut self, rule: &'static str) {
        let unknown: Vec<&String> = self.members.keys().filter(|name| !self.known.contains(name.as_str())).collect();
        for name in unknown {
            let problem = format!("{} has a field `{}` that has no meaning", self.place, shown(name));
            let fix = match nearest(name, &self.known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "remove it; notes for people go into metadata or description".to_owned(),
            };
            self.push(Finding::error(rule, "field_unknown", problem).fix(fix));
        }
    }
}

pub(super) fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|element| element.as_str().map(str::to_owned)).collect()
}

/// A whole number, also where it is written as 3.0.
fn whole(value: &Value) -> Option<u64> {
    let thousandths = || crate::plan::thousandths(value.as_number()?).filter(|it| it % 1000 == 0).map(|it| it / 1000);
    value.as_u64().or_else(thousandths)
}

/// The known name that differs from a given one by the fewest letters, if they are few.
fn nearest(name: &str, known: &BTreeSet<&'static str>) -> Option<&'static str> {
    if name.len() > 64 {
        return None;
    }
    known
        .iter()
        .copied()
        .map(|near| (distance(name, near), near))
        .min()
        .filter(|(far, _)| *far <= 2)
        .map(|(_, near)| near)
}

/// How many letters must be added, removed or changed between two words.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for column in 0..to.len() {
            let changed = diagonal + usize::from(letter != to[column]);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
