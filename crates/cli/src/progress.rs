//! A progress bar on stderr for long work, when a person is watching.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a bar moves while nothing is heard.
const TICK: Duration = Duration::from_millis(100);

/// A bar over a known number of steps, or a counter when nobody knows how many there are.
pub(crate) fn bar(length: Option<u64>, what: &str) -> ProgressBar {
    match length {
        Some(_) => styled(length, what, "{msg} {bar:30} {human_pos}/{human_len} {eta}"),
        None => styled(None, what, "{msg} {spinner} {human_pos}"),
    }
}

/// A bar over the bytes of a file, or a counter of bytes that arrive.
pub(crate) fn bytes(length: Option<u64>, what: &str) -> ProgressBar {
    match length {
        Some(_) => styled(length, what, "{msg} {bar:30} {bytes}/{total_bytes} {eta}"),
        None => styled(None, what, "{msg} {spinner} {bytes}"),
    }
}

/// A sign of life for work done elsewhere, of which nothing is heard until it is done.
pub(crate) fn waiting(what: &str) -> ProgressBar {
    let bar = styled(None, what, "{msg} {spinner} {elapsed}");
    bar.enable_steady_tick(TICK);
    bar
}

fn styled(length: Option<u64>, what: &str, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(template).expect("the template is fixed and well-formed");
    bar.set_style(style);
    bar.set_message(what.to_owned());
    bar
}
