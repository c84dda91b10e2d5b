//! JMESPath expressions: parsed by the `jmespath` crate within limits, and checked as far as that is possible without
//! an input.

use std::sync::atomic::AtomicBool;

use jmespath::ast::Ast;
use jmespath::{JmespathError, Rcvar, Runtime, Variable};
use serde_json::Value;

use super::evaluation::{Evaluation, RESULT_BYTES_MAX};

/// How deep operators and brackets may nest: each level is a level of the machine's stack.
const DEPTH_MAX: usize = 100;

/// Why an expression or its evaluation is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("not a JMESPath expression: {reason} (at character {offset})")]
    Syntax { reason: String, offset: usize },
    #[error("operators and brackets are nested more than {DEPTH_MAX} deep")]
    TooDeep,
    #[error("there is no function `{0}`")]
    UnknownFunction(String),
    #[error("{reason} (at character {offset})")]
    Runtime { reason: String, offset: usize },
    #[error("`{function}` {problem}")]
    Function { function: &'static str, problem: &'static str },
    #[error("a slice cannot have a step of 0")]
    Step,
    #[error("the result holds an expression, which is not a value")]
    NotAValue,
    #[error("the evaluation takes more work than is allowed; make the input or the expression smaller")]
    TooMuchWork,
    #[error("the evaluation makes more than is allowed in memory; make the input or the expression smaller")]
    TooMuchMemory,
    #[error("the result has more than the {RESULT_BYTES_MAX} bytes that are kept")]
    ResultTooLarge,
    #[error("the evaluation was given up, because nobody waits for it any more")]
    Abandoned,
}

impl Error {
    pub(super) fn runtime(error: JmespathError) -> Self {
        Self::Runtime { reason: error.reason.to_string(), offset: error.offset }
    }
}

#[derive(Debug)]
pub(super) struct Expression {
    text: String,
    ast: Ast,
}

impl Expression {
    pub(super) fn compile(text: &str) -> Result<Self, Error> {
        if nesting(text) > DEPTH_MAX {
            return Err(Error::TooDeep);
        }
        let ast = jmespath::parse(text)
            .map_err(|error| Error::Syntax { reason: error.reason.to_string(), offset: error.offset })?;
        check_functions(&ast, &functions())?;
        Ok(Self { text: text.to_owned(), ast })
    }

    /// Takes the value itself, so that it is gone before a result is made beside its copy.
    pub(super) fn evaluate(&self, root: Value, abandoned: &AtomicBool, memory_max: u64) -> Result<Value, Error> {
        let root = Variable::try_from(root).map_err(Error::runtime)?;
        let runtime = functions();
        Evaluation::new(&self.text, &runtime, abandoned, memory_max).run(&Rcvar::new(root), &self.ast)
    }
}

fn functions() -> Runtime {
    let mut runtime = Runtime::new();
    runtime.register_builtin_functions();
    runtime
}

/// An upper bound of how deep a parser must descend: open brackets, and operators in a row since the last comma. Texts in
/// quotes do not count.
fn nesting(text: &str) -> usize {
    let mut deepest = 0;
    let mut open: Vec<usize> = Vec::new();
    let mut row = 0;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' | '`' => skip_quoted(&mut letters, letter),
            '[' | '(' | '{' => {
                open.push(row + 1);
                row = 0;
            }
            ']' | ')' | '}' => row = open.pop().unwrap_or(0),
            '.' | '|' | '&' | '!' | '*' | '<' | '>' | '=' => row += 1,
            ',' => row = 0,
            _ => {}
        }
        deepest = deepest.max(open.iter().sum::<usize>() + row);
    }
    deepest
}

fn skip_quoted(letters: &mut std::str::Chars<'_>, quote: char) {
    while let Some(letter) = letters.next() {
        if letter == quote {
            return;
        }
        if letter == '\\' {
            letters.next();
        }
    }
}

/// Finds a function that does not exist before anything is evaluated.
fn check_functions(ast: &Ast, runtime: &Runtime) -> Result<(), Error> {
    if let Ast::Function { name, .. } = ast
        && runtime.get_function(name).is_none()
    {
        return Err(Error::UnknownFunction(name.clone()));
    }
    children(ast).into_iter().try_for_each(|child| check_functions(child, runtime))
}

fn children(ast: &Ast) -> Vec<&Ast> {
    match ast {
        Ast::Comparison { lhs, rhs, .. }
        | Ast::Projection { lhs, rhs, .. }
        | Ast::And { lhs, rhs, .. }
        | Ast::Or { lhs, rhs, .. }
        | Ast::Subexpr { lhs, rhs, .. } => vec![lhs, rhs],
        Ast::Condition { predicate, then, .. } => vec![predicate, then],
        Ast::Expref { ast, .. } => vec![ast],
        Ast::Flatten { node, .. } | Ast::Not { node, .. } | Ast::ObjectValues { node, .. } => vec![node],
        Ast::Function { args, .. } => args.iter().collect(),
        Ast::MultiList { elements, .. } => elements.iter().collect(),
        Ast::MultiHash { elements, .. } => elements.iter().map(|pair| &pair.value).collect(),
        Ast::Identity { .. } | Ast::Field { .. } | Ast::Index { .. } | Ast::Literal { .. } | Ast::Slice { .. } => {
            Vec::new()
        }
    }
}
