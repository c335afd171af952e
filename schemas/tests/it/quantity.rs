//! Kubernetes quantities: a table with an example of each form, then a comparison of every form with
//! arbitrary-precision arithmetic.

use dashu_int::UBig;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use prorata_schemas::quantity::{QUANTITY_MAX, Quantity, QuantityError};

fn amount(resource: &str, text: &str) -> u128 {
    let quantity = Quantity::parse(resource, text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(&*quantity.text, text);
    quantity.amount
}

#[test]
fn every_form_has_its_amount() {
    let table = [
        // text, bytes, thousandths
        ("0", 0, 0),
        ("-0", 0, 0),
        ("+0.00", 0, 0),
        ("-0e5", 0, 0),
        ("0E-5", 0, 0),
        ("16", 16, 16_000),
        ("+16", 16, 16_000),
        ("0016", 16, 16_000),
        ("500m", 1, 500),
        ("1.5", 2, 1_500),
        (".5", 1, 500),
        ("5.", 5, 5_000),
        ("1.M", 1_000_000, 1_000_000_000),
        ("100Gi", 107_374_182_400, 107_374_182_400_000),
        ("80G", 80_000_000_000, 80_000_000_000_000),
        ("1e3", 1_000, 1_000_000),
        ("1E3", 1_000, 1_000_000),
        ("1e+3", 1_000, 1_000_000),
        ("1E-3", 1, 1),
        ("1e0", 1, 1_000),
        ("12e-1", 2, 1_200),
        ("1E", 1_000_000_000_000_000_000, 1_000_000_000_000_000_000_000),
        ("1Ei", 1 << 60, (1 << 60) * 1_000),
        ("1P", 1_000_000_000_000_000, 1_000_000_000_000_000_000),
        ("1Pi", 1 << 50, (1 << 50) * 1_000),
        ("1T", 1_000_000_000_000, 1_000_000_000_000_000),
        ("1Ti", 1 << 40, (1 << 40) * 1_000),
        ("1Mi", 1 << 20, (1 << 20) * 1_000),
        ("1k", 1_000, 1_000_000),
        ("1Ki", 1_024, 1_024_000),
        ("0.1Ki", 103, 102_400),
        ("0.0009765625Ki", 1, 1_000),
        ("0.00097656250000000001Ki", 2, 1_001),
        ("1.00000000000000000000000000001Gi", (1 << 30) + 1, (1 << 30) * 1_000 + 1),
        ("1n", 1, 1),
        ("1u", 1, 1),
        ("1000000n", 1, 1),
        ("1000001n", 1, 2),
        ("1001u", 1, 2),
        ("100m", 1, 100),
        ("1000m", 1, 1_000),
        ("1001m", 2, 1_001),
        ("9223372036854775807", QUANTITY_MAX, QUANTITY_MAX * 1_000),
        ("9.223372036854775807E", QUANTITY_MAX, QUANTITY_MAX * 1_000),
        ("9.223372036854775807e18", QUANTITY_MAX, QUANTITY_MAX * 1_000),
        ("1e-999999999", 1, 1),
        ("0e999999999", 0, 0),
    ];
    for (text, bytes, thousandths) in table {
        for resource in ["memory", "ephemeral-storage", "tensor-fusion.ai/vram"] {
            assert_eq!(amount(resource, text), bytes, "{resource} {text}");
        }
        for resource in ["cpu", "nvidia.com/gpu", "tensor-fusion.ai/tflops", "example.com/fpga", ""] {
            assert_eq!(amount(resource, text), thousandths, "{resource} {text}");
        }
    }
}

#[test]
fn quantities_that_kubernetes_refuses_are_refused() {
    let blanks = ["", " ", " 1", "1 ", "1 Gi", "\t1", "1\n"];
    let no_number = ["K", "k", "m", "Ki", ".", "-", "+", "+.", "-m", "e3", ".e3"];
    let bad_suffix =
        ["1K", "1e", "1ee3", "1i", ".5i", "1mi", "0.1am", "1B", "1KB", "1kB", "1GiB", "1GI", "1g", "1x"];
    let bad_form = [
        "1.1.M", "1..1", "1+1.0M", "-3.01e-", "1e+", "1e1.5", "1e3Ki", "1e3m", "1Ki3", "--1", "+-1", "1-",
        "0x10",
    ];
    let not_text = ["aoeu", "NaN", "inf", "1_000", "1,5", "\u{661}", "１", "1e99999999999999999999", "null"];
    for text in [&blanks[..], &no_number, &bad_suffix, &bad_form, &not_text].concat() {
        assert_eq!(Quantity::parse("cpu", text), Err(QuantityError::Syntax(text.into())), "{text:?}");
    }
}

#[test]
fn a_quantity_below_zero_is_negative_however_small() {
    for text in ["-1", "-1n", "-0.5", "-100Gi", "-1e-999999999", "-1e999999999", "-.0000001"] {
        assert_eq!(Quantity::parse("memory", text), Err(QuantityError::Negative(text.into())), "{text:?}");
    }
}

#[test]
fn more_than_the_largest_kubernetes_quantity_is_too_large() {
    let texts = [
        "9223372036854775808",
        "9223372036854775807.1",
        "9223372036854775807.0000000000000000000000001",
        "8Ei",
        "10E",
        "1e19",
        "1e999999999",
        "1e9223372036854775807",
        "99999999999999999999999999999999999999999999999999",
    ];
    for text in texts {
        for resource in ["memory", "cpu"] {
            let refused = Quantity::parse(resource, text);
            assert_eq!(refused, Err(QuantityError::TooLarge(text.into())), "{resource} {text:?}");
        }
    }
}

#[test]
fn a_text_of_a_hundred_thousand_digits_is_cheap() {
    let zeros = "0".repeat(100_000);
    let nines = "9".repeat(100_000);
    assert_eq!(amount("cpu", &format!("0.{zeros}1")), 1);
    assert_eq!(amount("cpu", &format!("{zeros}1")), 1_000);
    assert_eq!(amount("cpu", &format!("1.{zeros}1Gi")), (1 << 30) * 1_000 + 1);
    assert_eq!(amount("memory", &format!("0.{nines}Gi")), 1 << 30);
    assert_eq!(amount("memory", &format!("1{zeros}e-100000")), 1);
    assert_eq!(amount("memory", &format!("0.{zeros}1e100001")), 1);
    let error = Quantity::parse("cpu", &nines).unwrap_err();
    assert!(matches!(error, QuantityError::TooLarge(_)));
    assert!(error.to_string().len() < 200, "the message quotes only the start: {error}");
}

/// Computes the amount with big integers: `digits x 10^(exponent + places) x 2^shift`, rounded up.
fn slow_amount(digits: &str, exponent: i32, shift: usize, places: i32) -> UBig {
    let digits = UBig::from_str_radix(digits, 10).unwrap() << shift;
    let power = UBig::from(10u8).pow((exponent + places).unsigned_abs() as usize);
    if exponent + places >= 0 { digits * power } else { (digits + &power - UBig::ONE) / power }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(28),
        failure_persistence: None,
        ..ProptestConfig::with_cases(2_000)
    })]

    #[test]
    fn amounts_equal_arbitrary_precision(
        whole in "[0-9]{0,24}",
        fraction in "[0-9]{0,40}",
        suffix in proptest::sample::select(vec![
            ("", 0, 0), ("n", -9, 0), ("u", -6, 0), ("m", -3, 0), ("k", 3, 0), ("M", 6, 0), ("G", 9, 0),
            ("T", 12, 0), ("P", 15, 0), ("E", 18, 0), ("Ki", 0, 10), ("Mi", 0, 20), ("Gi", 0, 30),
            ("Ti", 0, 40), ("Pi", 0, 50), ("Ei", 0, 60), ("e-41", -41, 0), ("E+7", 7, 0),
            ("e12", 12, 0), ("E-3", -3, 0),
        ]),
        bytes in any::<bool>(),
    ) {
        prop_assume!(!whole.is_empty() || !fraction.is_empty());
        let (suffix, exponent, shift) = suffix;
        let text = format!("{whole}.{fraction}{suffix}");
        let (resource, places) = if bytes { ("memory", 0) } else { ("cpu", 3) };
        let exponent = exponent - fraction.len() as i32;
        let slow = slow_amount(&format!("{whole}{fraction}"), exponent, shift, places);
        let largest = UBig::from(QUANTITY_MAX) * UBig::from(10u8).pow(places as usize);
        match Quantity::parse(resource, &text) {
            Ok(quantity) => prop_assert_eq!(UBig::from(quantity.amount), slow),
            Err(QuantityError::TooLarge(_)) => prop_assert!(slow > largest),
            Err(error) => return Err(TestCaseError::fail(format!("{text}: {error}"))),
        }
    }

    #[test]
    fn no_text_panics(text in "[0-9.eEinumkKMGTP+-]{0,12}|\\PC{0,8}") {
        let _ = Quantity::parse("cpu", &text);
        let _ = Quantity::parse("memory", &text);
    }
}
