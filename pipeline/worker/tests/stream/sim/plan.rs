//! The plan of a seed: sizes, limits, and the kinds of trouble that occur. So each seed tests another mix.

use std::time::Duration;

use prorata_testkit::fakes::{Ends, Rates};
use prorata_worker::names::Shard;
use prorata_worker::stream::{WatermarkRule, WorkerOptions};

use super::dice::Dice;

/// The chance of each kind of trouble per round, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chances {
    pub kill: u32,
    pub expire: u32,
    pub cut_off: u32,
    pub run_out: u32,
    pub rebalance: u32,
    pub stop: u32,
    pub join: u32,
    pub twin: u32,
    pub registry_down: u32,
    pub brokers_down: u32,
    pub partition_down: u32,
    pub hole: u32,
    pub retention: u32,
    pub clock_step: u32,
    pub outage: u32,
    pub backfill: u32,
    pub new_rules: u32,
    pub skipped_step: u32,
    /// A wrong clock of a process.
    pub wrong_clock: u32,
    /// Future events in a foreign batch.
    pub ahead: u32,
    /// Events of an organization that prevent its hours from being folded.
    pub greed: u32,
    /// The start of a process of another group on the root.
    pub stranger: u32,
}

/// The plan of a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub shards: Shard,
    pub members: usize,
    pub organizations: usize,
    pub rounds: i64,
    /// Seconds between two rounds.
    pub round_seconds: i64,
    /// Maximum number of events in a round.
    pub events: usize,
    /// Maximum lateness of an event, in minutes.
    pub lateness: i64,
    pub poll_messages: usize,
    pub ends: Ends,
    pub eager: bool,
    pub tune: Tune,
    pub rates: Rates,
    pub chances: Chances,
    /// A topic with a partition that is down in the first rounds, so that the partition lags.
    pub behind: Option<&'static str>,
    pub backfill_first: bool,
    /// Chance, in thousandths, that a call of storage takes up to several hours.
    pub slow: u32,
}

/// The varied options of the workers.
#[derive(Clone, Copy, Debug)]
pub struct Tune {
    pub rows_in_flight: u64,
    pub memory_limit: u64,
    pub checkpoint_bytes: u64,
    pub checkpoint_interval: u64,
    /// The maximum delay of a restatement, in minutes.
    pub max_restate_delay: u64,
    pub watermark: WatermarkRule,
}

impl Tune {
    pub fn apply(&self, options: &mut WorkerOptions) {
        options.rows_in_flight = self.rows_in_flight;
        options.memory_limit = self.memory_limit;
        options.checkpoint_bytes = self.checkpoint_bytes;
        options.checkpoint_interval = Duration::from_secs(self.checkpoint_interval);
        options.max_restate_delay = Duration::from_secs(self.max_restate_delay * 60);
        // Rounds are up to a few minutes apart, so the interval is shorter than some rounds and longer than
        // most rounds.
        options.compare_after = Duration::from_secs(self.checkpoint_interval * 20);
        options.out_of_orderness = self.watermark.out_of_orderness;
        options.idle_timeout = self.watermark.idle_timeout;
        options.max_watermark_hold = self.watermark.max_watermark_hold;
    }
}

impl Chances {
    fn of(long: bool, dice: &mut Dice) -> Self {
        let mut on =
            |most: u32| if dice.happens(400) { 1 + (dice.bits() % u64::from(most)) as u32 } else { 0 };
        Self {
            kill: on(40),
            expire: on(30),
            cut_off: on(30),
            run_out: on(60),
            rebalance: on(60),
            stop: on(40),
            join: on(30),
            twin: on(20),
            registry_down: on(30),
            brokers_down: on(20),
            partition_down: on(40),
            hole: on(100),
            retention: on(60),
            clock_step: on(20),
            outage: on(30),
            backfill: on(if long { 10 } else { 20 }),
            new_rules: on(20),
            skipped_step: on(300),
            ..Self::default()
        }
    }
}

impl Plan {
    pub fn of(seed: u64, dice: &mut Dice) -> Self {
        let minutes = |count: u64| Duration::from_secs(count * 60);
        // Every sixteenth seed lasts for seven weeks.
        let long = seed % 16 == 7;
        let chances = Chances::of(long, dice);
        let mut rate = |most: u64| if dice.happens(350) { (dice.bits() % (most * 1_000)) as u32 } else { 0 };
        let rates = Rates {
            crash_before: rate(5),
            crash_after: rate(5),
            lose_answer: rate(30),
            refuse: rate(30),
            pause: rate(25),
            retry: rate(30),
            read_fails: rate(50),
            truncated: rate(3),
            flipped: rate(3),
            missing: rate(3),
        };
        let rows = if long { [20, 20, 200, 200, 100_000] } else { [1, 1, 20, 200, 100_000] };
        let tune = Tune {
            rows_in_flight: dice.pick(&rows),
            memory_limit: dice.pick(&[600, 3_000, 20_000, 1 << 30]),
            checkpoint_bytes: dice.pick(&[300, 3_000, 64 << 20]),
            checkpoint_interval: dice.pick(&[10, 60]),
            // The delay depends only on the seed, so that the dice still give the same value for every older
            // choice.
            max_restate_delay: [0, 10, 360][(seed / 3 % 3) as usize],
            watermark: WatermarkRule {
                out_of_orderness: minutes(dice.pick(&[1, 5, 20])),
                idle_timeout: minutes(dice.pick(&[1, 5, 30])),
                max_watermark_hold: minutes(dice.pick(&[30, 60, 120])),
            },
        };
        // These choices have dice of their own, so that the other choices keep their values.
        let mut more = Dice::new(!seed);
        let mut often = |most: u32| if more.happens(300) { 1 + more.below(most as usize) as u32 } else { 0 };
        let chances = Chances { wrong_clock: often(60), ahead: often(500), greed: often(40), ..chances };
        let slow = if more.happens(200) { 1 + more.below(10) as u32 } else { 0 };
        let chances = Chances { stranger: if more.happens(200) { 10 } else { 0 }, ..chances };
        Self {
            shards: if long { dice.pick(&[1, 2]) } else { dice.pick(&[1, 2, 3, 4]) },
            members: dice.pick(&[1, 2, 2, 3, 4]),
            organizations: if long { 2 } else { dice.pick(&[2, 3, 5, 8]) },
            rounds: if long { 190 } else { dice.between(80, 200) },
            round_seconds: if long { 6 * 3_600 } else { dice.pick(&[20, 60, 240]) },
            events: if long { 1 } else { dice.pick(&[1, 2, 4]) },
            lateness: if long { 40 * 24 * 60 } else { dice.pick(&[30, 200, 600]) },
            poll_messages: dice.pick(&[1, 3, 20, 100]),
            ends: dice.pick(&[Ends::EveryPoll, Ends::WhenAsked]),
            eager: dice.happens(300),
            tune,
            rates,
            chances,
            behind: dice.happens(250).then(|| dice.pick(&crate::world::TOPICS)),
            backfill_first: dice.happens(200),
            slow,
        }
    }
}
