//! A progress bar on stderr for long work, when a person is watching.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over a known number of steps, or a counter when nobody knows how many there are.
pub(crate) fn bar(length: Option<u64>, what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    let template = match length {
        Some(_) => "{msg} {bar:30} {human_pos}/{human_len} {eta}",
        None => "{msg} {spinner} {human_pos}",
    };
    let style = ProgressStyle::with_template(template).expect("the template is fixed and well-formed");
    bar.set_style(style);
    bar.set_message(what.to_owned());
    bar
}
