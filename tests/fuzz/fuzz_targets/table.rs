//! Fuzzes [`prorata_tests::fuzz::table`].

#![no_main]

libfuzzer_sys::fuzz_target!(
    // Our readers catch panics of the Parquet library, so these must not abort the process. Any other panic
    // still does.
    init: std::panic::set_hook(Box::new(|_| {})),
    |input: &[u8]| {
        prorata_tests::fuzz::table(input);
    }
);
