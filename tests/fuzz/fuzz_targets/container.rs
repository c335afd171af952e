//! Fuzzes [`prorata_fuzz::container`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| prorata_fuzz::container(input));
