//! The canonical spelling of each name, by which the rules compare it (RULES.md, section 12). It is computed
//! with tables of spellings.

use prorata_schemas::Text;
use prorata_schemas::rows::CostRow;

/// Spellings and their meanings, in lower case and without separators.
const PROVIDERS: [(&str, &str); 21] = [
    ("aws", "aws"),
    ("amazon", "aws"),
    ("amazonec2", "aws"),
    ("amazonwebservices", "aws"),
    ("awscn", "aws"),
    ("awsusgov", "aws"),
    ("ec2", "aws"),
    ("eks", "aws"),
    ("gcp", "gcp"),
    ("gce", "gcp"),
    ("gke", "gcp"),
    ("google", "gcp"),
    ("googlecloud", "gcp"),
    ("googlecloudplatform", "gcp"),
    ("googlecomputeengine", "gcp"),
    ("azure", "azure"),
    ("azurechinacloud", "azure"),
    ("azureusgovernment", "azure"),
    ("microsoft", "azure"),
    ("microsoftazure", "azure"),
    ("aks", "azure"),
];

/// Words of GPU names that do not count.
const SILENT: &str = " nvidia tesla amd instinct gpu pcie sxm sxm2 sxm3 sxm4 sxm5 oam hbm2 hbm2e hbm3 hbm3e ";

/// Models of GPUs. If a model has only one memory size, the size follows after a colon and does not count.
const MODELS: &str = " a10:24gb a100 a10g:24gb a16 a2 a30:24gb a40:48gb a800 b100 b200 b300 gb200 gb300 \
                      gh200 h100:80gb h20 h200:141gb h800 k80 l2:24gb l20:48gb l4:24gb l40:48gb l40s:48gb \
                      m60 mi100 mi210 mi250x mi300x mi325x mi355x p100 p4 p40 t4:16gb t4g v100 ";

/// Returns the canonical name of a provider.
pub fn provider(name: &str) -> String {
    let plain = plain(name);
    let key: String = plain.chars().filter(|c| !c.is_whitespace() && *c != '-' && *c != '_').collect();
    let found = PROVIDERS.iter().find(|(spelling, _)| *spelling == key);
    found.map_or(plain, |(_, canonical)| (*canonical).to_owned())
}

/// Returns the canonical name of a region or zone.
pub fn place(name: &str) -> String {
    plain(name).split_whitespace().collect()
}

/// Returns the canonical name of an instance family.
pub fn family(name: &str) -> String {
    plain(name)
}

/// Returns the canonical name of a GPU model if its words are one model and at most one variant and one
/// memory. Otherwise, returns the plain name.
pub fn gpu_model(name: &str) -> String {
    let plain = plain(name);
    let words = plain.replace(['-', '_'], " ");
    let words: Vec<&str> =
        words.split(' ').filter(|word| !word.is_empty() && !SILENT.contains(&format!(" {word} "))).collect();
    let of = |is: fn(&str) -> bool| words.iter().copied().filter(|word| is(word)).collect::<Vec<&str>>();
    let (models, variants, memories) = (of(is_model), of(is_variant), of(is_memory));
    let all_known = models.len() + variants.len() + memories.len() == words.len();
    if !all_known || models.len() != 1 || variants.len() > 1 || memories.len() > 1 {
        return plain;
    }
    let says_nothing = |memory: &str| MODELS.contains(&format!(" {}:{memory} ", models[0]));
    let memories = memories.into_iter().filter(|memory| !says_nothing(memory));
    models.iter().copied().chain(variants).chain(memories).collect::<Vec<_>>().join("-")
}

/// Returns the canonical name of a GPU model; `None` if there is no name.
pub fn optional_gpu_model(name: Option<&Text>) -> Option<String> {
    name.map(|name| gpu_model(name))
}

/// Sets the provider of a row to its canonical name.
pub fn show_provider(row: &mut CostRow) {
    row.provider = provider(&row.provider).as_str().into();
}

fn plain(name: &str) -> String {
    name.trim().to_ascii_lowercase()
}

fn is_model(word: &str) -> bool {
    MODELS.contains(&format!(" {word} ")) || MODELS.contains(&format!(" {word}:"))
}

fn is_variant(word: &str) -> bool {
    word == "nvl" || word == "mega"
}

fn is_memory(word: &str) -> bool {
    let size: Vec<char> = word.trim_end_matches("gb").chars().collect();
    let digits = size.iter().all(char::is_ascii_digit) && size.first().is_some_and(|first| *first != '0');
    word == format!("{}gb", size.iter().collect::<String>()) && digits
}
