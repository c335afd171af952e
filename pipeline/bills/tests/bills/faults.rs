//! Documents that are wrong: what is imported, and what the messages say.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use prorata_bills::{BillError, BillFormat};

use crate::rig::{Done, all, import, import_with};

const HEADER: &str = "ProviderName,BillingAccountId,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,\
                      ChargeCategory,BilledCost,EffectiveCost,ResourceId\n";

fn row(cost: &str) -> String {
    format!("AWS,111,USD,2026-11-01T00:00:00Z,2026-11-01T01:00:00Z,Usage,{cost},{cost},i-{cost}\n")
}

fn focus(rows: &[String]) -> Result<Done, BillError> {
    import(BillFormat::Focus, &[&[HEADER.to_owned()], rows].concat().concat())
}

fn refused(document: impl Into<Bytes>) -> String {
    let imported = import_with(BillFormat::Focus, all(), &[document.into()], &[]);
    imported.err().unwrap().to_string()
}

#[test]
fn a_fault_of_one_line_leaves_the_others() {
    let good = row("1.5");
    for (bad, column, reason) in [
        (row("1.5").replace("Usage,1.5", "Usage,x"), "BilledCost", "'x' is not a decimal"),
        (
            row("1.5").replace("2026-11-01T01:00:00Z", "01.11.2026"),
            "ChargePeriodEnd",
            "'01.11.2026' is not a time",
        ),
        (
            row("1.5").replace("2026-11-01T01", "2026-10-01T01"),
            "ChargePeriodEnd",
            "is before ChargePeriodStart",
        ),
        (row("1.5").replace("Usage", "Use"), "ChargeCategory", "'Use' is none of"),
        (row("1.5").replace("AWS,111", "AWS,"), "BillingAccountId", "the cell is empty"),
        (row("9999999999999"), "a cost of 9999999999999", "above the limit"),
        (row("1.5").replace("i-1.5", "i-1,5"), "10 cells", "the header has 9"),
        (row("1.5").replace(",i-1.5", ""), "8 cells", "the header has 9"),
    ] {
        let done = focus(&[row("0.25"), bad.clone(), good.clone()]).unwrap();
        assert_eq!((done.report.lines, done.report.faults, done.report.set_lines), (3, 1, 2), "{bad}");
        assert_eq!(done.sums()[0].to_string(), "1.75");
        let fault = &done.report.first_faults[0];
        assert!(fault.starts_with("'new-0', line 3: "), "{fault}");
        assert!(fault.contains(column) && fault.contains(reason), "{fault}");
    }
}

#[test]
fn a_text_in_another_encoding_is_a_fault_of_its_line() {
    let mut document = [HEADER, &row("1"), &row("2")].concat().into_bytes();
    let at = document.len() - 3;
    document[at] = 0xff;
    let done = import_with(BillFormat::Focus, all(), &[document.into()], &[]).unwrap();
    assert_eq!((done.report.faults, done.report.set_lines), (1, 1));
    assert!(done.report.first_faults[0].contains("column ResourceId: the text is not UTF-8"));
}

#[test]
fn a_document_that_ends_early_is_refused() {
    let whole = [HEADER, &row("1"), &row("2")].concat();
    let cut = refused(whole.get(..whole.len() - 8).unwrap().to_owned());
    assert!(cut.contains("after line 3") && cut.contains("cut off"), "{cut}");
    let mut packed = Vec::new();
    let mut encoder = GzEncoder::new(&mut packed, Compression::fast());
    encoder.write_all(whole.as_bytes()).unwrap();
    encoder.finish().unwrap();
    packed.truncate(packed.len() - 12);
    let cut = refused(packed);
    assert!(cut.contains("'new-0': it cannot be read") && cut.contains("fetch it again"), "{cut}");
    let open = [HEADER, "AWS,\"111,USD\n", &row("1"), &row("2")].concat();
    let open = refused(open);
    assert!(open.contains("line 2") && open.contains("a quote may not be closed"), "{open}");
}

#[test]
fn other_kinds_of_documents_are_named() {
    let cases: [(&[u8], &str); 7] = [
        (b"", "it is empty"),
        (b"\xef\xbb\xbf\n\n", "it is empty"),
        (b"PK\x03\x04....", "ZIP archive"),
        (b"\x28\xb5\x2f\xfd....", "Zstandard"),
        (b"\xff\xfeP\0", "UTF-16"),
        (b"PAR1....", "it cannot be read"),
        (b"a,b\n1,2\n", "no column BilledCost, EffectiveCost, BillingCurrency"),
    ];
    for (start, reason) in cases {
        let message = refused(Bytes::copy_from_slice(start));
        assert!(message.contains(reason), "{message}");
    }
    let cur = import(BillFormat::Cur, &[HEADER, &row("1")].concat()).err().unwrap().to_string();
    assert!(cur.contains("name another format"), "{cur}");
}

#[test]
fn two_currencies_have_no_sum() {
    let other = row("2").replace("USD", "EUR");
    let error = focus(&[row("1"), other]).err().unwrap().to_string();
    assert!(
        error.contains("line 3 of 'new-0' is in 'EUR'") && error.contains("line 2 of 'new-0' is in 'USD'"),
        "{error}"
    );
}

#[test]
fn an_import_without_a_good_line_is_refused() {
    let error = focus(&[row("x"), row("y")]).err().unwrap().to_string();
    assert!(error.contains("none of the 2 lines") && error.contains("'x' is not a decimal"), "{error}");
    let done = focus(&[]).unwrap();
    assert_eq!((done.report.lines, done.events.len()), (0, 0));
}
