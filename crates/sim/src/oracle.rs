//! Remembers what clients asked and were told, and asks the properties at every step.

use std::collections::BTreeMap;
use std::sync::Arc;

use macp_engine::{Answer, Error, Lifecycle};
use macp_kernel::{Input, Settled, trace};
use macp_ledger::{Record, Store};

use crate::ask::Ask;
use crate::properties::controls::Controls;
use crate::properties::fresh::{Knowledge, Told};
use crate::properties::published::Published;
use crate::properties::terminal::Announced;
use crate::properties::traced::Traced;
use crate::properties::{Violation, acknowledged, duplicates, durable, fresh, liveness, refused, terminal};
use crate::truth::{ControlKind, Truth};

/// Everything known of message ids, by session and id.
pub(crate) type Stories = BTreeMap<(Arc<str>, String), Story>;

/// What became of one message id so far.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) under_way: u32,
    pub(crate) acked: Option<Acked>,
    pub(crate) refused: bool,
    /// Some attempt ended in an error or a crash.
    pub(crate) unknown: bool,
}

#[derive(Debug)]
pub(crate) struct Acked {
    pub(crate) accepted_at_ms: i64,
    /// The request that was accepted; none when the acknowledgement was that of a duplicate.
    pub(crate) ask: Option<Ask>,
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) session_id: Arc<str>,
    pub(crate) what: What,
    /// What anyone knew of the session when it was asked.
    pub(crate) told: Told,
    ask: Ask,
}

#[derive(Debug)]
pub(crate) enum What {
    Message {
        message_id: String,
        /// The same request had been accepted and acknowledged before.
        repeats: bool,
    },
    Control {
        kind: ControlKind,
        reason: String,
    },
    Read,
}

impl What {
    fn control(kind: ControlKind, reason: &str) -> Self {
        What::Control { kind, reason: reason.to_owned() }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) truth: Truth,
    pub(crate) asked: BTreeMap<u64, Asked>,
    pub(crate) stories: Stories,
    controls: Controls,
    knowledge: Knowledge,
    /// None while nobody subscribes.
    published: Option<Published>,
    announced: Announced,
    traced: Traced,
}

impl Oracle {
    pub(crate) fn new(subscribed: bool) -> Self {
        Oracle { published: subscribed.then(Published::default), ..Oracle::default() }
    }

    pub(crate) fn ask(&mut self, number: u64, ask: &Ask) {
        let what = match ask.command.as_ref().map(|command| &command.input) {
            Some(Input::Envelope { envelope, .. }) => {
                let key = (Arc::clone(&ask.session_id), envelope.message_id.clone());
                let story = self.stories.entry(key).or_default();
                story.under_way += 1;
                let accepted = story.acked.as_ref().and_then(|acked| acked.ask.as_ref());
                let repeats = accepted.is_some_and(|accepted| accepted.fingerprint() == ask.fingerprint());
                What::Message { message_id: envelope.message_id.clone(), repeats }
            }
            Some(Input::Cancel { reason }) => What::control(ControlKind::Cancel, reason),
            Some(Input::Suspend { reason }) => What::control(ControlKind::Suspend, reason),
            Some(Input::Resume { reason }) => What::control(ControlKind::Resume, reason),
            Some(Input::Touch | Input::Expire(_) | Input::Synthetic { .. }) => {
                unreachable!("what time does is nobody's to ask for")
            }
            None => What::Read,
        };
        let session_id = Arc::clone(&ask.session_id);
        self.controls.asked(&session_id, &what);
        let told = self.knowledge.of(&session_id);
        self.asked.insert(number, Asked { session_id, what, told, ask: ask.clone() });
    }

    /// Judges an answer at the moment it leaves.
    pub(crate) fn answer(
        &mut self,
        number: u64,
        result: &Result<Answer, Error>,
        errors_excused: bool,
    ) -> Result<(), Violation> {
        let asked = liveness::check_known(number, self.asked.remove(&number))?;
        let message_id = match &asked.what {
            What::Message { message_id, .. } => Some(message_id.clone()),
            What::Control { .. } | What::Read => None,
        };
        self.controls.answered(&asked, result);
        let key = message_id.map(|message_id| (Arc::clone(&asked.session_id), message_id));
        let story = key.as_ref().map(|key| self.stories.entry(key.clone()).or_default());
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                if let Some(story) = story {
                    story.under_way -= 1;
                    story.unknown = true;
                }
                return liveness::check_error(&asked, error, errors_excused);
            }
        };
        durable::check_answer(&asked, answer, &self.truth)?;
        fresh::check(&asked, answer)?;
        if let Answer::Verdict(reply) = answer {
            terminal::check_reply(&asked, reply)?;
            if let (Some(story), Some((session_id, message_id))) = (story, &key) {
                story.under_way -= 1;
                duplicates::check(&asked, reply, story, &self.truth)?;
                match reply.settled {
                    Settled::Accepted { accepted_at_ms } => {
                        story.acked = Some(Acked { accepted_at_ms, ask: Some(asked.ask.clone()) });
                    }
                    Settled::Duplicate { accepted_at_ms } => {
                        story.acked.get_or_insert(Acked { accepted_at_ms, ask: None });
                    }
                    Settled::Rejected(_) => {
                        story.refused = true;
                        refused::check_one(session_id, message_id, story, &self.truth)?;
                    }
                    Settled::Unchanged => {}
                }
            }
        }
        self.knowledge.learn_answer(&asked, answer, &self.truth);
        Ok(())
    }

    pub(crate) fn publish(&mut self, session_id: &Arc<str>, records: &[Record]) -> Result<(), Violation> {
        let Some(published) = &mut self.published else {
            return Ok(());
        };
        published.check(session_id, records, &self.truth)?;
        if let Some(last) = records.last() {
            let state =
                self.truth.session(session_id).and_then(|course| course.at(last.sequence)).map(|fact| fact.state);
            self.knowledge.learn(session_id, last.sequence, state);
        }
        Ok(())
    }

    pub(crate) fn announce(&mut self, lifecycle: &Lifecycle) -> Result<(), Violation> {
        durable::check_lifecycle(lifecycle, &self.truth)?;
        self.announced.check(lifecycle, &self.truth)
    }

    pub(crate) fn trace(&mut self, event: &trace::Event) -> Result<(), Violation> {
        self.traced.check(event)
    }

    /// Takes in what a sync made durable.
    pub(crate) fn grow(&mut self, store: &dyn Store, grown: &[Arc<str>]) -> Result<(), Violation> {
        grown.iter().try_for_each(|session_id| self.truth.grow(store, session_id))
    }

    /// Everything under way is gone; what is on the disk is all there is.
    pub(crate) fn crash(&mut self, store: &dyn Store) -> Result<(), Violation> {
        for asked in std::mem::take(&mut self.asked).into_values() {
            self.controls.lost(&asked);
            if let What::Message { message_id, .. } = asked.what {
                let story = self.stories.entry((asked.session_id, message_id)).or_default();
                story.under_way -= 1;
                story.unknown = true;
            }
        }
        self.audit(store)?;
        if let Some(published) = &mut self.published {
            published.restart(&self.truth);
        }
        self.traced.restart();
        Ok(())
    }

    /// Reads the whole disk anew and compares it with everything anyone was told.
    pub(crate) fn audit(&mut self, store: &dyn Store) -> Result<(), Violation> {
        let found = Truth::read(store)?;
        acknowledged::check(&self.truth, &found, &self.stories)?;
        self.truth = found;
        self.controls.check(&self.truth)?;
        refused::check(&self.stories, &self.truth)
    }

    pub(crate) fn check_answered(&self) -> Result<(), Violation> {
        liveness::check_answered(&self.asked)?;
        self.published.iter().try_for_each(|published| published.check_complete(&self.truth))
    }

    pub(crate) fn check_due(&self, now: i64) -> Result<(), Violation> {
        liveness::check_due(&self.truth, now)
    }
}
