//! Price documents and the lists that they become, byte for byte; documents that are wrong.
//!
//! `UPDATE_GOLDEN=1` writes the lists again.

use std::path::Path;

use prorata_collector::prices::{
    Imported, Importer, PriceDocument, PriceList, read_price_list, write_price_list,
};
use prorata_schemas::event::CapacityType;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/prices")
}

fn document(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()
}

fn imported(kind: PriceDocument, bytes: &[u8]) -> Result<(PriceList, Imported), String> {
    let mut importer = Importer::new("USD");
    importer.read(kind, bytes).map_err(|error| error.to_string())?;
    importer.finish().map_err(|error| error.to_string())
}

fn csv(list: &PriceList) -> String {
    let mut bytes = Vec::new();
    write_price_list(list, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn check(kind: PriceDocument, name: &str, golden: &str) -> Imported {
    let (list, imported) = imported(kind, &document(name)).unwrap();
    let text = csv(&list);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(folder().join(golden), &text).unwrap();
    }
    assert_eq!(text, String::from_utf8(document(golden)).unwrap(), "{golden}");
    let mut again = PriceList::default();
    read_price_list(text.as_bytes(), &mut again).unwrap();
    assert_eq!(again, list, "a list reads as it was written");
    imported
}

#[test]
fn aws_offers_become_a_list() {
    let imported = check(PriceDocument::Aws, "aws.json", "aws.csv");
    assert_eq!(imported.prices, 4);
    assert_eq!(imported.skipped["price 0"], 1);
    assert_eq!(imported.skipped["not a shared machine without licensed software"], 7);
}

#[test]
fn azure_prices_become_a_list() {
    let imported = check(PriceDocument::Azure, "azure.json", "azure.csv");
    assert_eq!(imported.prices, 4);
    assert_eq!(imported.skipped["another currency"], 1);
}

#[test]
fn machines_of_google_are_sums_of_their_parts() {
    check(PriceDocument::Gcp, "gcp.json", "gcp.csv");
    let (list, _) = imported(PriceDocument::Gcp, &document("gcp.json")).unwrap();
    let price = |name: &str, capacity_type| {
        let found =
            list.iter().find(|(of, ..)| *of.instance_type == *name && of.capacity_type == capacity_type);
        found.map(|(_, _, price)| price.to_string())
    };
    // 4 vCPUs of 0.030321 and 16 GiB of 0.004063.
    assert_eq!(price("t2d-standard-4", CapacityType::OnDemand).as_deref(), Some("0.186292"));
    assert_eq!(price("t2d-standard-4", CapacityType::Spot).as_deref(), Some("0.03736"));
    // 96 vCPUs of 0.034806, 680 GiB of 0.004666, 8 GPUs of 2.933908.
    assert_eq!(price("a2-highgpu-8g", CapacityType::OnDemand).as_deref(), Some("29.98552"));
    assert_eq!(price("n2-standard-4", CapacityType::OnDemand), None, "its memory has no price");
}

#[test]
fn parts_of_google_may_be_on_several_pages() {
    let whole = String::from_utf8(document("gcp.json")).unwrap();
    let core = whole.replace("Instance Ram", "Instance Disk");
    let ram = whole.replace("Instance Core", "Instance Disk").replace("GPU running", "TPU running");
    let mut importer = Importer::new("USD");
    importer.read(PriceDocument::Gcp, core.as_bytes()).unwrap();
    importer.read(PriceDocument::Gcp, ram.as_bytes()).unwrap();
    assert_eq!(importer.finish().unwrap().0, imported(PriceDocument::Gcp, whole.as_bytes()).unwrap().0);
}

#[test]
fn lists_are_joined() {
    let mut importer = Importer::new("USD");
    importer.read(PriceDocument::Csv, document("on-premises.csv").as_slice()).unwrap();
    importer.read(PriceDocument::Aws, document("aws.json").as_slice()).unwrap();
    let (list, _) = importer.finish().unwrap();
    assert_eq!(list.len(), 6);
    assert!(csv(&list).contains("dgx-h100,linux,ON_DEMAND,USD,28.5,2026-06-30T22:00:00Z"));
}

fn error(kind: PriceDocument, text: &str) -> String {
    imported(kind, text.as_bytes()).unwrap_err()
}

#[test]
fn a_list_that_is_wrong_is_refused_with_its_line() {
    let head = "provider,region,instance_type,os,capacity_type,currency,hourly,valid_from\n";
    let of = |lines: &str| {
        let text = format!("{head}{lines}\n");
        let wrong = error(PriceDocument::Csv, &text);
        assert_eq!(error(PriceDocument::Csv, &text.replace('\n', "\r\n")), wrong, "as Windows ends lines");
        wrong
    };
    assert!(error(PriceDocument::Csv, "").contains("the first line must be provider,"));
    assert!(error(PriceDocument::Csv, "a,b\n").contains("the first line must be provider,"));
    assert!(of("aws,r,t,linux,ON_DEMAND,USD,1e3,2026-01-01").contains("line 2: hourly: '1e3'"));
    assert!(of("aws,r,t,linux,ON_DEMAND,USD,-1,2026-01-01").contains("line 2: the price -1 is negative"));
    assert!(of("aws,r,t,linux,on demand,USD,1,2026-01-01").contains("line 2: capacity_type: 'on demand'"));
    assert!(of("aws,r,t,linux,SPOT,USD,1,2026-02-30").contains("line 2: valid_from: '2026-02-30'"));
    assert!(of("aws,,t,linux,SPOT,USD,1,2026-01-01").contains("line 2: region: it is empty"));
    assert!(of("aws,r,t,linux,SPOT,USD,1").contains("line 2: valid_from: the line has too few columns"));
    assert!(
        of("aws,r,t,linux,SPOT,USD,1,2026-01-01,x").contains("line 2: valid_from: the line has too many")
    );
    let two = "aws,r,t,linux,SPOT,USD,1,2026-01-01\naws,r,t,linux,SPOT,USD,2,2026-01-01";
    assert!(of(two).contains("line 3: t in r has two prices from 2026-01-01"), "{}", of(two));
    let mixed = "aws,r,t,linux,SPOT,USD,1,2026-01-01\naws,r,u,linux,SPOT,EUR,2,2026-01-01";
    assert!(of(mixed).contains("line 3: a price in EUR, but the list is in USD"), "{}", of(mixed));
    let quoted = error(PriceDocument::Csv, &format!("{head}\"aws,r"));
    assert!(quoted.contains("line 2: valid_from: the line has too few columns"), "{quoted}");
}

#[test]
fn prices_that_are_all_in_another_currency_are_not_missing() {
    let azure = String::from_utf8(document("azure.json")).unwrap();
    let other = error(PriceDocument::Azure, &azure.replace("\"USD\"", "\"CHF\""));
    assert!(other.contains("there is no price in USD: ") && other.contains("--currency"), "{other}");
}

#[test]
fn hostile_documents_are_refused() {
    use PriceDocument::{Aws, Azure, Gcp};
    for kind in [Aws, Azure, Gcp] {
        for text in ["", "[]", "{", "nul", "{\"Items\":3}x", "{\"a\":1} {}"] {
            assert!(!error(kind, text).is_empty(), "{text}");
        }
        let deep = format!("{{\"products\":{}", "[".repeat(100_000));
        assert!(error(kind, &deep).len() < 300);
        assert!(error(kind, "{}").contains("no price of a virtual machine was found"));
    }
    let aws = String::from_utf8(document("aws.json")).unwrap();
    let changed = |from: &str, to: &str| error(Aws, &aws.replace(from, to));
    assert!(changed("0.1150000000", "0.11500000001234").contains("is not a price with at most 12 decimals"));
    assert!(changed("0.1150000000", "NaN").contains("m5.large in eu-central-1: 'NaN'"));
    assert!(changed("\"2026-11-01T00:00:00Z\"", "\"today\"").contains("'today' is not a time"));
    assert!(changed("m5.metal", "m5.large").contains("two prices"));
    assert!(error(Aws, "{\"terms\":{},\"products\":{}}").contains("the terms come before the products"));
    let azure = String::from_utf8(document("azure.json")).unwrap();
    assert!(
        error(Azure, &azure.replace("\"retailPrice\": 4.775", "\"retailPrice\": \"free\""))
            .contains("'free'")
    );
    let gcp = String::from_utf8(document("gcp.json")).unwrap();
    assert!(error(Gcp, &gcp.replace("30321000", "3032100000000")).contains("units or nanos"));
    let twice = gcp.replace("T2D AMD Custom Instance Core", "T2D AMD Instance Core");
    assert!(error(Gcp, &twice).contains("a second SKU has another price"));
}
