//! Everything that is logged and traced, by all tests of this binary: one listener for all threads, because what a
//! thread alone listens to may be switched off by another.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use super::world::SECRET;

/// A span or an event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) parent: Option<u64>,
    pub(crate) fields: BTreeMap<String, String>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}").trim_matches('"').to_owned();
        if text.contains(SECRET) {
            LEAKS.lock().unwrap().push(format!("{}: {text}", field.name()));
        }
        self.fields.insert(field.name().to_owned(), text);
    }
}

/// Where the secret of these tests was found, on any thread.
static LEAKS: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    static HEARD: RefCell<Option<Vec<Seen>>> = const { RefCell::new(None) };
}

struct Listener;

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Listener {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let parent = context.span(id).and_then(|span| span.parent().map(|parent| parent.id().into_u64()));
        let (name, id) = (attributes.metadata().name().to_owned(), id.into_u64());
        let mut seen = Seen { name, id, parent, fields: BTreeMap::new() };
        attributes.record(&mut seen);
        hear(seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut recorded = Seen::default();
        values.record(&mut recorded);
        HEARD.with_borrow_mut(|heard| {
            // Ids are given again: the last span that has it is meant.
            let mut spans = heard.iter_mut().flatten().rev();
            if let Some(span) = spans.find(|seen| seen.id == id.into_u64()) {
                span.fields.append(&mut recorded.fields);
            }
        });
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut seen = Seen::default();
        event.record(&mut seen);
        hear(seen);
    }
}

fn hear(seen: Seen) {
    HEARD.with_borrow_mut(|heard| heard.iter_mut().for_each(|heard| heard.push(seen.clone())));
}

/// Hears from now on what happens on this thread, and looks for leaks on all.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Listener)).unwrap();
    });
    HEARD.set(Some(Vec::new()));
}

/// What was heard since [`listen`].
pub(crate) fn heard() -> Vec<Seen> {
    HEARD.take().unwrap_or_default()
}

pub(crate) fn leaks() -> Vec<String> {
    LEAKS.lock().unwrap().clone()
}
