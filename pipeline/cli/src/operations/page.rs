//! The status page for people: HTML without scripts, with the content of `document`.

use std::fmt::{self, Display, Write};

use prorata_schemas::time::{Hour, WallTime};

use super::view::Snapshot;

/// Formats the page for people.
pub(super) fn html(snapshot: &Snapshot) -> String {
    let mut page = String::new();
    // Writing to a string never fails.
    let _infallible = write_page(&mut page, snapshot);
    page
}

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:2em;color:#222;background:#fff}\
    table{border-collapse:collapse;margin:0 0 1.5em}\
    th,td{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:left;white-space:nowrap}\
    td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}h2{font-size:1.1em}.bad{color:#b00020}";

fn write_page(out: &mut String, snapshot: &Snapshot) -> fmt::Result {
    out.write_str("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">")?;
    out.write_str("<meta http-equiv=\"refresh\" content=\"10\"><title>prorata worker</title>")?;
    write!(out, "<style>{STYLE}</style></head><body>\n<h1>prorata worker</h1>\n")?;
    for verdict in [snapshot.live(), snapshot.ready()] {
        match verdict {
            Ok(message) => writeln!(out, "<p>{}</p>", Escaped(message))?,
            Err(message) => writeln!(out, "<p class=\"bad\">{}</p>", Escaped(message))?,
        }
    }
    write_summary(out, snapshot)?;
    write_shards(out, snapshot)?;
    write_topics(out, snapshot)?;
    write_counts(out, snapshot)?;
    writeln!(
        out,
        "<p>{} UTC, version {}; the same <a href=\"?format=json\">as JSON</a>.</p>\n</body></html>",
        Escaped(second(snapshot.now)),
        env!("CARGO_PKG_VERSION")
    )
}

fn write_summary(out: &mut String, snapshot: &Snapshot) -> fmt::Result {
    let status = &snapshot.status;
    let rows = [
        ("Waiting for", status.waiting_for().unwrap_or_else(|| "nothing".to_owned())),
        ("Last hour closed by all shards", or_none(snapshot.closed_through().map(hour))),
        ("Recomputation pending from", or_none(snapshot.dirty_from().map(hour))),
        ("Largest lag", or_none(snapshot.lag_max().map(duration))),
        ("Shards loaded", format!("{} of {}", snapshot.loaded(), status.shards.len())),
    ];
    out.write_str("<table>\n")?;
    for (name, value) in rows {
        writeln!(out, "<tr><th>{name}</th><td>{}</td></tr>", Escaped(value))?;
    }
    for (shard, status) in status.shards.iter().filter(|(_, status)| status.held > 0) {
        let example = Escaped(status.held_example.as_deref().unwrap_or_default());
        let held = status.held;
        writeln!(out, "<tr><th>Held in shard {shard}: {held}</th><td>{example}</td></tr>")?;
    }
    for (shard, stop) in snapshot.stopped() {
        writeln!(out, "<tr><th>Shard {shard} is stopped</th><td>{}</td></tr>", Escaped(&stop.message))?;
    }
    out.write_str("</table>\n")
}

fn write_shards(out: &mut String, snapshot: &Snapshot) -> fmt::Result {
    out.write_str(
        "<h2>Shards</h2>\n<table>\n<tr><th class=\"n\">Shard</th><th>State</th><th>Watermark</th>",
    )?;
    out.write_str(
        "<th>Last hour closed</th><th>Rules</th><th>Oldest open hour</th><th>Recomputation pending from</th>",
    )?;
    out.write_str("<th class=\"n\">Hours pending</th><th>Gate</th>")?;
    out.write_str("<th class=\"n\">Checkpoint</th><th>Decided</th><th>Published</th>")?;
    out.write_str(
        "<th class=\"n\">Organizations</th><th class=\"n\">State</th><th class=\"n\">Open events</th></tr>\n",
    )?;
    for (shard, status) in &snapshot.status.shards {
        let age = |time: Option<WallTime>| {
            or_none(time.map(|then| duration(snapshot.age_seconds(then.event_time())) + " ago"))
        };
        let (number, cells) = (Cell::Number, Cell::Text);
        let row = [
            number(shard.to_string()),
            cells(match &status.stopped {
                Some(stop) => format!("stopped: {}", stop.reason.name()),
                None => if status.loaded { "loaded" } else { "loading" }.to_owned(),
            }),
            cells(or_none(status.watermark.map(second))),
            cells(or_none(status.closed_through.map(hour))),
            cells(or_none(status.rules_version.as_deref().map(str::to_owned))),
            cells(or_none(status.oldest_open_hour.map(hour))),
            cells(or_none(status.dirty_from.map(hour))),
            number(status.dirty_hours.to_string()),
            cells(or_none(status.recompute_gate.map(|gate| gate.name().to_owned()))),
            number(status.seq.to_string()),
            cells(age(status.checkpoint_at)),
            cells(age(status.published_at)),
            number(status.organizations.to_string()),
            number(bytes(status.state_bytes)),
            number(bytes(status.open_events_bytes)),
        ];
        write_row(out, &row)?;
    }
    out.write_str("</table>\n")
}

fn write_topics(out: &mut String, snapshot: &Snapshot) -> fmt::Result {
    out.write_str("<h2>Topic partitions</h2>\n<table>\n<tr><th class=\"n\">Shard</th><th>Topic</th>")?;
    out.write_str(
        "<th class=\"n\">Next offset</th><th>Largest event time</th><th>Lag</th><th>End</th></tr>\n",
    )?;
    for (shard, status) in &snapshot.status.shards {
        for (topic, at) in &status.topics {
            let end = match (at.at_end, at.idle) {
                (true, true) => "reached, idle",
                (true, false) => "reached",
                (false, _) => "not reached",
            };
            let row = [
                Cell::Number(shard.to_string()),
                Cell::Text(topic.to_string()),
                Cell::Number(at.next_offset.to_string()),
                Cell::Text(or_none(at.max_event_time.map(second))),
                Cell::Text(or_none(snapshot.lag_seconds(at).map(duration))),
                Cell::Text(end.to_owned()),
            ];
            write_row(out, &row)?;
        }
    }
    out.write_str("</table>\n")
}

fn write_counts(out: &mut String, snapshot: &Snapshot) -> fmt::Result {
    let counts = &snapshot.status.counts;
    let letters = counts.dead_letters.iter().map(|(reason, count)| (reason.code(), *count));
    write_table(out, "Dead letters", letters)?;
    let events = counts.events.iter().map(|(kind, count)| (kind.name(), *count));
    write_table(out, "Events", events)?;
    let others = [
        ("Late events", counts.late_events),
        ("Late duplicates", counts.late_duplicates),
        ("Hours closed", counts.closed_hours),
        ("Hours restated", counts.restated_hours),
        ("Checkpoints", counts.checkpoints),
        ("Commits to tables", counts.commits),
        ("Conflicts", counts.conflicts),
        ("Rebalances", counts.rebalances),
        ("Retries", counts.retries),
    ];
    write_table(out, "Since the start", others)
}

fn write_table<'a>(
    out: &mut String,
    title: &str,
    rows: impl IntoIterator<Item = (&'a str, u64)>,
) -> fmt::Result {
    writeln!(out, "<h2>{title}</h2>\n<table>")?;
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        out.write_str("<tr><td>none</td></tr>\n")?;
    }
    for (name, count) in rows {
        write_row(out, &[Cell::Text(name.to_owned()), Cell::Number(count.to_string())])?;
    }
    out.write_str("</table>\n")
}

enum Cell {
    Text(String),
    Number(String),
}

fn write_row(out: &mut String, cells: &[Cell]) -> fmt::Result {
    out.write_str("<tr>")?;
    for cell in cells {
        match cell {
            Cell::Text(text) => write!(out, "<td>{}</td>", Escaped(text))?,
            Cell::Number(number) => write!(out, "<td class=\"n\">{}</td>", Escaped(number))?,
        }
    }
    out.write_str("</tr>\n")
}

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "none".to_owned())
}

fn hour(hour: Hour) -> String {
    format!("{} {:02}:00", hour.date(), hour.of_day())
}

/// Formats a time to the second.
fn second(time: impl Display) -> String {
    let text = time.to_string();
    text.split('.').next().unwrap_or(&text).replace('T', " ")
}

/// Formats a duration in its two largest units.
fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{whole} s"),
        (0, 0, _) => format!("{minutes} min {} s", whole % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

fn bytes(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match bytes {
        0..KIB => format!("{bytes} B"),
        KIB..MIB => format!("{:.1} KiB", bytes as f64 / KIB as f64),
        _ => format!("{:.1} MiB", bytes as f64 / MIB as f64),
    }
}

/// A text whose markup is escaped when it is printed.
struct Escaped<T>(T);

impl<T: AsRef<str>> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.as_ref().chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}
