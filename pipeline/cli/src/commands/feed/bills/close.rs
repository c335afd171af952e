//! `prorata bills close`: writes or sends the event that closes the month of a billing account.

use std::process::ExitCode;

use clap::Args;
use prorata_connectors::SystemClock;
use prorata_schemas::body;
use prorata_schemas::event::{BillingPeriodClosed, Event, EventKind, Payload, Recording};
use prorata_schemas::time::Timestamp;
use prorata_worker::names::closed::Month;
use prorata_worker::ports::Clock;

use super::deliver::{BillDestination, Spool};
use super::files::disk;
use super::recorded_at;
use crate::commands::generate::kafka::KafkaArgs;
use crate::failure::Failure;
use crate::report;

/// Arguments of `prorata bills close`.
#[derive(Clone, Debug, Args)]
pub struct BillsCloseArgs {
    /// Organization that pays the bill
    #[arg(long, value_name = "ID")]
    pub organization: String,
    /// Provider that sent the bill, such as aws, gcp or azure
    #[arg(long, value_name = "NAME")]
    pub provider: String,
    /// Account that the provider bills
    #[arg(long, value_name = "ID")]
    pub billing_account: String,
    /// Calendar month of UTC whose bill is complete
    #[arg(long, value_name = "YYYY-MM")]
    pub period: Month,
    /// Id of the invoice of the month
    #[arg(long, value_name = "ID")]
    pub invoice: Option<String>,
    /// Take an earlier closing of the month back
    #[arg(long)]
    pub retract: bool,
    /// File, or folder or URL, to write the event to, or kafka
    ///
    /// A name that ends in .avro is a file. In a folder, events are files under the organization.
    #[arg(long, alias = "to", value_name = "FILE.avro|FOLDER|URL|kafka")]
    pub output: String,
    /// Time at which the bill became complete, or was found incomplete [default: now]
    ///
    /// Of a closing and its retraction, the one with the later time counts.
    #[arg(long, value_name = "TIME", value_parser = recorded_at)]
    pub recorded_at: Option<Timestamp>,
    /// The destination.
    #[command(flatten)]
    pub kafka: KafkaArgs,
}

/// Writes or sends the closing, or its retraction, and prints the place.
///
/// # Errors
/// If an argument is wrong, or the event cannot be written or sent.
pub fn run(args: &BillsCloseArgs) -> anyhow::Result<ExitCode> {
    let destination = BillDestination::of(Some(args.output.as_str()), &args.kafka, [])?;
    let recorded_at = args.recorded_at.unwrap_or_else(|| SystemClock.now().event_time());
    let event = event(args, recorded_at);
    body::decode(EventKind::BillingPeriodClosed, &body::encode(&event)).map_err(Failure::usage)?;
    let mut spool = Spool::create(EventKind::BillingPeriodClosed).map_err(disk)?;
    spool.push(&event).map_err(disk)?;
    let to = destination.deliver(&args.organization, spool)?;
    report::print(&format!("{}, {to}", message(args)))?;
    Ok(ExitCode::SUCCESS)
}

fn event(args: &BillsCloseArgs, recorded_at: Timestamp) -> Event {
    let closed = BillingPeriodClosed {
        provider: args.provider.as_str().into(),
        billing_account_id: args.billing_account.as_str().into(),
        invoice_id: args.invoice.as_deref().map(Into::into),
    };
    let organization_id = args.organization.as_str().into();
    let event =
        Event::new(organization_id, args.period.first().start(), Payload::BillingPeriodClosed(closed));
    event.recorded(Recording::new(Some(recorded_at), args.retract))
}

/// Returns a message about the closing.
fn message(args: &BillsCloseArgs) -> String {
    let (account, period) = (&args.billing_account, args.period);
    let state = if args.retract { "open again" } else { "complete" };
    format!("the bill of {}, account {account}, for {period} is {state}", args.provider)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use prorata_collector::parse_instant;

    use super::*;

    /// A command line of nothing but the arguments.
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BillsCloseArgs,
    }

    fn args(more: &[&str]) -> BillsCloseArgs {
        let organization = ["close", "--organization", "acme", "--provider", "aws"];
        let month = ["--billing-account", "1234", "--period", "2026-10", "--to", "closed.avro"];
        Line::parse_from([&organization[..], &month, more].concat()).args
    }

    #[test]
    fn a_closing_is_an_event_at_the_begin_of_the_month() {
        let retracted = ["--invoice", "INV-1", "--retract"];
        for (more, invoice_id, is_retraction) in
            [(&[][..], None, false), (&retracted[..], Some("INV-1".into()), true)]
        {
            let event = event(&args(more), Timestamp(7));
            assert_eq!(Some(event.event_time), parse_instant("2026-10-01T00:00:00Z"));
            assert_eq!(event.recording, Recording::new(Some(Timestamp(7)), is_retraction));
            let closed =
                BillingPeriodClosed { provider: "aws".into(), billing_account_id: "1234".into(), invoice_id };
            assert_eq!(event.payload, Payload::BillingPeriodClosed(closed));
        }
    }

    #[test]
    fn a_period_is_a_calendar_month() {
        for (text, begin) in [("2026-10", "2026-10-01T00:00:00Z"), ("1970-01", "1970-01-01T00:00:00Z")] {
            let period = text.parse::<Month>().map(|month| month.first().start());
            assert_eq!(period.ok(), parse_instant(begin), "{text}");
        }
        for wrong in ["", "2026", "2026-13", "2026-00", "2026-1", "2026-10-01", "10-2026", "1969-12"] {
            let message = wrong.parse::<Month>().unwrap_err().to_string();
            assert_eq!(message, "it is not a month such as 2026-10", "{wrong:?}");
        }
    }
}
