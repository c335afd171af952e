//! `prorata replay`: folds the messages that retired topics still hold.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use prorata_connectors::kafka::{KafkaReader, KafkaSettings};
use prorata_connectors::messages::Times;
use prorata_inspect::text::plain;
use prorata_schemas::reject::Reason;
use prorata_worker::WorkerError;
use prorata_worker::dead_letters::{ReplayError, TopicReplay, TopicsReplayed};
use prorata_worker::names::Shard;
use serde::Serialize;

use crate::commands::backfill::{self, ShardList};
use crate::commands::dead_letters;
use crate::config::{self, Loaded};
use crate::failure::{DEAD_LETTERED, Failure, LEFT_OUT};
use crate::wiring::{self, kafka, registry};
use crate::{logging, report};

/// Arguments of `prorata replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// Configuration file, with kafka.retired_topics and root.url
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Partitions to read, such as 4-7 [default: all]
    #[arg(long, value_name = "PARTITIONS", value_parser = backfill::parse_shards)]
    pub partitions: Option<ShardList>,
    /// Take over shards that a worker holds and has not released
    #[arg(long)]
    pub take_over: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Reads and folds messages, and prints what was done.
///
/// # Errors
/// If no topic is retired, or something that the command needs is wrong or unavailable.
pub fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let loaded = config::load(Some(&args.config))?;
    logging::start(&loaded.config.log)?;
    let (runtime, threads) = wiring::runtime(loaded.config.backfill.threads)?;
    let mut done = TopicsReplayed::default();
    let result = runtime.block_on(replay(args, &loaded, threads, &mut done));
    // Messages that were folded before an error stay folded, so the report is printed first.
    report::print(&if args.json { as_json(&done)? } else { as_text(&done) })?;
    result?;
    Ok(match (done.left_out.is_empty(), done.dead_letters.is_empty()) {
        (false, _) => ExitCode::from(LEFT_OUT),
        (true, false) => ExitCode::from(DEAD_LETTERED),
        (true, true) => ExitCode::SUCCESS,
    })
}

async fn replay(
    args: &ReplayArgs,
    loaded: &Loaded,
    threads: usize,
    done: &mut TopicsReplayed,
) -> anyhow::Result<()> {
    let config = &loaded.config;
    let retired = &config.kafka.retired_topics;
    if retired.is_empty() {
        let file = args.config.display();
        let message = format!("kafka.retired_topics is empty; name the topics to replay in '{file}'");
        return Err(Failure::usage(message).into());
    }
    let connection = kafka::connection(&config.kafka)?;
    let settings = KafkaSettings::new(connection, config::topic_names(retired), &*config.kafka.group_id);
    let store = wiring::lake::store(wiring::lake::named(None, config)?).await?;
    let replay = TopicReplay {
        ports: backfill::replay_ports(store).await?,
        reader: &KafkaReader::new(&settings).map_err(WorkerError::Source)?,
        decoder: &*registry::decoder(&config.registry, Times::AT_ONCE)?,
        topics: retired.iter().map(|topic| topic.name().into()).collect(),
        organizations: config.kafka.organizations()?,
        partitions: args.partitions.as_ref().map(|ShardList(partitions)| partitions.clone()),
        backfill: backfill::replay_options(loaded, threads, args.take_over),
    };
    replay.run(done).await.map_err(|error: ReplayError| dead_letters::failure(error))
}

/// The result as a document.
#[derive(Serialize)]
struct TopicsDocument<'a> {
    dead_letter_examples: &'a [String],
    dead_letters: &'a BTreeMap<Reason, u64>,
    events: ReplayedEvents,
    hours_restated: u64,
    read: Vec<ReadPartition<'a>>,
    shards_left_out: &'a BTreeMap<Shard, String>,
}

/// Events of the messages.
#[derive(Serialize)]
struct ReplayedEvents {
    duplicates: u64,
    new: u64,
}

/// Messages that were read from a partition. The end offset is exclusive.
#[derive(Serialize)]
struct ReadPartition<'a> {
    end_offset: i64,
    messages: u64,
    partition: Shard,
    start_offset: i64,
    topic: &'a str,
}

fn as_json(done: &TopicsReplayed) -> serde_json::Result<String> {
    let read = done.read.iter().map(|((topic, partition), (from, to, messages))| ReadPartition {
        end_offset: *to,
        messages: *messages,
        partition: *partition,
        start_offset: *from,
        topic,
    });
    report::document(&TopicsDocument {
        dead_letter_examples: &done.examples,
        dead_letters: &done.dead_letters,
        events: ReplayedEvents { duplicates: done.known, new: done.new },
        hours_restated: done.hours_restated,
        read: read.collect(),
        shards_left_out: &done.left_out,
    })
}

fn as_text(done: &TopicsReplayed) -> String {
    let mut lines: Vec<String> = done
        .read
        .iter()
        .map(|((topic, partition), (from, to, messages))| {
            format!("{topic}, partition {partition}: {messages} messages, offsets {from} to {to}")
        })
        .collect();
    lines.push(format!(
        "{} new events, {} known already; {} hours that were published before have changed",
        done.new, done.known, done.hours_restated
    ));
    for (reason, letters) in &done.dead_letters {
        lines.push(format!("{letters} dead letters under dead-letter/: {reason}"));
    }
    lines.extend(done.examples.iter().map(|example| format!("  {}", plain(example))));
    for (shard, why) in &done.left_out {
        lines.push(format!("shard {shard} was left out: {}; then run the same command again", plain(why)));
    }
    lines.join("\n")
}
