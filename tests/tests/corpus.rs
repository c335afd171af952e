//! The committed fuzz corpus, replayed: every input that was ever found, and seeds of every form.

use prorata_tests::fuzz;
use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/corpus").join(target);
    let mut inputs: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    assert!(inputs.len() > 10, "the corpus of {target} has only {} inputs", inputs.len());
    for input in inputs {
        run(&std::fs::read(input).unwrap());
    }
}

#[test]
fn the_decoder_holds_over_its_corpus() {
    replay("decoder", fuzz::decoder);
}

#[test]
fn the_schema_parser_holds_over_its_corpus() {
    replay("schema", fuzz::schema);
}

#[test]
fn the_quantity_parser_holds_over_its_corpus() {
    replay("quantity", fuzz::quantity);
}

#[test]
fn the_container_reader_holds_over_its_corpus() {
    replay("container", fuzz::container);
}
