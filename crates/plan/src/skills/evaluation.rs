//! The evaluation of JMESPath expressions, done here and not by the `jmespath` crate, because it must end.
//!
//! Neither loops nor recursion exist in the language, but `[@,@][]|[@,@][]|…` doubles a list with every few characters.
//! Every step therefore costs units in proportion to what it touches or makes, and an evaluation has only so many. What
//! it makes is weighed too, since small objects take far more memory than work, and the result is measured before it is
//! made, since in it nothing is shared any more. All of that depends on expression and input alone, so an expression is
//! refused always or never.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering as Access};

use jmespath::ast::{Ast, Comparator};
use jmespath::{Context, ErrorReason, Rcvar, Runtime, Variable};
use macp_wire::memory;
use serde_json::{Number, Value};

use super::expression::Error;
use super::written;

/// Units an evaluation may cost: about one per byte or value touched.
const UNITS_MAX: u64 = 32 * 1024 * 1024;
/// What an evaluation may make in all, about in bytes of memory. An input of the largest size fits through it twice
/// where it is made of ordinary objects, of some fifty bytes of text each.
pub(super) const MEMORY_MAX: u64 = 256 * 1024 * 1024;
/// The largest result, in bytes of canonical text.
pub(super) const RESULT_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// What an element of a new list costs, and a member of a new object: about their size in memory.
const ELEMENT_UNITS: u64 = 8;
const MEMBER_UNITS: u64 = 64;
/// What a value of the result costs beside its bytes.
const COPY_UNITS: u64 = 4;
/// Times a text of a value is written by the crate: into a text, and then into the one that is kept.
const WRITTEN_TIMES: u64 = 2;
/// Comparisons per element that sorting may need.
const SORT_FACTOR: u64 = 20;

const BEYOND: &str = "adds up to more than a number can be";

pub(super) struct Evaluation<'a> {
    text: &'a str,
    runtime: &'a Runtime,
    abandoned: &'a AtomicBool,
    units: u64,
    memory: u64,
    /// Bytes of canonical text that the result may still have.
    room: u64,
}

impl<'a> Evaluation<'a> {
    /// An evaluation that ends early once it is abandoned, which is when nobody reads what becomes of it.
    pub(super) fn new(text: &'a str, runtime: &'a Runtime, abandoned: &'a AtomicBool, memory_max: u64) -> Self {
        Self { text, runtime, abandoned, units: UNITS_MAX, memory: memory_max, room: RESULT_BYTES_MAX }
    }

    pub(super) fn run(mut self, root: &Rcvar, expression: &Ast) -> Result<Value, Error> {
        let result = self.evaluate(root, expression)?;
        self.copy(&result)?;
        value(&result)
    }

    fn spend(&mut self, units: u64) -> Result<(), Error> {
        if self.abandoned.load(Access::Relaxed) {
            return Err(Error::Abandoned);
        }
        self.units = self.units.checked_sub(units).ok_or(Error::TooMuchWork)?;
        Ok(())
    }

    /// Takes memory for what is about to be made.
    fn take(&mut self, bytes: usize) -> Result<(), Error> {
        self.memory = self.memory.checked_sub(length(bytes)).ok_or(Error::TooMuchMemory)?;
        Ok(())
    }

    /// Takes room for a piece of the result's text.
    fn write(&mut self, bytes: usize) -> Result<(), Error> {
        self.room = self.room.checked_sub(length(bytes)).ok_or(Error::ResultTooLarge)?;
        Ok(())
    }

    /// Pays for a walk over everything in a value.
    fn touch(&mut self, value: &Variable) -> Result<(), Error> {
        self.spend(1)?;
        match value {
            Variable::String(text) => self.spend(length(text.len())),
            Variable::Array(elements) => elements.iter().try_for_each(|element| self.touch(element)),
            Variable::Object(members) => members.iter().try_for_each(|(name, member)| {
                self.spend(length(name.len()))?;
                self.touch(member)
            }),
            Variable::Null | Variable::Bool(_) | Variable::Number(_) | Variable::Expref(_) => Ok(()),
        }
    }

    /// Pays for a copy of a value, in which nothing is shared any more: its work, its memory and its text.
    fn copy(&mut self, value: &Variable) -> Result<(), Error> {
        self.spend(COPY_UNITS)?;
        self.take(memory::VALUE_BYTES)?;
        match value {
            Variable::Null | Variable::Bool(_) | Variable::Number(_) => self.write(written::scalar(value)),
            Variable::String(text) => self.copy_text(text),
            Variable::Array(elements) => {
                self.write(written::brackets(elements.len()))?;
                elements.iter().try_for_each(|element| self.copy(element))
            }
            Variable::Object(members) => {
                self.take(memory::of_members(members.len()))?;
                self.write(written::braces(members.len()))?;
                members.iter().try_for_each(|(name, member)| {
                    self.copy_text(name)?;
                    self.copy(member)
                })
            }
            Variable::Expref(_) => Err(Error::NotAValue),
        }
    }

    fn copy_text(&mut self, text: &str) -> Result<(), Error> {
        self.spend(length(text.len()))?;
        self.take(memory::of_text(text))?;
        self.write(written::text(text))
    }

    /// Pays for the text of a value that is none yet.
    fn pay_for_text(&mut self, value: &Variable) -> Result<(), Error> {
        let bytes = match value {
            Variable::Null | Variable::Bool(_) | Variable::Number(_) => written::scalar(value),
            Variable::String(text) => written::text(text),
            Variable::Array(elements) => {
                elements.iter().try_for_each(|element| self.pay_for_text(element))?;
                written::brackets(elements.len())
            }
            Variable::Object(members) => {
                members.iter().try_for_each(|(name, member)| {
                    self.spend(length(written::text(name)) * WRITTEN_TIMES)?;
                    self.pay_for_text(member)
                })?;
                written::braces(members.len())
            }
            Variable::Expref(_) => return Err(Error::NotAValue),
        };
        self.spend(length(bytes) * WRITTEN_TIMES)
    }

    fn list(&mut self, elements: Vec<Rcvar>) -> Result<Rcvar, Error> {
        self.spend(length(elements.len()) * ELEMENT_UNITS)?;
        self.take(memory::VALUE_BYTES)?;
        Ok(Rcvar::new(Variable::Array(elements)))
    }

    fn evaluate(&mut self, data: &Rcvar, node: &Ast) -> Result<Rcvar, Error> {
        self.spend(1)?;
        match node {
            Ast::Field { name, .. } => Ok(data.get_field(name)),
            Ast::Identity { .. } => Ok(data.clone()),
            Ast::Literal { value, .. } => Ok(value.clone()),
            Ast::Index { idx, .. } => Ok(index(data, *idx)),
            Ast::Slice { start, stop, step, .. } => self.slice(data, *start, *stop, *step),
            Ast::Subexpr { lhs, rhs, .. } => {
                let left = self.evaluate(data, lhs)?;
                self.evaluate(&left, rhs)
            }
            Ast::Or { lhs, rhs, .. } => {
                let left = self.evaluate(data, lhs)?;
                if left.is_truthy() { Ok(left) } else { self.evaluate(data, rhs) }
            }
            Ast::And { lhs, rhs, .. } => {
                let left = self.evaluate(data, lhs)?;
                if left.is_truthy() { self.evaluate(data, rhs) } else { Ok(left) }
            }
            Ast::Not { node, .. } => Ok(Rcvar::new(Variable::Bool(!self.evaluate(data, node)?.is_truthy()))),
            Ast::Condition { predicate, then, .. } => match self.evaluate(data, predicate)?.is_truthy() {
                true => self.evaluate(data, then),
                false => Ok(null()),
            },
            Ast::Comparison { comparator, lhs, rhs, .. } => self.compare(data, comparator, lhs, rhs),
            Ast::ObjectValues { node, .. } => match self.evaluate(data, node)?.as_object() {
                Some(members) => self.list(members.values().cloned().collect()),
                None => Ok(null()),
            },
            Ast::Projection { lhs, rhs, .. } => self.project(data, lhs, rhs),
            Ast::Flatten { node, .. } => self.flatten(data, node),
            Ast::MultiList { elements, .. } => self.select_list(data, elements),
            Ast::MultiHash { elements, .. } => self.select_hash(data, elements),
            Ast::Function { name, args, offset } => self.call(data, name, args, *offset),
            Ast::Expref { ast, .. } => {
                // A copy of that part of the expression.
                self.spend(length(self.text.len()))?;
                Ok(Rcvar::new(Variable::Expref((**ast).clone())))
            }
        }
    }

    fn compare(&mut self, data: &Rcvar, by: &Comparator, lhs: &Ast, rhs: &Ast) -> Result<Rcvar, Error> {
        let left = self.evaluate(data, lhs)?;
        let right = self.evaluate(data, rhs)?;
        self.touch(&left)?;
        self.touch(&right)?;
        Ok(compared(by, &left, &right).map_or_else(null, |holds| Rcvar::new(Variable::Bool(holds))))
    }

    fn project(&mut self, data: &Rcvar, lhs: &Ast, rhs: &Ast) -> Result<Rcvar, Error> {
        let left = self.evaluate(data, lhs)?;
        let Some(elements) = left.as_array() else { return Ok(null()) };
        let mut collected = Vec::new();
        for element in elements {
            let current = self.evaluate(element, rhs)?;
            if !current.is_null() {
                collected.push(current);
            }
        }
        self.list(collected)
    }

    fn flatten(&mut self, data: &Rcvar, node: &Ast) -> Result<Rcvar, Error> {
        let inner = self.evaluate(data, node)?;
        let Some(elements) = inner.as_array() else { return Ok(null()) };
        let many = elements.iter().map(|element| element.as_array().map_or(1, Vec::len)).sum();
        // Paid before the list is made, since the list may be the one that is too long.
        self.spend(length(many) * ELEMENT_UNITS)?;
        let mut collected = Vec::with_capacity(many);
        for element in elements {
            match element.as_array() {
                Some(inner) => collected.extend(inner.iter().cloned()),
                None => collected.push(element.clone()),
            }
        }
        Ok(Rcvar::new(Variable::Array(collected)))
    }

    fn select_list(&mut self, data: &Rcvar, elements: &[Ast]) -> Result<Rcvar, Error> {
        if data.is_null() {
            return Ok(null());
        }
        let collected = elements.iter().map(|element| self.evaluate(data, element)).collect::<Result<_, _>>()?;
        self.list(collected)
    }

    fn select_hash(&mut self, data: &Rcvar, elements: &[jmespath::ast::KeyValuePair]) -> Result<Rcvar, Error> {
        if data.is_null() {
            return Ok(null());
        }
        self.take(memory::VALUE_BYTES + memory::of_members(elements.len()))?;
        let mut members = BTreeMap::new();
        for pair in elements {
            self.spend(MEMBER_UNITS + length(pair.key.len()))?;
            self.take(memory::of_text(&pair.key))?;
            members.insert(pair.key.clone(), self.evaluate(data, &pair.value)?);
        }
        Ok(Rcvar::new(Variable::Object(members)))
    }

    /// Slices with wide numbers: the indices of an expression may be as large as they like.
    fn slice(&mut self, data: &Rcvar, start: Option<i32>, stop: Option<i32>, step: i32) -> Result<Rcvar, Error> {
        if step == 0 {
            return Err(Error::Step);
        }
        let Some(elements) = data.as_array() else { return Ok(null()) };
        let (count, step) = (i64::try_from(elements.len()).unwrap_or(i64::MAX), i64::from(step));
        let bounds = if step > 0 { (0, count) } else { (-1, count - 1) };
        let place = |at: i32| {
            let at = i64::from(at);
            (if at < 0 { at + count } else { at }).clamp(bounds.0, bounds.1)
        };
        let (first, last) = if step > 0 { (bounds.0, bounds.1) } else { (bounds.1, bounds.0) };
        let stop = stop.map_or(last, place);
        let mut at = start.map_or(first, place);
        let mut collected = Vec::new();
        while (step > 0 && at < stop) || (step < 0 && at > stop) {
            collected.extend(usize::try_from(at).ok().and_then(|at| elements.get(at)).cloned());
            at += step;
        }
        self.list(collected)
    }

    fn call(&mut self, data: &Rcvar, name: &str, arguments: &[Ast], offset: usize) -> Result<Rcvar, Error> {
        match (name, arguments) {
            ("map", [Ast::Expref { ast, .. }, list]) => return self.map(data, ast, list),
            ("sort_by", [list, Ast::Expref { ast, .. }]) => return self.sort_by(data, list, ast),
            ("min_by", [list, Ast::Expref { ast, .. }]) => {
                return self.extreme(data, list, ast, "min_by", Ordering::Less);
            }
            ("max_by", [list, Ast::Expref { ast, .. }]) => {
                return self.extreme(data, list, ast, "max_by", Ordering::Greater);
            }
            ("to_number", [text]) => return self.number(data, text),
            _ => {}
        }
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            values.push(self.evaluate(data, argument)?);
        }
        self.pay_for(name, &values)?;
        let function = self.runtime.get_function(name).ok_or_else(|| Error::UnknownFunction(name.to_owned()))?;
        if let ("contains", [list, wanted]) = (name, values.as_slice())
            && let Some(elements) = list.as_array()
        {
            return Ok(Rcvar::new(Variable::Bool(elements.iter().any(|element| same(element, wanted)))));
        }
        // The specification says what the average of nothing is; the crate divides by the number of elements.
        if let ("avg", [list]) = (name, values.as_slice())
            && list.as_array().is_some_and(Vec::is_empty)
        {
            return Ok(null());
        }
        let mut context = Context::new(self.text, self.runtime);
        context.offset = offset;
        function.evaluate(&values, &mut context).map_err(|error| match (name, &error.reason) {
            // What the crate calls a parse error is a result that is no number any more.
            ("avg", ErrorReason::Parse(_)) => Error::Function { function: "avg", problem: BEYOND },
            ("sum", ErrorReason::Parse(_)) => Error::Function { function: "sum", problem: BEYOND },
            _ => Error::runtime(error),
        })
    }

    /// What a function of the crate costs, before it runs: those that look into values cost what is in them.
    fn pay_for(&mut self, name: &str, values: &[Rcvar]) -> Result<(), Error> {
        match name {
            "sort" => {
                values.iter().try_for_each(|value| self.spend(length(count(value)) * SORT_FACTOR))?;
                values.iter().try_for_each(|value| self.touch(value))
            }
            "join" => {
                // The text between two elements stands in the result once for every pair of neighbours.
                if let [between, elements] = values {
                    let pairs = length(count(elements)).saturating_sub(1);
                    self.spend(length(count(between)).saturating_mul(pairs))?;
                }
                values.iter().try_for_each(|value| self.touch(value))
            }
            "keys" | "merge" => values.iter().try_for_each(|value| self.copy_names(value)),
            // A text is given back as it is.
            "to_string" => match values {
                [value] if !value.is_string() && !value.is_expref() => self.pay_for_text(value),
                _ => Ok(()),
            },
            "contains" | "max" | "min" | "starts_with" | "ends_with" => {
                values.iter().try_for_each(|value| self.touch(value))
            }
            _ => values.iter().try_for_each(|value| self.spend(length(count(value)) * ELEMENT_UNITS)),
        }
    }

    /// Pays for a copy of the names in an object; members are shared.
    fn copy_names(&mut self, value: &Variable) -> Result<(), Error> {
        let Some(members) = value.as_object() else { return Ok(()) };
        self.take(memory::of_members(members.len()))?;
        members.keys().try_for_each(|name| {
            self.spend(MEMBER_UNITS + length(name.len()))?;
            self.take(memory::of_text(name))
        })
    }

    fn elements(&mut self, data: &Rcvar, list: &Ast, function: &'static str) -> Result<Rcvar, Error> {
        let list = self.evaluate(data, list)?;
        match list.is_array() {
            true => Ok(list),
            false => Err(Error::Function { function, problem: "needs an array" }),
        }
    }

    fn map(&mut self, data: &Rcvar, by: &Ast, list: &Ast) -> Result<Rcvar, Error> {
        let list = self.elements(data, list, "map")?;
        let elements = list.as_array().into_iter().flatten();
        let mapped = elements.map(|element| self.evaluate(element, by)).collect::<Result<_, _>>()?;
        self.list(mapped)
    }

    /// The elements with what each is ordered by: all texts, or all numbers.
    fn keyed(&mut self, list: &Rcvar, by: &Ast, function: &'static str) -> Result<Vec<(Rcvar, Rcvar)>, Error> {
        let mut keyed: Vec<(Rcvar, Rcvar)> = Vec::new();
        for element in list.as_array().into_iter().flatten() {
            let key = self.evaluate(element, by)?;
            let fits = key.is_string() || key.is_number();
            let like_first = keyed.first().is_none_or(|(first, _)| first.get_type() == key.get_type());
            if !fits || !like_first {
                let problem = "needs an expression that gives a text for every element, or a number for every element";
                return Err(Error::Function { function, problem });
            }
            self.touch(&key)?;
            self.spend(ELEMENT_UNITS)?;
            keyed.push((key, element.clone()));
        }
        Ok(keyed)
    }

    fn sort_by(&mut self, data: &Rcvar, list: &Ast, by: &Ast) -> Result<Rcvar, Error> {
        let list = self.elements(data, list, "sort_by")?;
        let mut keyed = self.keyed(&list, by, "sort_by")?;
        self.spend(length(keyed.len()) * SORT_FACTOR)?;
        keyed.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.list(keyed.into_iter().map(|(_, element)| element).collect())
    }

    /// The first element that none surpasses.
    fn extreme(
        &mut self,
        data: &Rcvar,
        list: &Ast,
        by: &Ast,
        function: &'static str,
        better: Ordering,
    ) -> Result<Rcvar, Error> {
        let list = self.elements(data, list, function)?;
        let keyed = self.keyed(&list, by, function)?;
        let best = keyed.into_iter().reduce(|best, next| if next.0.cmp(&best.0) == better { next } else { best });
        Ok(best.map_or_else(null, |(_, element)| element))
    }

    /// A text that is a number becomes it; the crate's own function would take any JSON text.
    fn number(&mut self, data: &Rcvar, argument: &Ast) -> Result<Rcvar, Error> {
        let value = self.evaluate(data, argument)?;
        match &*value {
            Variable::Number(_) => Ok(value),
            Variable::String(text) => {
                self.spend(length(text.len()))?;
                Ok(text
                    .parse::<Number>()
                    .map_or_else(|_not_a_number| null(), |number| Rcvar::new(Variable::Number(number))))
            }
            _ => Ok(null()),
        }
    }
}

/// What a comparison says: of order among numbers only, of equality always.
fn compared(by: &Comparator, left: &Variable, right: &Variable) -> Option<bool> {
    let order = || match (left, right) {
        (Variable::Number(left), Variable::Number(right)) => Some(ordered(left, right)),
        _ => None,
    };
    match by {
        Comparator::Equal => Some(same(left, right)),
        Comparator::NotEqual => Some(!same(left, right)),
        Comparator::LessThan => order().map(Ordering::is_lt),
        Comparator::LessThanEqual => order().map(Ordering::is_le),
        Comparator::GreaterThan => order().map(Ordering::is_gt),
        Comparator::GreaterThanEqual => order().map(Ordering::is_ge),
    }
}

/// Whether two values are equal. The crate takes numbers for equal that are near each other, as large ids are.
fn same(left: &Variable, right: &Variable) -> bool {
    match (left, right) {
        (Variable::Number(left), Variable::Number(right)) => ordered(left, right).is_eq(),
        (Variable::Array(left), Variable::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Variable::Object(left), Variable::Object(right)) => {
            let members = left.iter().zip(right);
            let mut alike = members.map(|((name, left), (other, right))| name == other && same(left, right));
            left.len() == right.len() && alike.all(|alike| alike)
        }
        _ => left == right,
    }
}

fn ordered(left: &Number, right: &Number) -> Ordering {
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        // One of them has a fraction, or is beyond all integers, so that rounding the other does not move it past.
        _ => left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal),
    }
}

/// A number as an integer, if it is one: `1.0` is 1.
fn whole(number: &Number) -> Option<i128> {
    /// Beyond every integer that JSON texts are read as, and within what is converted exactly.
    const BEYOND_INTEGERS: f64 = 1e30;
    let integer = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    let fraction = || number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < BEYOND_INTEGERS);
    integer.or_else(|| fraction().map(|number| number as i128))
}

fn null() -> Rcvar {
    Rcvar::new(Variable::Null)
}

fn length(many: usize) -> u64 {
    u64::try_from(many).unwrap_or(u64::MAX)
}

fn count(value: &Variable) -> usize {
    match value {
        Variable::Array(elements) => elements.len(),
        Variable::Object(members) => members.len(),
        Variable::String(text) => text.len(),
        Variable::Null | Variable::Bool(_) | Variable::Number(_) | Variable::Expref(_) => 1,
    }
}

fn index(data: &Variable, at: i32) -> Rcvar {
    let Some(elements) = data.as_array() else { return null() };
    let from_end = usize::try_from(at.unsigned_abs()).ok().and_then(|back| elements.len().checked_sub(back));
    let place = if at < 0 { from_end } else { usize::try_from(at).ok() };
    place.and_then(|place| elements.get(place)).cloned().unwrap_or_else(null)
}

fn value(variable: &Variable) -> Result<Value, Error> {
    Ok(match variable {
        Variable::Null => Value::Null,
        Variable::Bool(flag) => Value::Bool(*flag),
        Variable::Number(number) => Value::Number(number.clone()),
        Variable::String(text) => Value::String(text.clone()),
        Variable::Array(elements) => elements.iter().map(|element| value(element)).collect::<Result<_, _>>()?,
        Variable::Object(members) => {
            let members = members.iter().map(|(name, member)| Ok((name.clone(), value(member)?)));
            Value::Object(members.collect::<Result<_, Error>>()?)
        }
        Variable::Expref(_) => return Err(Error::NotAValue),
    })
}
