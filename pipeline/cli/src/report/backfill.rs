//! The report of a backfill. Sums are exact.

use std::collections::BTreeMap;
use std::time::Duration;

use prorata_inspect::text::PlainText;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::reject::Reason;
use prorata_worker::backfill::{Outcome, Totals};
use prorata_worker::names::Shard;
use serde::Serialize;

/// Maximum number of held organizations that are printed individually.
const HELD_MAX: usize = 10;

/// Maximum number of namespaces that are listed by name. The others share one line.
const NAMESPACES_MAX: usize = 20;

/// Maximum number of characters to which shorter names are padded.
const NAME_WIDTH_MAX: usize = 60;

/// The report as a document.
#[derive(Serialize)]
struct BackfillDocument<'a> {
    from: Option<String>,
    to: Option<String>,
    closed_through: Option<String>,
    hours: u64,
    hours_restated: u64,
    /// Sums by currency. Money is text, so that readers do not turn it into a float by default.
    totals: &'a BTreeMap<String, Totals>,
    organizations_recomputed: Option<Recomputed>,
    files: InputFiles,
    events: InputEvents,
    shards_left_out: &'a BTreeMap<Shard, String>,
    held: &'a BTreeMap<OrganizationId, String>,
    dead_letters: &'a BTreeMap<Reason, u64>,
    dead_letter_examples: &'a [String],
    not_closed: Option<NotClosed>,
    table_files: u64,
    table_commits: u64,
    elapsed_seconds: f64,
    events_per_second: u64,
}

/// Organizations that were folded again.
#[derive(Serialize)]
struct Recomputed {
    recomputed: u64,
    total: u64,
}

/// Files of the input.
#[derive(Serialize)]
struct InputFiles {
    read: u64,
    skipped: u64,
}

/// Events of the input.
#[derive(Serialize)]
struct InputEvents {
    read: u64,
    new: u64,
    duplicates: u64,
    other_shards: u64,
}

/// Later hours that have events and are not closed.
#[derive(Serialize)]
struct NotClosed {
    hours: u64,
    first: String,
    last: String,
}

/// Formats the report as one JSON document with sorted keys.
///
/// # Errors
/// If the report cannot be serialized.
pub fn json(outcome: &Outcome, elapsed: Duration) -> serde_json::Result<String> {
    let some = outcome.some_folded_all();
    super::document(&BackfillDocument {
        from: outcome.folded.map(|folded| folded.first.to_string()),
        to: outcome.folded.map(|folded| folded.last.to_string()),
        closed_through: outcome.closed_through.map(|hour| hour.to_string()),
        hours: outcome.hours,
        hours_restated: outcome.hours_restated,
        totals: &outcome.totals,
        organizations_recomputed: some.map(|some| Recomputed { recomputed: some.folded, total: some.all }),
        files: InputFiles { read: outcome.files, skipped: outcome.files_skipped },
        events: InputEvents {
            read: outcome.events_read,
            new: outcome.events_new,
            duplicates: outcome.events_known,
            other_shards: outcome.events_elsewhere,
        },
        shards_left_out: &outcome.left_out,
        held: &outcome.held,
        dead_letters: &outcome.dead_letters,
        dead_letter_examples: &outcome.dead_letter_examples,
        not_closed: outcome.ahead.as_ref().map(|ahead| NotClosed {
            hours: ahead.hours,
            first: ahead.first.to_string(),
            last: ahead.last.to_string(),
        }),
        table_files: outcome.files_written,
        table_commits: outcome.commits,
        elapsed_seconds: elapsed.as_secs_f64(),
        events_per_second: per_second(outcome.events_read, elapsed),
    })
}

/// Formats the report as lines for people.
pub fn text(outcome: &Outcome, lake: &str, elapsed: Duration) -> String {
    let mut text = PlainText::default();
    // Writing to a string never fails.
    let _infallible = write_text(&mut text, outcome, lake, elapsed);
    text.as_str().to_owned()
}

fn write_text(out: &mut PlainText, outcome: &Outcome, lake: &str, elapsed: Duration) -> std::fmt::Result {
    match outcome.folded {
        Some(folded) => {
            let hours = thousands(folded.count());
            writeln!(out, "Folded {} to {} ({hours} hours).", folded.first, folded.last)?;
        }
        None => writeln!(out, "Nothing changed: the tables hold these events already.")?,
    }
    if let Some(some) = outcome.some_folded_all() {
        let (folded, all) = (thousands(some.folded), thousands(some.all));
        writeln!(out, "{folded} of {all} organizations were folded again; the totals cover only these.")?;
    }
    for (currency, totals) in &outcome.totals {
        writeln!(out)?;
        write_totals(out, currency, totals)?;
    }
    writeln!(out)?;
    let (read, new, known) = (outcome.events_read, outcome.events_new, outcome.events_known);
    writeln!(
        out,
        "{} events in {} files: {} new, {} known already.",
        thousands(read),
        thousands(outcome.files),
        thousands(new),
        thousands(known)
    )?;
    if outcome.files_skipped > 0 {
        writeln!(
            out,
            "{} other files were left out: their names do not end in .avro.",
            thousands(outcome.files_skipped)
        )?;
    }
    if outcome.events_elsewhere > 0 {
        writeln!(
            out,
            "{} events were left out: they belong to shards that {}.",
            thousands(outcome.events_elsewhere),
            if outcome.left_out.is_empty() { "--shards does not name" } else { "were left out" }
        )?;
    }
    for (shard, why) in &outcome.left_out {
        writeln!(out, "Shard {shard} was left out: {why}. Then run the same command again.")?;
    }
    write_hours_ahead(out, outcome)?;
    if outcome.hours_restated > 0 {
        writeln!(
            out,
            "{} hours that were published before have changed.",
            thousands(outcome.hours_restated)
        )?;
    }
    for message in outcome.held.values().take(HELD_MAX) {
        writeln!(out, "Held: {message}.")?;
    }
    if outcome.held.len() > HELD_MAX {
        writeln!(out, "{} organizations are held.", thousands(outcome.held.len() as u64))?;
    }
    write_dead_letters(out, outcome)?;
    writeln!(
        out,
        "{} table files written, {} commits, in {lake}.",
        thousands(outcome.files_written),
        thousands(outcome.commits)
    )?;
    let rate = thousands(per_second(read, elapsed));
    writeln!(out, "{:.1} s, {rate} events/s.", elapsed.as_secs_f64())
}

/// Writes the later hours that have events but are not closed.
fn write_hours_ahead(out: &mut PlainText, outcome: &Outcome) -> std::fmt::Result {
    let Some(ahead) = &outcome.ahead else { return Ok(()) };
    let (hours, first, last) = (thousands(ahead.hours), ahead.first, ahead.last);
    let who = match ahead.worker_closes {
        true => "the worker closes them when its watermark passes them.".to_owned(),
        false => format!("--to {last} closes them."),
    };
    writeln!(
        out,
        "Events of {hours} later hours, {first} to {last}, are in the archive, but these hours are not \
         closed: {who}"
    )
}

fn write_totals(out: &mut PlainText, currency: &str, totals: &Totals) -> std::fmt::Result {
    let mut lines: Vec<(String, Decimal12)> = Vec::new();
    let mut namespaces: Vec<(&String, &Decimal12)> = totals.namespaces.iter().collect();
    namespaces.sort_by_key(|(name, cost)| (std::cmp::Reverse(**cost), (*name).clone()));
    let rest = namespaces.split_off(namespaces.len().min(NAMESPACES_MAX));
    lines.extend(namespaces.into_iter().map(|(name, cost)| (format!("namespace {name}"), *cost)));
    if !rest.is_empty() {
        let atoms = rest.iter().map(|(_, cost)| cost.atoms()).sum();
        lines.push((
            format!("{} more namespaces", thousands(rest.len() as u64)),
            Decimal12::from_atoms(atoms),
        ));
    }
    lines.push(("idle".into(), totals.idle));
    lines.push(("unused reservations".into(), totals.unused_reservations));
    lines.push(("unused commitments".into(), totals.unused_commitments));
    if totals.shared_charges != Decimal12::ZERO {
        lines.push(("shared charges".into(), totals.shared_charges));
    }
    lines.push(("total supply".into(), totals.supply));
    lines.push(("used on nodes, of the above".into(), totals.node_used));
    lines.push(("unused on nodes, of the above".into(), totals.node_unused));
    lines.push(("over quota, of the above".into(), totals.over_quota));
    let amounts: Vec<String> = lines.iter().map(|(_, cost)| amount(*cost)).collect();
    let names = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let names = names.min(NAME_WIDTH_MAX);
    let width = amounts.iter().map(String::len).chain([currency.len()]).max().unwrap_or_default();
    writeln!(out, "  {:names$}  {currency:>width$}", "Effective cost")?;
    for ((name, _), amount) in lines.iter().zip(&amounts) {
        writeln!(out, "  {name:names$}  {amount:>width$}")?;
    }
    writeln!(out, "  {:names$}  {:>width$}", "difference", totals.difference.to_string())?;
    writeln!(
        out,
        "  {:names$}  {:>width$}",
        "unpriced pod-hours",
        thousands(totals.unpriced_pod_hours.unsigned_abs())
    )?;
    writeln!(out, "  {:names$}  {:>width$}", "rows", thousands(totals.rows.unsigned_abs()))
}

fn write_dead_letters(out: &mut PlainText, outcome: &Outcome) -> std::fmt::Result {
    let all = outcome.dead_letters_all();
    if all == 0 {
        return Ok(());
    }
    let reasons =
        outcome.dead_letters.iter().map(|(reason, count)| format!("{reason} {}", thousands(*count)));
    let reasons: Vec<String> = reasons.collect();
    writeln!(out, "{} dead letters under dead-letter/: {}.", thousands(all), reasons.join(", "))?;
    for example in &outcome.dead_letter_examples {
        writeln!(out, "  {example}")?;
    }
    if all > outcome.dead_letter_examples.len() as u64 {
        writeln!(out, "  …")?;
    }
    Ok(())
}

/// Formats an amount, rounded half to even to two places, with separators. Exact amounts are in the tables
/// and in `--json`. Sums of columns have up to 38 digits, more than a `rust_decimal::Decimal` holds.
fn amount(value: Decimal12) -> String {
    const CENT: u128 = 10_000_000_000;
    let atoms = value.atoms().unsigned_abs();
    let (cents, rest) = (atoms / CENT, atoms % CENT);
    let up = rest > CENT / 2 || (rest == CENT / 2 && cents % 2 == 1);
    let cents = cents + u128::from(up);
    let sign = if value.is_negative() && cents > 0 { "-" } else { "" };
    format!("{sign}{}.{:02}", grouped(&(cents / 100).to_string()), cents % 100)
}

fn thousands(value: u64) -> String {
    grouped(&value.to_string())
}

fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn per_second(events: u64, elapsed: Duration) -> u64 {
    let microseconds = elapsed.as_micros().max(1);
    u64::try_from(u128::from(events) * 1_000_000 / microseconds).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use prorata_worker::backfill::FoldedAgain;
    use serde_json::Value;

    use super::*;

    #[test]
    fn amounts_are_rounded_half_to_even_and_grouped() {
        let cases = [
            ("0", "0.00"),
            ("0.005", "0.00"),
            ("0.015", "0.02"),
            ("0.004999999999", "0.00"),
            ("1234567.891", "1,234,567.89"),
            ("-1234.5", "-1,234.50"),
            ("-0.001", "0.00"),
            ("999.995", "1,000.00"),
        ];
        for (exact, shown) in cases {
            assert_eq!(amount(exact.parse().unwrap()), shown, "{exact}");
        }
    }

    #[test]
    fn totals_of_some_organizations_say_so() {
        let some = |folded| FoldedAgain { folded, all: 1_000 };
        let outcome = Outcome { some_folded: [(0, some(1)), (3, some(2))].into(), ..Outcome::default() };
        let said = text(&outcome, "lake", Duration::from_secs(1));
        let message = "3 of 2,000 organizations were folded again; the totals cover only these.";
        assert!(said.lines().any(|line| line == message), "{said}");
        let said: Value = serde_json::from_str(&json(&outcome, Duration::from_secs(1)).unwrap()).unwrap();
        let recomputed = &said["organizations_recomputed"];
        assert_eq!((&recomputed["recomputed"], &recomputed["total"]), (&3.into(), &2_000.into()));
        let whole = Outcome { some_folded: [(0, some(1_000))].into(), ..Outcome::default() };
        assert!(!text(&whole, "lake", Duration::from_secs(1)).contains("organizations"));
        assert!(json(&whole, Duration::from_secs(1)).unwrap().contains("\"organizations_recomputed\": null"));
    }

    /// A padding of more than 65,535 characters would cause a panic.
    #[test]
    fn names_of_any_length_and_content_are_plain_lines() {
        let long = "x".repeat(70_000);
        let namespaces =
            [(long.clone(), Decimal12::from_int(2)), ("a\u{1b}[2J\nidle 0.00".into(), Decimal12::ONE)];
        let totals =
            Totals { namespaces: namespaces.into(), supply: Decimal12::from_int(3), ..Totals::default() };
        let outcome = Outcome { totals: [("USD".into(), totals)].into(), ..Outcome::default() };
        let said = text(&outcome, "lake", Duration::from_secs(1));
        assert!(
            said.lines().any(|line| line == format!("  namespace {long}  2.00")),
            "its line is as long as it"
        );
        let padded = format!("  {:60}  1.00", "namespace a\u{fffd}[2J\u{fffd}idle 0.00");
        assert!(said.lines().any(|line| line == padded), "{}", said.replace(&long, "…"));
        assert!(!said.contains(|letter: char| letter != '\n' && letter.is_control()));
    }

    #[test]
    fn namespaces_beyond_twenty_are_summed() {
        let namespaces =
            (0..30).map(|number| (format!("n{number:02}"), Decimal12::from_int(number + 1))).collect();
        let totals = Totals { namespaces, supply: Decimal12::from_int(465), ..Totals::default() };
        let mut text = PlainText::default();
        write_totals(&mut text, "USD", &totals).unwrap();
        let text = text.as_str();
        assert!(text.contains("10 more namespaces"), "{text}");
        assert!(text.contains("55.00"), "1 + 2 + … + 10: {text}");
        assert!(text.lines().any(|line| line.contains("total supply") && line.ends_with("465.00")), "{text}");
    }
}
