//! Fields of a line: times, quantities, decimals and lists.

use std::collections::BTreeMap;
use std::str::FromStr;

use prorata_schemas::Text;
use prorata_schemas::event::{Labels, Quantities};
use prorata_schemas::money::DecimalError;
use prorata_schemas::quantity::{GPU_MEMORY, NVIDIA_GPU, Quantity, TFLOPS, VRAM};
use prorata_schemas::time::{HOUR_MICROS, Timestamp};

/// The hour from which times in texts count: 2026-01-05T00.
pub const BASE_HOUR: i64 = 490_992;

const BASE: i64 = BASE_HOUR * HOUR_MICROS;

/// Reads a time since the base hour, such as `10:30`, `10:30:15` or `10:30:15.000001`.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    let mut parts = text.splitn(3, ':');
    let (hours, minutes) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let number =
        |part: &str| part.parse::<i64>().map_err(|_| format!("'{text}' is not a time such as 10:30"));
    let micros = parts.next().map_or(Ok(0), |seconds| scaled(seconds, 1_000_000))?;
    Ok(Timestamp(BASE + number(hours)? * HOUR_MICROS + number(minutes)? * 60_000_000 + micros as i64))
}

/// Returns the shortest text of an instant.
pub fn print_time(at: Timestamp) -> String {
    let since = at.0 - BASE;
    let (hour, within) = (since.div_euclid(HOUR_MICROS), since.rem_euclid(HOUR_MICROS));
    let (minute, second, micros) = (within / 60_000_000, within / 1_000_000 % 60, within % 1_000_000);
    match (second, micros) {
        (0, 0) => format!("{hour:02}:{minute:02}"),
        (_, 0) => format!("{hour:02}:{minute:02}:{second:02}"),
        _ => format!("{hour:02}:{minute:02}:{second:02}.{micros:06}"),
    }
}

/// Returns the microseconds of `90s`, `20m` or `1.5h`; `None` if the text has another form.
pub fn parse_duration(text: &str) -> Option<i64> {
    let unit = match text.chars().last()? {
        's' => 1_000_000,
        'm' => 60_000_000,
        'h' => HOUR_MICROS,
        _ => return None,
    };
    scaled(text.get(..text.len() - 1)?, unit as u128).ok().map(|micros| micros as i64)
}

/// Multiplies a decimal text by `unit`, rounded up to a whole number.
fn scaled(text: &str, unit: u128) -> Result<u128, String> {
    let error = || format!("'{text}' is not a number");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| error())?;
    let places = 10_u128.checked_pow(fraction.len() as u32).ok_or_else(error)?;
    Ok(digits.checked_mul(unit).ok_or_else(error)?.div_ceil(places))
}

/// Reads a quantity such as `500m`, `16` or `100Gi` of a resource.
pub fn parse_quantity(resource: &str, text: &str) -> Result<Quantity, String> {
    Quantity::parse(resource, text).map_err(|error| error.to_string())
}

/// Short names of resources.
const SHORT: [(&str, &str); 5] = [
    ("gpu", NVIDIA_GPU),
    ("gpu-memory", GPU_MEMORY),
    ("tflops", TFLOPS),
    ("vram", VRAM),
    ("disk", "ephemeral-storage"),
];

/// Returns the full name of a resource that is given by a short name, `mig-<profile>` or its full name.
pub fn resource(name: &str) -> String {
    match SHORT.iter().find(|(short, _)| *short == name) {
        Some((_, full)) => (*full).to_owned(),
        None if name.starts_with("mig-") => format!("nvidia.com/{name}"),
        None => name.to_owned(),
    }
}

/// Returns the short name of a resource, or its full name if it has none.
pub fn short(resource: &str) -> &str {
    let named = SHORT.iter().find(|(_, full)| *full == resource).map(|(short, _)| *short);
    let mig = || resource.strip_prefix("nvidia.com/").filter(|name| name.starts_with("mig-"));
    named.or_else(mig).unwrap_or(resource)
}

/// The fields of one line that are still unread.
pub struct LineFields {
    values: BTreeMap<String, String>,
}

impl LineFields {
    /// Reads `key=value` words. A word without `=` is a flag.
    pub fn new<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        let pair = |word: &str| {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            (key.to_owned(), value.to_owned())
        };
        Self { values: words.map(pair).collect() }
    }

    /// Takes a text, if given.
    pub fn text<T: From<String>>(&mut self, key: &str) -> Option<T> {
        self.values.remove(key).map(T::from)
    }

    /// Takes a text, or returns its default.
    pub fn text_or<T: From<String>>(&mut self, key: &str, default: &str) -> T {
        self.text(key).unwrap_or_else(|| default.to_owned().into())
    }

    /// Takes a flag. Returns whether the flag is given.
    pub fn flag(&mut self, key: &str) -> bool {
        self.values.remove(key).is_some()
    }

    /// Takes a time, if given.
    pub fn time(&mut self, key: &str) -> Result<Option<Timestamp>, String> {
        self.values.remove(key).map(|text| parse_time(&text)).transpose()
    }

    /// Takes a decimal, if given.
    pub fn decimal<D: FromStr<Err = DecimalError>>(&mut self, key: &str) -> Result<Option<D>, String> {
        self.values.remove(key).map(|text| decimal(&text)).transpose()
    }

    /// Takes a whole number, or returns `default` if it is missing.
    pub fn number(&mut self, key: &str, default: i32) -> Result<i32, String> {
        match self.values.remove(key) {
            Some(text) => text.parse().map_err(|_| format!("'{text}' is not a whole number")),
            None => Ok(default),
        }
    }

    /// Takes texts between commas.
    pub fn list(&mut self, key: &str) -> Vec<Text> {
        let text = self.values.remove(key).unwrap_or_default();
        text.split(',').filter(|part| !part.is_empty()).map(Text::from).collect()
    }

    /// Takes a number of GPUs, if given.
    pub fn gpus(&mut self, key: &str) -> Result<Option<Quantity>, String> {
        self.values.remove(key).map(|text| parse_quantity(NVIDIA_GPU, &text)).transpose()
    }

    /// Takes all quantities whose key begins with the prefix; `None` if there are none.
    pub fn quantities(&mut self, prefix: &str) -> Result<Option<Quantities>, String> {
        let keys: Vec<String> = self.values.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        let mut quantities = Quantities::new();
        for key in &keys {
            let resource = resource(key.strip_prefix(prefix).unwrap_or(key));
            let quantity = parse_quantity(&resource, &self.values.remove(key).unwrap_or_default())?;
            quantities.insert(resource.into(), quantity);
        }
        Ok((!keys.is_empty()).then_some(quantities))
    }

    /// Takes all labels whose key begins with the prefix.
    pub fn labels(&mut self, prefix: &str) -> Labels {
        let keys: Vec<String> = self.values.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        let mut labels = Labels::new();
        for key in keys {
            let value = self.values.remove(&key).unwrap_or_default();
            labels.insert(key.strip_prefix(prefix).unwrap_or(&key).into(), value.into());
        }
        labels
    }
}

/// Reads a decimal.
pub fn decimal<D: FromStr<Err = DecimalError>>(text: &str) -> Result<D, String> {
    text.parse().map_err(|error: DecimalError| error.to_string())
}
