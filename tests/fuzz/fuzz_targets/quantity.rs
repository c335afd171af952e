//! Fuzzes [`prorata_tests::fuzz::quantity`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| prorata_tests::fuzz::quantity(input));
