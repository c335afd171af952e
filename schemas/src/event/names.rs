//! The canonical form of names that producers spell in several ways (RULES.md, section 12).
//!
//! Events keep the spelling of their producer; rules and price lists compare canonical forms. A name that is
//! already canonical is borrowed, so a comparison allocates nothing.

use std::borrow::Cow;

use crate::Text;

/// A function of this module that returns a canonical name.
pub type Canonical = for<'n> fn(&'n str) -> Cow<'n, str>;

/// Canonical names of providers, each with the spellings that producers use. The spellings are listed without
/// blanks, dashes and underscores.
const PROVIDERS: &[(&str, &[&str])] = &[
    ("aws", &["aws", "amazon", "amazonec2", "amazonwebservices", "awscn", "awsusgov", "ec2", "eks"]),
    ("gcp", &["gcp", "gce", "gke", "google", "googlecloud", "googlecloudplatform", "googlecomputeengine"]),
    ("azure", &["azure", "aks", "azurechinacloud", "azureusgovernment", "microsoft", "microsoftazure"]),
];

/// Words of GPU names that do not distinguish models: makers, and forms of mounting.
const PLAIN: &[&str] = &[
    "nvidia", "tesla", "amd", "instinct", "gpu", "pcie", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "oam",
    "hbm2", "hbm2e", "hbm3", "hbm3e",
];

/// Words that turn the model next to them into another model.
const VARIANTS: &[&str] = &["nvl", "mega"];

/// Models of data-centre GPUs. A model that comes in only one memory size is listed with this size. Its
/// variants may have other sizes.
const MODELS: &[(&str, Option<&str>)] = &[
    ("a10", Some("24gb")),
    ("a100", None),
    ("a10g", Some("24gb")),
    ("a16", None),
    ("a2", None),
    ("a30", Some("24gb")),
    ("a40", Some("48gb")),
    ("a800", None),
    ("b100", None),
    ("b200", None),
    ("b300", None),
    ("gb200", None),
    ("gb300", None),
    ("gh200", None),
    ("h100", Some("80gb")),
    ("h20", None),
    ("h200", Some("141gb")),
    ("h800", None),
    ("k80", None),
    ("l2", Some("24gb")),
    ("l20", Some("48gb")),
    ("l4", Some("24gb")),
    ("l40", Some("48gb")),
    ("l40s", Some("48gb")),
    ("m60", None),
    ("mi100", None),
    ("mi210", None),
    ("mi250x", None),
    ("mi300x", None),
    ("mi325x", None),
    ("mi355x", None),
    ("p100", None),
    ("p4", None),
    ("p40", None),
    ("t4", Some("16gb")),
    ("t4g", None),
    ("v100", None),
];

/// Returns a provider's canonical name: `aws`, `gcp`, `azure`, or the name in lower case without blanks
/// around it.
pub fn provider(name: &str) -> Cow<'_, str> {
    let lower = lower(name);
    let known = |spelling: &str| PROVIDERS.iter().find(|(_, spellings)| spellings.contains(&spelling));
    let is_separator = |c: char| c.is_whitespace() || matches!(c, '-' | '_');
    let found = match known(&lower) {
        None if lower.contains(is_separator) => known(&lower.replace(is_separator, "")),
        found => found,
    };
    found.map_or(lower, |(canonical, _)| Cow::Borrowed(*canonical))
}

/// Returns a region's or zone's canonical name: in lower case, without any blank (`West Europe` is
/// `westeurope`).
pub fn place(name: &str) -> Cow<'_, str> {
    match lower(name) {
        lower if lower.contains(char::is_whitespace) => lower.replace(char::is_whitespace, "").into(),
        lower => lower,
    }
}

/// Returns an instance family's canonical name: in lower case, without blanks around it.
pub fn family(name: &str) -> Cow<'_, str> {
    lower(name)
}

/// Returns a GPU model's canonical name: the model, its variant and its memory, such as `a100-80gb` for
/// `NVIDIA-A100-SXM4-80GB`. A name with an unknown word, such as a slice of a GPU, is only trimmed and put in
/// lower case.
pub fn gpu_model(name: &str) -> Cow<'_, str> {
    let lower = lower(name);
    match known_model(&lower) {
        Some(canonical) if canonical != *lower => canonical.into(),
        _ => lower,
    }
}

/// Returns the name itself if it is canonical, and its canonical form otherwise.
pub fn shared(name: &Text, canonical: Canonical) -> Text {
    match canonical(name) {
        same if *same == **name => name.clone(),
        other => other.into(),
    }
}

/// Returns whether two names have the same canonical form.
pub fn same(one: &str, other: &str, canonical: Canonical) -> bool {
    one == other || canonical(one) == canonical(other)
}

/// Returns the model, variant and memory of a name in lower case. `None` if the name has other words, no
/// model or two models, or is already a model's name.
fn known_model(name: &str) -> Option<String> {
    if MODELS.iter().any(|(model, _)| *model == name) {
        return None;
    }
    let (mut model, mut variant, mut memory) = (None, None, None);
    for word in name.split([' ', '-', '_']).filter(|word| !word.is_empty() && !PLAIN.contains(word)) {
        let known = MODELS.iter().find(|(model, _)| *model == word);
        let is_memory = word.strip_suffix("gb").is_some_and(|size| {
            !size.is_empty() && !size.starts_with('0') && size.bytes().all(|byte| byte.is_ascii_digit())
        });
        let before = match known {
            Some(known) => model.replace(*known).map(|(model, _)| model),
            None if is_memory => memory.replace(word),
            None if VARIANTS.contains(&word) => variant.replace(word),
            None => return None,
        };
        if before.is_some() {
            return None;
        }
    }
    let (model, only_memory) = model?;
    let memory = memory.filter(|memory| Some(*memory) != only_memory);
    Some([Some(model), variant, memory].into_iter().flatten().collect::<Vec<_>>().join("-"))
}

/// Returns the name in lower case, without blanks around it.
fn lower(name: &str) -> Cow<'_, str> {
    let name = name.trim();
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        name.to_ascii_lowercase().into()
    } else {
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that names on one line have the same canonical form, and names on different lines do not.
    fn check(canonical: Canonical, lines: &[&[&str]]) {
        for (index, names) in lines.iter().enumerate() {
            for name in *names {
                assert_eq!(canonical(name), names[0], "{name}");
                assert_eq!(*shared(&Text::from(*name), canonical), *names[0], "{name}");
                assert!(same(name, names[0], canonical), "{name}");
            }
            for other in lines.iter().skip(index + 1) {
                assert!(!same(names[0], other[0], canonical), "{} and {}", names[0], other[0]);
            }
        }
    }

    #[test]
    fn a_provider_has_one_name() {
        check(
            provider,
            &[
                &["aws", "AWS", " aws ", "Amazon Web Services", "Amazon EC2", "eks", "aws-cn", "AWS-US-Gov"],
                &["gcp", "gce", "GCE", "gke", "Google", "google-cloud", "Google Compute Engine"],
                &["azure", "Azure", "Microsoft", "microsoft_azure", "aks", "AzureChinaCloud"],
                &["on-premises", " On-Premises"],
                &["googol", "Googol"],
                &["kind"],
                &["", " "],
            ],
        );
    }

    #[test]
    fn places_and_families_differ_by_neither_case_nor_blanks() {
        check(
            place,
            &[
                &["us-central1", "US-Central1", " us-central1"],
                &["westeurope", "West Europe", "WestEurope"],
                &["us-central1-a", "us-central1-A"],
                &["uscentral1"],
            ],
        );
        check(
            family,
            &[&["ncads_a100_v4", "NCads_A100_v4 "], &["m5", "M5"], &["m5a"], &["m 5", "M 5"], &["nc_v4"]],
        );
    }

    #[test]
    fn a_gpu_model_has_one_name() {
        check(
            gpu_model,
            &[
                &["a100", "A100", "nvidia-tesla-a100", "NVIDIA A100", "a100-sxm4"],
                &["a100-80gb", "NVIDIA-A100-SXM4-80GB", "nvidia-a100-80gb", "NVIDIA A100 80GB PCIe"],
                &["a100-40gb", "NVIDIA-A100-SXM4-40GB", "A100-40GB"],
                &["h100", "H100", "NVIDIA-H100-80GB-HBM3", "nvidia-h100-80gb", "h100_80gb"],
                &["h100-mega", "nvidia-h100-mega-80gb"],
                &["h100-nvl", "NVIDIA-H100-NVL", "NVIDIA H100 NVL"],
                &["h100-96gb"],
                &["h200", "NVIDIA-H200", "nvidia-h200-141gb"],
                &["l4", "NVIDIA-L4", "nvidia-l4", "L4 24GB"],
                &["l20", "NVIDIA-L20", "NVIDIA L20 48GB"],
                &["l40s", "NVIDIA L40S"],
                &["v100-16gb", "Tesla-V100-SXM2-16GB"],
                &["mi300x", "AMD_Instinct_MI300X_OAM"],
                &["a10g", "NVIDIA-A10G"],
            ],
        );
    }

    #[test]
    fn slices_and_unknown_names_are_not_merged() {
        check(
            gpu_model,
            &[
                &["a100-40gb"],
                &["nvidia-a100-sxm4-40gb-mig-1g.5gb", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb "],
                &["nvidia-a100-sxm4-40gb-mig-2g.10gb", "NVIDIA-A100-SXM4-40GB-MIG-2g.10gb"],
                &["nvidia-l4-shared", "NVIDIA-L4-SHARED"],
                &["l4"],
                &["l4-48gb"],
                &["p16en", "P16EN"],
                &["nvidia"],
                &["a100-h100"],
                &["a100-40gb-80gb"],
                &["a100-0gb"],
                &["gb"],
                &[""],
            ],
        );
    }

    #[test]
    fn a_canonical_name_is_its_own_and_is_not_copied() {
        let names: [(Canonical, &str); 4] =
            [(provider, "aws"), (place, "us-east-1"), (family, "p5"), (gpu_model, "a100-80gb")];
        for (canonical, name) in names {
            assert!(matches!(canonical(name), Cow::Borrowed("aws" | "us-east-1" | "p5" | "a100-80gb")));
            let text = Text::from(name);
            assert!(Text::ptr_eq(&shared(&text, canonical), &text));
        }
    }
}
