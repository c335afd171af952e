//! A backfill of late events does only the work that their changes require, and lost files can be written
//! again.

use prorata_samples::trace::{START, node, pod, pod_stop};
use prorata_schemas::event::EventRecord;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_worker::names::TableFile;
use prorata_worker::ports::ObjectStore;

use crate::harness::*;

const ORGANIZATIONS: i64 = 20;
const HOURS: i64 = 60;
const LAST: Hour = Hour(START + HOURS - 1);

fn history() -> Vec<EventRecord> {
    let of = |n| {
        let organization = format!("org-{n:02}");
        [
            node(&organization, 0, 10),
            pod(&organization, 5 + n, "first", 1),
            pod(&organization, HOURS * 60 - 10, "last", 1),
        ]
    };
    (0..ORGANIZATIONS).flat_map(of).collect()
}

fn run(owner: &str) -> Run {
    Run::new(owner).with(|options| options.shards = Some(1))
}

#[tokio::test]
async fn late_events_of_one_organization_fold_that_one() {
    let late = |hour: i64| pod("org-07", hour * 60 + 1, &format!("late {hour}"), 1);
    for (hurried, file_rows) in [(false, None), (true, None), (false, Some(7)), (true, Some(7))] {
        let lake = Lake { file_rows, ..Lake::default() };
        let first = lake.run(&files(&[&history()]), run("aa")).await.unwrap();
        assert_eq!(first.organization_hours, (ORGANIZATIONS * HOURS).cast_unsigned());
        let again = if hurried { run("bb").hurried() } else { run("bb") };
        let outcome = lake.run(&files(&[&[late(40)]]), again).await.unwrap();
        assert_eq!((outcome.hours, outcome.hours_restated), (20, 20));
        assert_eq!(outcome.organization_hours, 20, "its hours from the late one on");
        let some = outcome.some_folded_all().unwrap();
        assert_eq!((some.folded, some.all), (1, ORGANIZATIONS.cast_unsigned()), "the totals are of one");
        assert_eq!(first.some_folded_all(), None);
        let all = [history(), vec![late(40)]].concat();
        assert_content(&lake, &expected(&all, LAST, |_| 0, rules), "one late event");
        // A finished pod ends within its hour, and a pod of the next hour closes that hour, too.
        let over = [pod("org-03", 50 * 60 + 1, "over", 1), pod_stop("org-03", 50 * 60 + 31, "over")];
        let next = pod("org-03", HOURS * 60 + 5, "next", 1);
        let more = [over.to_vec(), vec![next]].concat();
        let outcome = lake.run(&files(&[&more]), run("cc")).await.unwrap();
        assert_eq!(outcome.hours_restated, 1);
        assert_eq!(outcome.organization_hours, 1 + ORGANIZATIONS.cast_unsigned());
        let all = [all, more].concat();
        assert_content(&lake, &expected(&all, LAST.next(), |_| 0, rules), "and one more hour");
    }
}

#[tokio::test]
async fn hours_whose_costs_are_the_same_have_not_changed() {
    let lake = Lake::default();
    lake.run(&files(&[&history()]), run("aa")).await.unwrap();
    // The stop of an unknown pod adds one event and no cost.
    let event = pod_stop("org-07", 40 * 60 + 1, "unknown");
    let outcome = lake.run(&files(&[std::slice::from_ref(&event)]), run("bb")).await.unwrap();
    assert_eq!((outcome.events_new, outcome.hours_restated), (1, 0));
    let all = [history(), vec![event]].concat();
    assert_content(&lake, &expected(&all, LAST, |_| 0, rules), "its count is in table hours");
}

#[tokio::test]
async fn lost_and_damaged_table_files_are_made_again_when_asked_for() {
    made_again(None, 1).await;
    // Each of the twenty organizations has one row.
    made_again(Some(9), 3).await;
}

async fn made_again(file_rows: Option<u64>, files_of_hour: usize) {
    let lake = Lake { file_rows, ..Lake::default() };
    lake.run(&files(&[&history()]), run("aa")).await.unwrap();
    let path = |table: Table, hour: i64| {
        let named = |path: &&String| TableFile::parse(path).unwrap().hour == Hour(START + hour);
        let live = lake.files();
        format!("{}/{}", table.name(), live[&table].iter().find(named).unwrap())
    };
    lake.store.delete(&path(Table::CostAllocation, 30)).await.unwrap();
    lake.store.overwrite(&path(Table::Hours, 40), "damaged".into());
    let before = lake.files();
    let again = run("bb").with(|options| options.from = Some(Hour(START)));
    lake.run(&files(&[&history()]), again).await.unwrap();
    assert_eq!(lake.files(), before, "its digest is the same, so nobody looks");
    let rewrite = run("cc").with(|options| options.rewrite = true);
    let outcome = lake.run(&files(&[&history()]), rewrite).await.unwrap();
    assert_content(&lake, &expected(&history(), LAST, |_| 0, rules), "made again");
    let after = lake.files();
    let replaced = |table| before[&table].iter().filter(|file| !after[&table].contains(file)).count();
    assert_eq!((replaced(Table::CostAllocation), replaced(Table::Hours)), (files_of_hour, 2));
    assert_eq!(outcome.hours_restated, 1, "the totals of the other are the same");
    let rewrite = run("dd").with(|options| options.rewrite = true);
    let outcome = lake.run(&files(&[&history()]), rewrite).await.unwrap();
    assert_eq!((outcome.hours, outcome.files_written), (0, 0), "all is whole");
}
