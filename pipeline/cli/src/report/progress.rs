//! Progress bars on standard error, on a terminal only.

use std::io::IsTerminal;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use prorata_worker::ports::{Progress, Silent};

const READING: &str = "reading {bar:40} {pos}/{len} files, {msg} events";
const FOLDING: &str = "folding {bar:40} {pos}/{len} hours, {eta} left";

/// Returns progress bars if standard error is a terminal, and otherwise a display that shows nothing.
pub fn on_terminal() -> Arc<dyn Progress> {
    if std::io::stderr().is_terminal() { Arc::new(Bars::new()) } else { Arc::new(Silent) }
}

struct Bars {
    reading: ProgressBar,
    folding: ProgressBar,
}

impl Bars {
    fn new() -> Self {
        Self { reading: bar(READING), folding: bar(FOLDING) }
    }
}

fn bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::no_length().with_style(style)
}

fn advance(bar: &ProgressBar, done: u64, all: u64) {
    bar.set_length(all);
    bar.set_position(done);
    if done >= all {
        bar.finish_and_clear();
    }
}

impl Progress for Bars {
    fn reading(&self, files: u64, files_all: u64, events: u64) {
        advance(&self.reading, files, files_all);
        self.reading.set_message(events.to_string());
    }

    fn folding(&self, hours: u64, hours_all: u64) {
        advance(&self.folding, hours, hours_all);
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.reading.finish_and_clear();
        self.folding.finish_and_clear();
    }
}
