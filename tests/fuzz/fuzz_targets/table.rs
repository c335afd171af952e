//! Fuzzes [`prorata_tests::fuzz::table`].

#![no_main]

libfuzzer_sys::fuzz_target!(
    // A panic of the Parquet library, which our readers catch, must not abort the process. Any other still
    // does.
    init: std::panic::set_hook(Box::new(|_| {})),
    |input: &[u8]| {
        prorata_tests::fuzz::table(input);
    }
);
