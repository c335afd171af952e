//! Manifests of closed months. A manifest is the decision that a month is closed, and lists the files that
//! were issued. Each manifest names the one before it, so that the manifests of an organization form a chain.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::{StreamExt, stream};
use prorata_schemas::Text;
use prorata_schemas::decimal::{Decimal12, PLACES};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::tables::ClosedTotals;
use prorata_schemas::time::Date;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Result, WorkerError};
use crate::names::closed::{self, CLOSED, ClosedPath, Month};
use crate::objects::{self, CONCURRENCY};
use crate::ports::{FormatError, ObjectStore};

/// The format of manifests.
pub const FORMAT: u32 = 1;

/// The manifest of an organization's closed month.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Number of the format.
    pub format: u32,
    /// The organization.
    pub organization_id: OrganizationId,
    /// The month.
    pub period: Month,
    /// The manifest before this one; `None` in the first manifest of the organization.
    pub previous: Option<Previous>,
    /// Ids of the invoices that the month's own rows name.
    pub invoices: BTreeSet<Text>,
    /// Sums over all files, ordered by currency.
    pub totals: Vec<ManifestTotals>,
    /// The month's own rows, and the corrections of earlier months, ordered by path.
    pub files: Vec<ManifestFile>,
    /// For each date that was compared, the fingerprint of the ledger's files: see [`fingerprint`].
    pub ledger: BTreeMap<String, String>,
}

/// The manifest before another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Previous {
    /// The month.
    pub period: Month,
    /// SHA-256 of the manifest's bytes, in hexadecimal.
    pub sha256: String,
}

/// Sums of rows of one currency. Money is text with twelve decimals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestTotals {
    /// The currency.
    pub currency: Text,
    /// Number of rows.
    pub rows: u64,
    /// Sum of `BilledCost`.
    pub billed_cost: String,
    /// Sum of `EffectiveCost`.
    pub effective_cost: String,
}

/// A file of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestFile {
    /// Path under the folder of `closed_allocation`.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// Number of rows.
    pub rows: u64,
}

impl ManifestTotals {
    /// Returns the sums of each currency, ordered by currency.
    pub fn list(totals: &BTreeMap<Text, ClosedTotals>) -> Vec<Self> {
        let one = |(currency, sums): (&Text, &ClosedTotals)| Self {
            currency: currency.clone(),
            rows: sums.rows,
            billed_cost: fixed(sums.billed),
            effective_cost: fixed(sums.effective),
        };
        totals.iter().map(one).collect()
    }
}

/// Formats an amount with all of its decimals.
fn fixed(amount: Decimal12) -> String {
    const ONE: u128 = prorata_schemas::decimal::ONE.unsigned_abs();
    let (sign, atoms) = (if amount.is_negative() { "-" } else { "" }, amount.atoms().unsigned_abs());
    format!("{sign}{}.{:0PLACES$}", atoms / ONE, atoms % ONE)
}

/// Returns the fingerprint of the ledger's files of one date and shard: SHA-256 of their sorted paths, each
/// followed by a newline, in hexadecimal.
pub fn fingerprint(sorted_paths: &[String]) -> String {
    let mut digest = Sha256::new();
    for path in sorted_paths {
        digest.update(path);
        digest.update("\n");
    }
    format!("{:x}", digest.finalize())
}

impl Manifest {
    /// Encodes the manifest as it is stored.
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub fn to_bytes(&self) -> Result<Bytes, FormatError> {
        let json = serde_json::to_vec_pretty(self);
        let mut json = json.map_err(|error| FormatError::new("encode a manifest", error))?;
        json.push(b'\n');
        Ok(json.into())
    }

    /// Parses the manifest of an organization's month.
    ///
    /// # Errors
    /// If it is damaged, has another format, or is of another organization or month.
    pub fn parse(organization_id: &OrganizationId, period: Month, bytes: &[u8]) -> Result<Self> {
        let object = closed::manifest(organization_id, period);
        objects::check_format(&object, bytes, FORMAT)?;
        let damaged = |cause: String| WorkerError::Damaged { object: object.clone(), cause };
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
        if manifest.organization_id != *organization_id || manifest.period != period {
            return Err(damaged("it is of another organization or month".to_owned()));
        }
        let is_foreign = |file: &&ManifestFile| {
            let name = ClosedPath::parse(&file.path);
            name.is_none_or(|name| name != ClosedPath::new(name.date, period, &file.sha256))
        };
        if let Some(ManifestFile { path, .. }) = manifest.files.iter().find(is_foreign) {
            return Err(damaged(format!("it lists '{path}', whose name differs from its digest")));
        }
        Ok(manifest)
    }
}

/// A manifest in its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The manifest.
    pub manifest: Manifest,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
}

/// The closed months of an organization, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain(Vec<Link>);

impl Chain {
    /// Returns the links, in order of months.
    pub fn links(&self) -> &[Link] {
        &self.0
    }

    /// Returns the last closed month; `None` if no month is closed.
    pub fn last(&self) -> Option<Month> {
        self.0.last().map(|link| link.manifest.period)
    }

    /// Returns the reference to the last manifest; `None` if no month is closed.
    pub fn previous(&self) -> Option<Previous> {
        let link = self.0.last()?;
        Some(Previous { period: link.manifest.period, sha256: link.sha256.clone() })
    }

    /// Returns the files of all manifests.
    pub fn files(&self) -> impl Iterator<Item = &ManifestFile> {
        self.0.iter().flat_map(|link| &link.manifest.files)
    }

    /// Returns the newest fingerprint of a date; `None` if the date was never compared.
    pub fn recorded(&self, date: Date) -> Option<&str> {
        let date = date.to_string();
        self.0.iter().rev().find_map(|link| link.manifest.ledger.get(&date)).map(String::as_str)
    }

    /// Returns the dates of all closed months, ascending.
    pub fn dates(&self) -> impl Iterator<Item = Date> {
        self.0.iter().flat_map(|link| link.manifest.period.dates())
    }

    /// Adds the manifest with these bytes.
    ///
    /// # Errors
    /// If the manifest is damaged, or does not name the last manifest of the chain.
    pub fn add(&mut self, organization_id: &OrganizationId, period: Month, bytes: &[u8]) -> Result<()> {
        let manifest = Manifest::parse(organization_id, period, bytes)?;
        if manifest.previous != self.previous() {
            let named = manifest.previous.map_or("none".to_owned(), |previous| previous.period.to_string());
            let last = self.last().map_or("none".to_owned(), |last| last.to_string());
            let cause =
                format!("the manifest before it is {last}, but it names {named}, or that one has changed");
            return Err(WorkerError::Damaged { object: closed::manifest(organization_id, period), cause });
        }
        self.0.push(Link { manifest, sha256: format!("{:x}", Sha256::digest(bytes)) });
        Ok(())
    }
}

/// The chains under a root.
#[derive(Debug, Default)]
pub struct Chains {
    /// Chains that can be read.
    pub chains: BTreeMap<OrganizationId, Chain>,
    /// The first problem of each chain that cannot be read.
    pub broken: BTreeMap<OrganizationId, WorkerError>,
}

impl Chains {
    /// Reads all chains. A chain with a damaged manifest does not hold up the others.
    ///
    /// # Errors
    /// If storage is unavailable.
    pub async fn read(store: &dyn ObjectStore) -> Result<Self> {
        let mut chains = Self::default();
        let listed = list(store).await?.into_iter();
        let reads = listed.map(|(organization_id, period)| async move {
            let path = closed::manifest(&organization_id, period);
            (organization_id, period, store.get(&path).await)
        });
        let mut reads = stream::iter(reads.collect::<Vec<_>>()).buffered(CONCURRENCY);
        while let Some((organization_id, period, bytes)) = reads.next().await {
            if chains.broken.contains_key(&organization_id) {
                continue;
            }
            let gone = || WorkerError::Damaged {
                object: closed::manifest(&organization_id, period),
                cause: "it is listed, but does not exist".to_owned(),
            };
            let chain = chains.chains.entry(organization_id.clone()).or_default();
            let added = match bytes? {
                Some(bytes) => chain.add(&organization_id, period, &bytes),
                None => Err(gone()),
            };
            if let Err(error) = added {
                chains.chains.remove(&organization_id);
                chains.broken.insert(organization_id, error);
            }
        }
        Ok(chains)
    }
}

/// Returns the organization and month of every manifest under a root, in order.
///
/// # Errors
/// If storage is unavailable.
pub async fn list(store: &dyn ObjectStore) -> Result<BTreeSet<(OrganizationId, Month)>> {
    let listed = store.list(CLOSED).await?;
    Ok(listed.iter().filter_map(|object| closed::parse_manifest(&object.path)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(period: &str, previous: Option<Previous>) -> Manifest {
        let sums = |billed: i128| ClosedTotals {
            rows: 2,
            billed: Decimal12::from_atoms(billed),
            effective: Decimal12::from_int(12),
        };
        Manifest {
            format: FORMAT,
            organization_id: "acme".into(),
            period: period.parse().unwrap(),
            previous,
            invoices: BTreeSet::from(["INV-1".into()]),
            totals: ManifestTotals::list(&BTreeMap::from([("USD".into(), sums(-1))])),
            files: Vec::new(),
            ledger: BTreeMap::from([("2026-10-01".to_owned(), fingerprint(&[]))]),
        }
    }

    #[test]
    fn a_manifest_has_this_form() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let expected = format!(
            r#"{{
  "format": 1,
  "organization_id": "acme",
  "period": "2026-10",
  "previous": null,
  "invoices": [
    "INV-1"
  ],
  "totals": [
    {{
      "currency": "USD",
      "rows": 2,
      "billed_cost": "-0.000000000001",
      "effective_cost": "12.000000000000"
    }}
  ],
  "files": [],
  "ledger": {{
    "2026-10-01": "{empty}"
  }}
}}
"#
        );
        let bytes = manifest("2026-10", None).to_bytes().unwrap();
        assert_eq!(String::from_utf8(bytes.to_vec()).unwrap(), expected);
    }

    #[test]
    fn a_chain_takes_only_a_manifest_that_names_its_last() {
        let (mut chain, acme) = (Chain::default(), OrganizationId::from("acme"));
        let (october, november): (Month, Month) = ("2026-10".parse().unwrap(), "2026-11".parse().unwrap());
        let first = manifest("2026-10", None).to_bytes().unwrap();
        chain.add(&acme, october, &first).unwrap();
        let unchained = manifest("2026-11", None).to_bytes().unwrap();
        assert!(chain.add(&acme, november, &unchained).unwrap_err().to_string().contains("names none"));
        let mut previous = chain.previous().unwrap();
        previous.sha256 = fingerprint(&[]);
        let changed = manifest("2026-11", Some(previous)).to_bytes().unwrap();
        assert!(chain.add(&acme, november, &changed).is_err(), "the digest differs");
        let next = manifest("2026-11", chain.previous()).to_bytes().unwrap();
        chain.add(&acme, november, &next).unwrap();
        assert_eq!((chain.links().len(), chain.last()), (2, Some(november)));
        assert!(Manifest::parse(&"beta".into(), october, &first).is_err(), "of another organization");
    }
}
