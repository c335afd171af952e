//! Prices that are not in the hour's currency (RULES.md, section 11). No history counts such a price as an
//! amount.

use prorata_engine::{HourEvents, State, close_hour};
use prorata_reference::scenario::scenario;
use prorata_reference::tables;
use prorata_reference::text::{BASE_HOUR, ORGANIZATION, parse};
use prorata_schemas::body::encode;
use prorata_schemas::event::{Event, EventRecord, Payload};
use prorata_schemas::rows::{CostRow, Unpriced};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::common::engine_tables;

fn set_currency(event: &mut Event, currency: &str) {
    match &mut event.payload {
        Payload::NodeStarted(node) => node.currency = currency.into(),
        Payload::RateSet(rate) => rate.currency = currency.into(),
        Payload::PoolSet(pool) => pool.currency = currency.into(),
        Payload::CommitmentSet(commitment) => commitment.currency = currency.into(),
        Payload::ReservationSet(reservation) => reservation.currency = currency.into(),
        Payload::BillSet(bill) => bill.currency = currency.into(),
        _ => {}
    }
}

fn record(event: Event) -> EventRecord {
    EventRecord { body: encode(&event).into(), event }
}

#[test]
fn engine_and_model_agree_on_histories_of_two_currencies() {
    let mut other = 0;
    for seed in 0..300 {
        let scenario = scenario(seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let records = scenario.records.iter().map(|record_before| {
            let mut event = record_before.event.clone();
            if rng.random_bool(0.3) {
                set_currency(&mut event, "EUR");
            }
            record(event)
        });
        let records: Vec<EventRecord> = records.collect();
        let engine = engine_tables(&records, &scenario.rules, scenario.through).unwrap();
        let model = tables(&records, &scenario.rules, scenario.through);
        for (engine, model) in engine.iter().zip(&model) {
            for (row, expected) in engine.cost_allocation.iter().zip(&model.cost_allocation) {
                assert!(row == expected, "seed {seed}, hour {}: {row:?} is not {expected:?}", engine.hour);
            }
            assert_eq!(engine.totals, model.totals, "seed {seed}, hour {}", engine.hour);
            assert_eq!(engine.commitment_utilization, model.commitment_utilization, "seed {seed}");
            assert_eq!(engine.pool_usage, model.pool_usage, "seed {seed}");
            assert_eq!(engine.reservation_usage, model.reservation_usage, "seed {seed}");
            assert_eq!(engine.cost_allocation.len(), model.cost_allocation.len(), "seed {seed}");
            assert!(engine == model, "seed {seed}, hour {}", engine.hour);
            let rows = engine.cost_allocation.iter();
            other += rows.filter(|row| row.unpriced == Some(Unpriced::OtherCurrency)).count();
        }
    }
    assert!(other > 300, "only {other} rows in another currency");
}

#[test]
fn rules_with_another_currency_do_not_relabel_prices_that_run_on() {
    let lines = [
        "pool g qos=medium:1:1:1 day=1",
        "rate r cpu=1",
        "commitment k vcpu=4 cost=3",
        "reservation v x=2 price=5",
        "node n cost=10 cpu=8 pool=g",
        "pod on node=n cpu=1",
        "pod free region=r cpu=1",
        "pod charged pool=g tflops=1",
    ];
    let dollars = Rules::default();
    let euros = Rules { version: "2".into(), currency: "EUR".into(), ..Rules::default() };
    let events = lines.iter().map(|line| parse(&format!("00:00 {line}")).unwrap());
    let of = |hour, events: Vec<Event>| HourEvents::of(Hour(BASE_HOUR + hour), events);
    let before = State::new(ORGANIZATION.into());
    let (state, first) = close_hour(before, of(0, events.collect()), &dollars).unwrap();
    let (state, second) = close_hour(state, of(1, Vec::new()), &euros).unwrap();
    assert_eq!(first.totals.supply_cost.to_string(), "20");
    assert_eq!((&*second.currency, second.totals.supply_cost.to_string().as_str()), ("EUR", "0"));
    let priced = |row: &&CostRow| row.unpriced != Some(Unpriced::OtherCurrency);
    let left: Vec<&CostRow> = second.cost_allocation.iter().map(|row| &**row).filter(priced).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(second.totals.unpriced_pods, 3);
    // A new price, and the old currency again: each is a number if it is in the hour's currency.
    let node = "02:00 node n cost=7 cpu=8";
    let mut event = parse(node).unwrap();
    set_currency(&mut event, "EUR");
    let (state, third) = close_hour(state, of(2, vec![event]), &euros).unwrap();
    assert_eq!(third.totals.node_cost.to_string(), "3.5", "the commitment covers half, for no number");
    let (_, fourth) = close_hour(state, of(3, Vec::new()), &dollars).unwrap();
    assert_eq!(fourth.totals.node_cost.to_string(), "0");
    assert_eq!(fourth.totals.commitment_cost.to_string(), "3");
    assert_eq!(fourth.totals.reservation_unused_cost.to_string(), "10");
}
