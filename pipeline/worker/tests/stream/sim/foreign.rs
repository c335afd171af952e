//! Backfills of foreign events into the root of the world, and of all events into a fresh root.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_samples::trace::START;
use prorata_schemas::event::EventRecord;
use prorata_schemas::rules::Rules;
use prorata_testkit::fakes::{FakeArchive, Faults};
use prorata_worker::Ports;
use prorata_worker::WorkerError;
use prorata_worker::backfill::input::InMemoryFiles;
use prorata_worker::backfill::{self, BackfillOptions, BackfillPorts, Outcome};
use prorata_worker::checkpoint::OwnerKind;
use prorata_worker::ports::Silent;

use super::coverage::Coverage;
use super::dice::Dice;
use super::plan::Plan;
use super::producer::something;
use super::rules;
use crate::harness::file;
use crate::world::World;
use crate::world::audit::{AuditedStore, AuditedTables};

/// Events that do not come through Kafka, in files of one batch each.
#[derive(Default)]
pub struct Foreign {
    pub events: Vec<EventRecord>,
    /// Events at a time that a run never reaches, so they must never count.
    ahead: Vec<EventRecord>,
    backfills: u64,
}

impl Foreign {
    /// Adds a batch.
    fn gather(&mut self, world: &World, plan: &Plan, coverage: &mut Coverage, dice: &mut Dice) {
        let now = world.now().0 / 60_000_000 - START * 60;
        for _ in 0..dice.between(1, 12) {
            let organization = format!("org-{}", dice.below(plan.organizations + 1));
            let minutes = now - dice.between(0, plan.lateness.min(900));
            self.events.push(something(&organization, minutes, dice));
        }
        let chance = plan.chances.ahead;
        if chance > 0 && dice.happens(chance) {
            let organization = format!("org-{}", dice.below(plan.organizations + 1));
            let days = dice.between(100, 450);
            self.ahead.push(something(&organization, now + days * 1_440, dice));
            coverage.hit("foreign_ahead");
        }
    }

    /// Folds all batches so far into the world's root.
    pub async fn fold(
        &mut self,
        world: &World,
        rules: Rules,
        faults: Faults,
        change: impl FnOnce(&mut BackfillOptions),
    ) -> Result<Outcome, WorkerError> {
        self.backfills += 1;
        let mut options = BackfillOptions::new(format!("backfill{}", self.backfills).into());
        options.shards = Some(world.shards);
        options.threads = 1;
        options.rules = rules;
        change(&mut options);
        let events = [self.events.clone(), self.ahead.clone()].concat();
        run(world, &events, faults, options).await
    }

    /// Runs a backfill in the middle of a run. The backfill may be refused or interrupted.
    pub async fn disturb(
        &mut self,
        world: &World,
        plan: &Plan,
        rules: Option<Rules>,
        coverage: &mut Coverage,
        dice: &mut Dice,
    ) {
        self.gather(world, plan, coverage, dice);
        let rates =
            prorata_testkit::fakes::Rates { pause: 0, truncated: 0, flipped: 0, missing: 0, ..plan.rates };
        let faults = Faults::random(dice.bits(), rates);
        let (take_over, rows_in_flight) = (dice.happens(500), dice.pick(&[1, 100_000]));
        let held = world.audit.latest().values().any(|checkpoint| {
            checkpoint.owner.as_ref().is_some_and(|owner| owner.kind == OwnerKind::Worker && !owner.released)
        });
        let outcome = self.fold(world, rules::first(plan), faults, |options| {
            options.take_over = take_over;
            options.rows_in_flight = rows_in_flight;
            if let Some(rules) = rules {
                options.rules = rules;
                options.rewrite_rules = true;
            }
        });
        match outcome.await {
            Ok(_) if take_over => coverage.hit("backfill_took_over"),
            Ok(_) => {
                assert!(!held, "a backfill takes what a worker holds");
                coverage.hit("backfill");
            }
            Err(WorkerError::Held { .. }) if !take_over => coverage.hit("backfill_refused"),
            Err(error) if error.exit_code() == 4 => coverage.hit("backfill_broke_off"),
            Err(error) => panic!("a backfill stops: {error}"),
        }
    }
}

/// Runs a backfill of these events into the world's root.
pub async fn run(
    world: &World,
    events: &[EventRecord],
    faults: Faults,
    options: BackfillOptions,
) -> Result<Outcome, WorkerError> {
    let files = BTreeMap::from([("events.avro".to_owned(), file(events))]);
    let ports = BackfillPorts {
        shared: Ports {
            store: Arc::new(AuditedStore::new(world.lake.store.with_faults(faults.clone()), &world.audit)),
            tables: Arc::new(AuditedTables::new(world.lake.tables.with_faults(faults), &world.audit)),
            archive: Arc::new(FakeArchive),
            encoder: world.lake.encoder(),
            clock: Arc::new(world.clock.clone()),
        },
        input: Arc::new(InMemoryFiles::of(files)),
        progress: Arc::new(Silent),
    };
    backfill::run(ports, options).await
}
