//! Fuzzes [`prorata_fuzz::decoder`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| prorata_fuzz::decoder(input));
