//! An importer that builds a file of agreements from providers' lists of commitments.
//!
//! A document is a JSON list, an object with lists, or the CSV export of Azure's portal. The fields of an
//! element determine its kind. A value that a document does not contain is requested from the user, and never
//! assumed.

mod aws;
mod azure;
mod bounded;
mod google;
mod listing;
mod plans;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};

use prorata_schemas::Text;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::time::Timestamp;
use serde_json::Value;

use crate::describe::node::family;
use crate::instant::{parse_date, parse_instant};
use crate::prices::Imported;

/// Reason for a value that does not parse.
const UNREADABLE: &str = "a value that cannot be read; correct it in the document";
/// Reason for an empty field.
const EMPTY: &str = "an empty field; fill it in, or add the entry by hand";
/// Reason for an entry without capacity.
const NOTHING: &str = "without vCPU, memory and GPU; fill in its resources, or the sizes of its --machine";
/// Reason for an entry whose provider says that it is not in force.
const NOT_ACTIVE: &str = "not active";
/// Reason for an entry without a cost.
const NO_COST: &str = "without a cost; give --hourly-cost ID=AMOUNT";
/// Reason for an entry of a machine that was not described.
const NO_MACHINE: &str = "a machine of unknown size; give --machine TYPE=VCPU,GIB[,GPUS,MODEL]";
/// Reason for an id that occurs again.
const TWICE: &str = "an id that an earlier entry has; add the entry by hand if it is another commitment";
/// Reason for a cost that no commitment uses.
const UNKNOWN_COST: &str = "--hourly-cost without an imported commitment of this id; correct the id";
/// Reason for a machine that no commitment uses.
const UNUSED_MACHINE: &str = "--machine without a commitment of this type; correct the type";
/// Reason for a document that ends early.
const DAMAGED: &str = "the rest of a document that is damaged; fetch it again";

/// The size of a machine type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSize {
    /// Number of vCPUs.
    pub vcpu: u32,
    /// Memory in GiB.
    pub memory_gib: UnitPrice,
    /// Number of GPUs.
    pub gpu: u32,
    /// Model of the GPUs. `None` if there are no GPUs.
    pub gpu_model: Option<Text>,
}

/// Builds a file of agreements from documents of commitments.
#[derive(Debug, Default)]
pub struct AgreementsImporter {
    /// Currency of the commitments to import.
    pub currency: String,
    /// Region of reserved instances whose document does not name a region.
    pub region: Option<String>,
    /// Costs of whole commitments per hour, by id.
    pub hourly_costs: BTreeMap<String, UnitPrice>,
    /// Sizes of machine types, by name.
    pub machines: BTreeMap<String, MachineSize>,
    /// Names of the machine types that occur in documents.
    used_machines: BTreeSet<String>,
    /// Lines of YAML by id.
    entries: BTreeMap<String, String>,
    /// Savings plans, and the discounts of their documents.
    plans: plans::FoundPlans,
    imported: Imported,
}

/// A commitment of a document.
struct FoundCommitment<'d> {
    id: &'d str,
    from: &'d str,
    to: &'d str,
    provider: &'static str,
    kind: &'static str,
    region: &'d str,
    family: &'d str,
    /// Capacity in units of 10^-12.
    vcpu: i128,
    /// Memory in units of 10^-12 GiB.
    memory_gib: i128,
    gpu: i128,
    gpu_model: Option<&'d str>,
    hourly_cost: Option<UnitPrice>,
}

/// Machines of one type that a document reserves.
struct ReservedMachines<'d> {
    provider: &'static str,
    id: &'d str,
    machine: &'d str,
    count: &'d str,
    region: &'d str,
    from: &'d str,
    to: &'d str,
    hourly_cost: Option<UnitPrice>,
}

/// The number one, in units of 10^-12.
const ONE: i128 = 1_000_000_000_000;

impl AgreementsImporter {
    /// Reads a document once. If a document ends early, everything before its end is kept.
    pub fn read(&mut self, name: &str, from: impl Read) {
        let mut from = BufReader::new(from);
        // Windows marks UTF-8 with these bytes. An error recurs when the document is read.
        if from.fill_buf().is_ok_and(|start| start.starts_with(b"\xEF\xBB\xBF")) {
            from.consume(3);
        }
        let is_json = |start: &[u8]| {
            let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
            first.is_none_or(|byte| b"[{".contains(byte))
        };
        if from.fill_buf().map_or(true, is_json) {
            listing::read(self, name, from);
        } else {
            azure::read_export(self, name, from);
        }
    }

    /// Returns the file as YAML, the number of its entries, and the elements that were left out. Costs and
    /// machines that no entry needed are among them.
    pub fn finish(mut self, organization: &str) -> (String, usize, Imported) {
        plans::finish(&mut self);
        for id in self.hourly_costs.keys().filter(|id| !self.entries.contains_key(*id)) {
            self.imported.skip(UNKNOWN_COST, || id.clone());
        }
        for name in self.machines.keys().filter(|name| !self.used_machines.contains(*name)) {
            self.imported.skip(UNUSED_MACHINE, || name.clone());
        }
        let (organization, currency) = (quoted(organization), quoted(&self.currency));
        let mut yaml = format!("organization_id: {organization}\ncurrency: {currency}\n");
        if !self.entries.is_empty() {
            yaml += "commitments:\n";
        }
        yaml.extend(self.entries.values().map(String::as_str));
        (yaml, self.entries.len(), self.imported)
    }

    fn skip(&mut self, reason: &'static str, example: impl FnOnce() -> String) {
        self.imported.skip(reason, example);
    }

    /// Adds reserved machines of one type.
    fn reserve(&mut self, reserved: &ReservedMachines<'_>) {
        let (id, of) = (reserved.id, reserved.machine);
        let Some(machine) = self.machines.get(of).cloned() else {
            return self.skip(NO_MACHINE, || format!("{id}: type '{of}'"));
        };
        self.used_machines.insert(of.to_owned());
        let Some(count) = whole(reserved.count).filter(|count| *count > 0) else {
            return self.skip(UNREADABLE, || format!("{id}: number of machines '{}'", reserved.count));
        };
        self.add(&FoundCommitment {
            id,
            from: reserved.from,
            to: reserved.to,
            provider: reserved.provider,
            kind: "RESERVED_INSTANCE",
            region: reserved.region,
            // The family that the collector gives to a node of this type.
            family: &family(reserved.provider, of),
            vcpu: i128::from(machine.vcpu) * ONE * count,
            memory_gib: machine.memory_gib.atoms().saturating_mul(count),
            gpu: i128::from(machine.gpu) * count,
            gpu_model: machine.gpu_model.as_deref(),
            hourly_cost: reserved.hourly_cost,
        });
    }

    fn add(&mut self, found: &FoundCommitment<'_>) {
        let id = found.id;
        for (field, value) in [("id", id), ("region", found.region), ("start", found.from), ("end", found.to)]
        {
            if value.is_empty() {
                return self.skip(EMPTY, || format!("'{id}': {field}"));
            }
        }
        if (found.vcpu, found.memory_gib, found.gpu) == (0, 0, 0) {
            return self.skip(NOTHING, || id.to_owned());
        }
        let (Some(from), Some(to)) = (instant(found.from), instant(found.to)) else {
            let times = || format!("{id}: '{}' or '{}' is not a time", found.from, found.to);
            return self.skip(UNREADABLE, times);
        };
        if to <= from {
            return self.skip(UNREADABLE, || format!("{id}: ends at {to}, which is not after {from}"));
        }
        if self.entries.contains_key(id) {
            return self.skip(TWICE, || id.to_owned());
        }
        let Some(cost) = self.hourly_costs.get(id).copied().or(found.hourly_cost) else {
            return self.skip(NO_COST, || id.to_owned());
        };
        let amounts = (UnitPrice::from_atoms(found.vcpu), UnitPrice::from_atoms(found.memory_gib));
        let ((Some(vcpu), Some(memory)), Ok(gpu)) = (amounts, i32::try_from(found.gpu)) else {
            return self.skip(UNREADABLE, || format!("{id}: its amounts are too large"));
        };
        let model = found.gpu_model.map(|model| format!(", gpu_model: {}", quoted(model)));
        let line = format!(
            "  - {{id: {}, from: \"{from}\", to: \"{to}\",\n     provider: {}, kind: {}, region: {}, \
             instance_family: {},\n     vcpu: \"{vcpu}\", memory_gib: \"{memory}\", gpu: {gpu}{}, \
             hourly_cost: \"{cost}\"}}\n",
            quoted(id),
            found.provider,
            found.kind,
            quoted(found.region),
            quoted(found.family),
            model.unwrap_or_default(),
        );
        self.entries.insert(id.to_owned(), line);
    }
}

/// Returns a field's text, or an empty text if the field is absent.
fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default().trim()
}

/// Returns the last part of a URL or path.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Parses a number from 0 to a billion.
fn whole(text: &str) -> Option<i128> {
    text.parse().ok().filter(|number| (0..=1_000_000_000).contains(number))
}

/// Parses an instant, or a date, which means its first instant in UTC.
fn instant(text: &str) -> Option<Timestamp> {
    parse_instant(text).or_else(|| Some(parse_date(text)?.start()))
}

/// Returns the text as JSON, which is YAML too.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
