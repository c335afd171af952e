//! Fuzzes [`prorata_tests::fuzz::snapshot`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    prorata_tests::fuzz::snapshot(input);
});
