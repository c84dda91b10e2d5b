//! Requests the engine has, as futures of their answers.
//!
//! Written out rather than `async`: a future the compiler makes keeps room for its arguments beside what it made of
//! them, and hundreds of these wait at a time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use macp_kernel::Command;
use tokio::sync::oneshot;

use crate::{Answer, Engine, Error, Reply};

/// A request on its way to its answer.
#[derive(Debug)]
pub(crate) struct Asked<'e> {
    pub(crate) engine: &'e Engine,
    /// What it was refused with at the gate, or where the answer arrives.
    pub(crate) answer: Result<oneshot::Receiver<Result<Answer, Error>>, Error>,
}

impl Future for Asked<'_> {
    type Output = Result<Answer, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answered = match &mut self.answer {
            Ok(answer) => ready!(Pin::new(answer).poll(cx)),
            Err(error) => return Poll::Ready(Err(error.clone())),
        };
        // The way to answer is lost in a shutdown, or in a panic.
        let lost = |_| Err(if self.engine.is_closed() { Error::ShuttingDown } else { Error::Internal });
        Poll::Ready(answered.unwrap_or_else(lost))
    }
}

/// A command on its way to its verdict, which comes when what it depends on is durable. The engine has the command
/// already: to drop this is to miss the answer, not to take the command back.
#[derive(Debug)]
#[must_use = "the verdict is not there yet"]
pub struct Submission<'e> {
    pub(crate) asked: Asked<'e>,
    /// For the trace of a command that gets no verdict; with the session it is for.
    pub(crate) traced: Option<Box<(String, Command)>>,
}

impl Future for Submission<'_> {
    type Output = Result<Reply, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(Pin::new(&mut self.asked).poll(cx)) {
            Ok(Answer::Verdict(reply)) => Ok(reply),
            Ok(Answer::Read(_)) => unreachable!("a command is answered by a verdict"),
            Err(error) => {
                if let Some((session_id, command)) = self.traced.take().as_deref() {
                    self.asked.engine.trace_failure(session_id, command, &error);
                }
                Err(error)
            }
        })
    }
}
