//! Replays the committed fuzz corpus: every input that was ever found and seeds of every form, each also with
//! some damage.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use prorata_samples::dice::{dice, mutate};
use prorata_tests::fuzz;

/// Returns the number of times that each input is damaged. With `PRORATA_CORPUS_DAMAGES`, a run without a
/// fuzzer searches for longer.
fn damages() -> u64 {
    std::env::var("PRORATA_CORPUS_DAMAGES").map_or(20, |number| number.parse().unwrap())
}

fn inputs(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(folder);
    let mut inputs: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    inputs.into_iter().map(|input| std::fs::read(input).unwrap()).collect()
}

/// Runs a target over inputs and damaged copies of them. Returns the number of undamaged inputs that it
/// accepts.
fn replay<A>(inputs: &[Vec<u8>], run: fn(&[u8]) -> A, is_accepted: fn(A) -> bool) -> usize {
    let mut accepted = 0;
    for (seed, input) in (0..).zip(inputs) {
        accepted += usize::from(is_accepted(run(input)));
        let mut dice = dice(seed);
        for _ in 0..damages() {
            let mut damaged = input.clone();
            mutate(&mut damaged, &mut dice);
            run(&damaged);
        }
    }
    accepted
}

fn replay_all(target: &str, run: fn(&[u8])) {
    let inputs = inputs(&format!("corpus/{target}"));
    assert!(inputs.len() > 10, "the corpus of {target} has only {} inputs", inputs.len());
    replay(&inputs, run, |()| true);
}

/// Replays inputs of a form that changes with releases. Fails if none is accepted, because such inputs prove
/// nothing.
fn replay_stored(folder: &str, run: fn(&[u8]) -> bool) {
    let accepted = replay(&inputs(folder), run, |accepted| accepted);
    assert!(accepted > 0, "none of {folder} is of today's form: tests/fuzz/README.md says how to renew them");
}

#[test]
fn the_decoder_holds_over_its_corpus() {
    replay_all("decoder", fuzz::decoder);
}

#[test]
fn the_schema_parser_holds_over_its_corpus() {
    replay_all("schema", fuzz::schema);
}

#[test]
fn the_quantity_parser_holds_over_its_corpus() {
    replay_all("quantity", fuzz::quantity);
}

#[test]
fn the_container_reader_holds_over_its_corpus() {
    replay_all("container", fuzz::container);
}

#[test]
fn checkpoints_hold_over_their_corpus() {
    replay_stored("corpus/checkpoint", fuzz::checkpoint);
}

#[test]
fn snapshots_hold_over_their_corpus() {
    replay_stored("corpus/snapshot", fuzz::snapshot);
}

#[test]
fn price_documents_hold_over_their_corpus() {
    replay_stored("corpus/prices", fuzz::prices);
    replay_stored("prices", fuzz::prices);
}

#[test]
fn table_files_hold_over_their_corpus() {
    replay_stored("corpus/table", fuzz::table);
}
