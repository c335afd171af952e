//! The table of Google's machine types, from `machines.txt`. The head of the file explains its format.

/// The table.
const TABLE: &str = include_str!("machines.txt");

/// A machine type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineType {
    /// Name of the type, such as `n2-standard-4`.
    pub name: &'static str,
    /// The parts, each with its possible descriptions, and their amounts in hundredths.
    parts: Vec<(Vec<&'static str>, u32)>,
}

impl MachineType {
    /// Returns the description prefixes of each part. The first prefix with a price counts.
    pub fn parts(&self) -> impl Iterator<Item = &[&'static str]> {
        self.parts.iter().map(|(names, _)| names.as_slice())
    }

    /// Returns the amounts of the parts, in hundredths of a vCPU, a GiB or a GPU.
    pub fn hundredths(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().map(|(_, hundredths)| *hundredths)
    }
}

/// Reads the table.
pub fn read() -> Vec<MachineType> {
    let mut parts: Vec<Vec<&'static str>> = Vec::new();
    let mut machines = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        if let Some(names) = line.strip_prefix("parts: ") {
            parts = names.split("; ").map(|names| names.split(" | ").collect()).collect();
        } else {
            machines.extend(machine(line, &parts));
        }
    }
    machines
}

/// Parses a line of the table: a name, and an amount for each part.
fn machine(line: &'static str, parts: &[Vec<&'static str>]) -> Option<MachineType> {
    let mut words = line.split(' ');
    let name = words.next().filter(|name| !name.is_empty())?;
    let amounts: Vec<u32> = words.map(hundredths).collect::<Option<_>>()?;
    (amounts.len() == parts.len())
        .then(|| MachineType { name, parts: parts.iter().cloned().zip(amounts).collect() })
}

/// Parses a number with at most two decimals, in hundredths.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = match fraction.len() {
        0 => 0,
        1 => fraction.parse::<u32>().ok()? * 10,
        2 => fraction.parse().ok()?,
        _ => return None,
    };
    whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{TABLE, hundredths, read};

    #[test]
    fn every_line_of_the_table_is_a_machine_of_its_own() {
        let machines = read();
        let is_machine =
            |line: &&str| !line.is_empty() && !line.starts_with('#') && !line.starts_with("parts: ");
        let lines: Vec<&str> = TABLE.lines().filter(is_machine).collect();
        let names: BTreeSet<&str> = machines.iter().map(|machine| machine.name).collect();
        assert_eq!(names.len(), lines.len(), "a line that is not a machine, or a machine of two lines");
        for line in &lines {
            assert!(names.contains(line.split(' ').next().unwrap()), "{line}");
        }
        for machine in &machines {
            assert!(machine.hundredths().all(|amount| amount > 0), "{}", machine.name);
        }
    }

    #[test]
    fn names_of_standard_sizes_say_their_vcpus() {
        for machine in read().iter().filter(|machine| machine.name.contains("-standard-")) {
            let vcpus: u32 = machine.name.rsplit('-').next().unwrap().parse().unwrap();
            assert_eq!(machine.hundredths().next(), Some(vcpus * 100), "{}", machine.name);
        }
    }

    #[test]
    fn amounts_have_at_most_two_places() {
        for (text, expected) in [
            ("4", Some(400)),
            ("0.25", Some(25)),
            ("1433.6", Some(143_360)),
            ("0", Some(0)),
            ("1.234", None),
            ("", None),
            ("-1", None),
            ("1,5", None),
            ("99999999", None),
        ] {
            assert_eq!(hundredths(text), expected, "{text}");
        }
    }
}
