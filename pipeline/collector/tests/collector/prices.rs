//! Price documents and their lists, byte for byte; invalid documents.
//!
//! `UPDATE_GOLDEN=1` rewrites the lists.

use std::path::Path;

use prorata_collector::parse_instant;
use prorata_collector::prices::{
    Imported, Importer, PriceBook, PriceDocument, PriceList, PricedNode, read_price_list, write_price_list,
};
use prorata_schemas::Text;
use prorata_schemas::event::{CapacityType, Quantities};

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
    let left_out = [
        (1, "a commitment's price, which belongs in agreements", "AAA1"),
        (1, "in a Local Zone or Wavelength Zone, which needs a line of your own", "EEE1, m5.large in "),
        (1, "neither Linux nor Windows", "AAA7, m5.large in eu-central-1"),
        (1, "not a virtual machine", "DDD1,  in eu-central-1"),
        (1, "of a capacity reservation", "AAA6, m5.large in eu-central-1"),
        (1, "on dedicated hardware", "AAA4, m5.large in eu-central-1"),
        (1, "price 0", "u-9tb1.112xlarge in eu-central-1"),
        (2, "with licensed software, or a licence of your own", "AAA3, m5.large in eu-central-1"),
    ];
    check_left_out(&imported, &left_out);
}

/// Compares counts, reasons and prefixes of examples.
fn check_left_out(imported: &Imported, expected: &[(u64, &str, &str)]) {
    let found: Vec<(u64, &str)> =
        imported.skipped.iter().map(|(reason, left)| (left.count, *reason)).collect();
    assert_eq!(found, expected.iter().map(|(count, reason, _)| (*count, *reason)).collect::<Vec<_>>());
    for (_, reason, example) in expected {
        let found = &imported.skipped[reason].example;
        assert!(found.starts_with(example), "{reason}: {found}");
    }
}

#[test]
fn azure_prices_become_a_list() {
    let imported = check(PriceDocument::Azure, "azure.json", "azure.csv");
    let left_out = [
        (1, "a commitment's price, which belongs in agreements", "Virtual Machines Ddsv5 Series D4ds v5 in "),
        (1, "another currency", "Virtual Machines Ddsv5 Series D4ds v5 in westeurope: EUR"),
        (1, "for development and tests only", "Virtual Machines Ddsv5 Series D4ds v5 in "),
        (2, "not a virtual machine", "Virtual Machines Dv5 Series CloudServices D4ds v5 CS in "),
        (1, "of a meter that is not the region's own", "Virtual Machines Ddsv5 Series D4ds v5 in "),
        (1, "of low priority", "Virtual Machines Ddsv5 Series D4ds v5 Low Priority in "),
    ];
    check_left_out(&imported, &left_out);
}

#[test]
fn machines_of_google_are_sums_of_their_parts() {
    let left_out = check(PriceDocument::Gcp, "gcp.json", "gcp.csv");
    let expected = [
        (1, "a commitment's price, which belongs in agreements", "Commitment v1: T2D Cpu in "),
        // N2, whose memory has no price, and A2 with GPUs of 80 GB.
        (33, "a machine with a part without a price", "n2-standard-2 in europe-west3"),
        (2, "not a part of a known machine type", "Storage PD Capacity in "),
    ];
    check_left_out(&left_out, &expected);
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
fn a_byte_order_mark_is_not_part_of_a_document() {
    use PriceDocument::{Aws, Azure, Csv, Gcp};
    for (kind, name) in
        [(Aws, "aws.json"), (Azure, "azure.json"), (Gcp, "gcp.json"), (Csv, "on-premises.csv")]
    {
        let marked = [b"\xEF\xBB\xBF", document(name).as_slice()].concat();
        assert_eq!(imported(kind, &marked).unwrap().0, imported(kind, &document(name)).unwrap().0, "{name}");
    }
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
    assert!(other.contains("found in USD: the currency of the documents is CHF"), "{other}");
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
    assert!(error(Aws, "{\"terms\":{},\"products\":{}}").contains("the terms come before the products"));
}

/// Returns the list without the lines that contain all words of one of these texts.
fn without(list: &str, gone: &[&str]) -> String {
    let is_gone = |line: &&str| gone.iter().any(|words| words.split(' ').all(|word| line.contains(word)));
    list.lines().filter(|line| !is_gone(line)).map(|line| format!("{line}\n")).collect()
}

/// The kind of a document, the name of its file and of its list, and a text with its replacement.
type Changed = (PriceDocument, &'static str, [&'static str; 2]);

#[test]
fn an_entry_that_is_wrong_costs_itself_alone() {
    use PriceDocument::{Aws, Azure, Gcp};
    let unreadable = "a price or time that cannot be read";
    let cases: [(Changed, &str, &str, &[&str]); 6] = [
        (
            (Aws, "aws", ["5.4240000000", "5.42400000001234"]),
            unreadable,
            "m5.metal in eu-central-1: '5.42400000001234' is not a price with at most 12 decimals",
            &["m5.metal"],
        ),
        ((Aws, "aws", ["5.4240000000", "NaN"]), unreadable, "m5.metal in eu-central-1: 'NaN'", &["m5.metal"]),
        (
            (Aws, "aws", ["m5.metal", "m5.large"]),
            "two prices from one instant on",
            "m5.large in eu-central-1",
            &["m5.metal", "m5.large,linux"],
        ),
        (
            (Azure, "azure", ["\"retailPrice\": 4.775", "\"retailPrice\": \"free\\u001b[2J\""]),
            unreadable,
            "Standard_NC24ads_A100_v4 in westeurope: 'free\u{fffd}[2J'",
            &["Standard_NC24ads"],
        ),
        (
            (Gcp, "gcp", ["34806000", "3480600000000"]),
            unreadable,
            "A2 Instance Core running in Netherlands: units or nanos",
            &[",a2-"],
        ),
        (
            (Gcp, "gcp", ["T2D AMD Custom Instance Core", "T2D AMD Instance Core"]),
            "a part with two prices",
            "T2D AMD Instance Core running in Netherlands in europe-west4",
            &[",t2d- ON_DEMAND"],
        ),
    ];
    for ((kind, name, [from, to]), reason, example, gone) in cases {
        let text = String::from_utf8(document(&format!("{name}.json"))).unwrap();
        assert!(text.contains(from), "{name} has no {from}");
        let (list, imported) = imported(kind, text.replace(from, to).as_bytes()).unwrap();
        let golden = String::from_utf8(document(&format!("{name}.csv"))).unwrap();
        assert_eq!(csv(&list), without(&golden, gone), "{name} with {to}");
        let left = &imported.skipped[reason];
        assert!(left.example.starts_with(example), "{}", left.example);
    }
}

#[test]
fn an_entry_of_another_form_costs_itself_alone() {
    use PriceDocument::{Aws, Azure, Gcp};
    let cases: [(Changed, &[&str]); 4] = [
        ((Aws, "aws", ["\"instanceType\": \"m5.metal\"", "\"instanceType\": null"]), &["m5.metal"]),
        ((Aws, "aws", ["\"5.4240000000\"", "[5.424]"]), &["m5.metal"]),
        ((Azure, "azure", ["\"retailPrice\": 4.775", "\"retailPrice\": null"]), &["Standard_NC24ads"]),
        ((Gcp, "gcp", ["34806000", "null"]), &[",a2-"]),
    ];
    for ((kind, name, [from, to]), gone) in cases {
        let text = String::from_utf8(document(&format!("{name}.json"))).unwrap();
        assert!(text.contains(from), "{name} has no {from}");
        let (list, imported) = imported(kind, text.replace(from, to).as_bytes()).unwrap();
        let golden = String::from_utf8(document(&format!("{name}.csv"))).unwrap();
        assert_eq!(csv(&list), without(&golden, gone), "{name} with {to}");
        let left = &imported.skipped["a price or time that cannot be read"];
        assert!(left.example.contains("invalid type"), "{}", left.example);
    }
}

#[test]
fn a_third_price_does_not_bring_back_two_that_contradict_each_other() {
    let text = String::from_utf8(document("aws.json")).unwrap();
    let mut importer = Importer::new("USD");
    for text in [text.clone(), text.replace("0.1150000000", "0.2"), text] {
        importer.read(PriceDocument::Aws, text.as_bytes()).unwrap();
    }
    let (list, imported) = importer.finish().unwrap();
    let golden = String::from_utf8(document("aws.csv")).unwrap();
    assert_eq!(csv(&list), without(&golden, &["m5.large,linux"]));
    assert_eq!(imported.skipped["two prices from one instant on"].count, 1);
}

/// Returns the lines of the list from a document in a currency.
fn lines(kind: PriceDocument, name: &str, currency: &str) -> Vec<String> {
    let mut importer = Importer::new(currency);
    importer.read(kind, document(name).as_slice()).unwrap();
    csv(&importer.finish().unwrap().0).lines().map(str::to_owned).collect()
}

#[test]
fn lists_have_the_prices_that_users_missed() {
    use PriceDocument::{Aws, Gcp};
    let has = |lines: &[String], line: &str| assert!(lines.iter().any(|found| found == line), "{line}");
    let has_none = |lines: &[String], beginning: &str| {
        assert!(!lines.iter().any(|found| found.starts_with(beginning)), "{beginning}");
    };

    // 4 vCPUs of 0.00999, 16 GiB of 0.00117 and a GPU of 0.224, whose SKU has the word spot in its middle.
    let spot = lines(Gcp, "gcp-spot-gpu.json", "USD");
    has(&spot, "gce,us-central1,g2-standard-4,linux,SPOT,USD,0.28268,2026-09-22T07:00:00Z");
    has(&spot, "gce,us-central1,g2-standard-4,linux,ON_DEMAND,USD,0.706824,2026-09-22T07:00:00Z");

    // Two SKUs of one part in us-central1 leave N2 out there; other regions keep it.
    let two = lines(Gcp, "gcp-two-skus.json", "USD");
    has(&two, "gce,europe-west3,e2-standard-4,linux,ON_DEMAND,USD,0.172668,2026-09-22T07:00:00Z");
    has(&two, "gce,us-east1,n2-standard-2,linux,ON_DEMAND,USD,0.097118,2026-09-22T07:00:00Z");
    has_none(&two, "gce,us-central1,n2-");

    // 864 GiB, not 8 for each vCPU; and there is no highcpu of this size.
    let large = lines(Gcp, "gcp-n2.json", "USD");
    has(&large, "gce,us-central1,n2-highmem-128,linux,ON_DEMAND,USD,7.706976,2026-09-22T07:00:00Z");
    has(&large, "gce,us-central1,n2-highmem-96,linux,ON_DEMAND,USD,6.288672,2026-09-22T07:00:00Z");
    has_none(&large, "gce,us-central1,n2-highcpu-128,");

    let dollars = lines(Gcp, "gcp-two-currencies.json", "USD");
    has(&dollars, "gce,us-central1,a2-highgpu-1g,linux,ON_DEMAND,USD,3.673385,2023-03-24T10:52:50.681000Z");
    has_none(&dollars, "gce,asia");
    let rupiah = lines(Gcp, "gcp-two-currencies.json", "IDR");
    has(&rupiah, "gce,asia-southeast1,t2d-standard-1,linux,ON_DEMAND,IDR,781.754996087,2026-09-22T07:00:00Z");

    let oregon = lines(Aws, "aws-oregon.json", "USD");
    has(&oregon, "aws,us-west-2,c5.large,linux,ON_DEMAND,USD,0.085,2026-11-01T00:00:00Z");
    has(&oregon, "aws,us-west-2,c5.large,windows,ON_DEMAND,USD,0.177,2026-11-01T00:00:00Z");
    has(&oregon, "aws,us-west-2,p4d.24xlarge,linux,ON_DEMAND,USD,32.7726,2026-11-01T00:00:00Z");
    has_none(&oregon, "aws,us-west-2,p5e");
    has_none(&oregon, "aws,us-west-2-lax");

    let china = String::from_utf8(document("aws-china.json")).unwrap();
    assert!(error(Aws, &china).contains("the currency of the documents is CNY"));
    let yuan = lines(Aws, "aws-china.json", "CNY");
    has(&yuan, "aws,cn-northwest-1,m5.large,linux,ON_DEMAND,CNY,0.644,2026-11-01T00:00:00Z");
}

/// Returns on-demand SKUs of us-central1 with their prices in billionths.
fn catalogue(skus: &[(&str, &str, u64)]) -> String {
    let sku = |(description, unit, nanos): &(&str, &str, u64)| {
        format!(
            r#"{{"description": "{description}", "serviceRegions": ["us-central1"],
            "category": {{"resourceFamily": "Compute", "usageType": "OnDemand"}},
            "pricingInfo": [{{"effectiveTime": "2026-09-22T07:00:00Z", "pricingExpression": {{
                "usageUnit": "{unit}", "tieredRates": [{{"unitPrice": {{
                    "currencyCode": "USD", "units": "0", "nanos": {nanos}}}}}]}}}}]}}"#
        )
    };
    format!("{{\"skus\": [{}]}}", skus.iter().map(sku).collect::<Vec<_>>().join(","))
}

fn hourly(skus: &[(&str, &str, u64)], instance_type: &str) -> Option<String> {
    let (list, _) = imported(PriceDocument::Gcp, catalogue(skus).as_bytes()).ok()?;
    let mut found = list.iter().filter(|(of, ..)| *of.instance_type == *instance_type);
    found.next().map(|(_, _, price)| price.to_string())
}

#[test]
fn machines_with_other_parts_are_sums_too() {
    // 12 x 0.031611 + 170 x 0.004237 + 3.92808 + 375 x 0.08 / 730, as Google publishes it for a2-ultragpu-1g.
    let a2 = [
        ("A2 Instance Core running in Americas", "h", 31_611_000),
        ("A2 Instance Ram running in Americas", "GiBy.h", 4_237_000),
        ("Nvidia Tesla A100 80GB GPU running in Americas", "h", 928_080_000),
        ("SSD backed Local Storage", "GiBy.mo", 80_000_000),
    ];
    // The catalogue above has no whole units: the GPU's price lacks its 3.
    assert_eq!(hourly(&a2, "a2-ultragpu-1g").as_deref(), Some("2.068797890411"));
    assert_eq!(hourly(&a2[..3], "a2-highgpu-1g"), None, "another GPU");

    // M2 costs M1 and a premium: 416 x (0.0348 + 0.0150) + 5888 x (0.0051 + 0.0022).
    let m2 = [
        ("Memory-optimized Instance Core running in Americas", "h", 34_800_000),
        ("Memory-optimized Instance Ram running in Americas", "GiBy.h", 5_100_000),
        (
            "Memory Optimized Upgrade Premium for Memory-optimized Instance Core running in Americas",
            "h",
            15_000_000,
        ),
        (
            "Memory Optimized Upgrade Premium for Memory-optimized Instance Ram running in Americas",
            "GiBy.h",
            2_200_000,
        ),
    ];
    assert_eq!(hourly(&m2, "m2-megamem-416").as_deref(), Some("63.6992"));
    assert_eq!(hourly(&m2, "m1-megamem-96").as_deref(), Some("10.65216"), "96 x 0.0348 + 1433.6 x 0.0051");
    assert_eq!(hourly(&m2[..2], "m2-megamem-416"), None);

    // A quarter of a vCPU: 0.25 x 0.021811 + 0.002923.
    let e2 = [
        ("E2 Instance Core running in Americas", "h", 21_811_000),
        ("E2 Instance Ram running in Americas", "GiBy.h", 2_923_000),
    ];
    assert_eq!(hourly(&e2, "e2-micro").as_deref(), Some("0.00837575"));

    // Other spellings of one part, and machines with similar names.
    let c2 = [
        ("Compute optimized Instance Core running in Madrid", "h", 40_000_000),
        ("Compute optimized Ram running in Madrid", "GiBy.h", 5_000_000),
        ("C2D AMD Instance Core running in Madrid", "h", 1_000_000),
        ("Nvidia L4 GPU attached to DWS Defined Duration VMs running in Madrid", "h", 1_000_000),
    ];
    assert_eq!(hourly(&c2, "c2-standard-4").as_deref(), Some("0.24"));
    assert_eq!(hourly(&c2, "c2d-standard-4"), None);
}

#[test]
fn two_spellings_of_a_provider_are_one_line() {
    let head = "provider,region,instance_type,os,capacity_type,currency,hourly,valid_from\n";
    let of = |provider: &str, region: &str, price: &str| {
        format!("{provider},{region},n2-standard-2,linux,ON_DEMAND,USD,{price},2026-01-01\n")
    };
    let read =
        |lines: &[String]| imported(PriceDocument::Csv, format!("{head}{}", lines.concat()).as_bytes());
    let one = read(&[of("gce", "us-central1", "1"), of("gcp", "US-Central1", "1")]).unwrap().0;
    assert_eq!(one.len(), 1);
    assert!(csv(&one).contains("gce,us-central1,n2-standard-2"), "as the first one spells it");
    let two = read(&[of("gce", "us-central1", "1"), of("Google", "us-central1", "2")]).unwrap_err();
    assert!(two.contains("line 3: n2-standard-2 in us-central1 has two prices"), "{two}");
}

#[test]
fn a_node_finds_its_price_under_any_spelling() {
    let head = "provider,region,instance_type,os,capacity_type,currency,hourly,valid_from\n";
    let lines = "gce,us-central1,n2-standard-2,linux,ON_DEMAND,USD,1,2026-01-01\n\
                 aws,us-west-2,m5.large,linux,ON_DEMAND,USD,2,2026-01-01\n\
                 aws,us-west-2-lax-1,m5.large,linux,ON_DEMAND,USD,3,2026-01-01\n";
    let (list, _) = imported(PriceDocument::Csv, format!("{head}{lines}").as_bytes()).unwrap();
    let book = PriceBook { list, rates: None };
    let price = |[provider, region, zone, instance_type]: [&str; 4]| {
        let [provider, region, zone, instance_type, os] =
            [provider, region, zone, instance_type, "linux"].map(Text::from);
        let node = PricedNode {
            provider: &provider,
            region: &region,
            zone: Some(&zone),
            instance_type: &instance_type,
            os: &os,
            capacity_type: CapacityType::OnDemand,
            capacity: &Quantities::new(),
            gpu_millis: 0,
        };
        book.price(&node, parse_instant("2026-11-01T00:00:00Z").unwrap()).map(|price| price.to_string())
    };
    for (node, expected) in [
        (["gcp", "us-central1", "us-central1-a", "n2-standard-2"], Some("1")),
        (["Google Cloud", "US-Central1", "us-central1-a", "n2-standard-2"], Some("1")),
        (["gcp", "us-east1", "us-east1-b", "n2-standard-2"], None),
        (["aws", "us-west-2", "us-west-2a", "m5.large"], Some("2")),
        (["aws", "us-west-2", "us-west-2-lax-1a", "m5.large"], Some("3")),
        (["aws", "us-west-2", "us-west-2-phx-2a", "m5.large"], None),
        (["aws", "us-west-2", "us-west-2-wl1-las-wlz-1", "m5.large"], None),
    ] {
        assert_eq!(price(node).as_deref(), expected, "{node:?}");
    }
}
