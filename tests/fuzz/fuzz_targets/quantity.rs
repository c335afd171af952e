//! Fuzzes [`prorata_fuzz::quantity`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| prorata_fuzz::quantity(input));
