//! Findings of a check, with their location and their fix.

use std::collections::BTreeMap;

/// Maximum number of findings of one kind that are reported one by one; the others are only counted.
pub const REPORTED_MAX: usize = 20;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Rows are missing, doubled or damaged, or amounts do not add up.
    Error,
    /// The tables are complete, but something needs attention.
    Warning,
}

impl Severity {
    /// Returns the name of the severity.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// A table has no log.
    TableMissing,
    /// The columns of a table or a file differ from the columns of this release.
    SchemaDrift,
    /// A live file has no object.
    FileMissing,
    /// The size of a live file differs from the size in the table's log.
    FileSizeMismatch,
    /// A live file cannot be read.
    FileDamaged,
    /// A live file does not have a valid name.
    ForeignFile,
    /// Two live files hold the same hour of the same shard.
    DuplicateHour,
    /// A live file holds an hour that the checkpoint knows, but the checkpoint does not name the file.
    UnreferencedFile,
    /// A checkpoint cannot be read.
    CheckpointDamaged,
    /// The checkpoint names an archive file that does not exist.
    ArchiveFileMissing,
    /// An hour has rows of cost, but no row in `hours`.
    TotalsMissing,
    /// An hour has events in the archive, but no row in `hours`.
    HourMissing,
    /// The rows of an hour do not add up to its totals.
    Unbalanced,
    /// No row has a line of the bill.
    BillLineMissing,
    /// The rows of a line have other costs than the bill.
    BillDiffers,
    /// Rows have a line that the bill lacks, although it has their resource or their invoice.
    NotInBill,
    /// A manifest of a closed month cannot be read, or does not continue its chain.
    ManifestDamaged,
    /// A file of a closed month is gone, or differs from its manifest.
    ClosedFileDamaged,
    /// A manifest names a file that `closed_allocation` does not hold.
    ClosedFileNotLive,
    /// The checkpoint names a file that the table does not hold yet.
    NotPublished,
    /// Hours wait to be folded again.
    Dirty,
    /// Hours are not complete: the watermark has not passed them, or the organization is held.
    Incomplete,
    /// Pods have no price.
    Unpriced,
    /// Agreements match no node or pod.
    NeverMatched,
    /// Rows have lines of resources and invoices that the bill lacks.
    OtherBill,
    /// Rows of a closed month and their corrections differ from the ledger.
    NotCorrected,
}

impl Problem {
    /// Returns the severity.
    pub const fn severity(self) -> Severity {
        match self {
            Self::NotPublished
            | Self::Dirty
            | Self::Incomplete
            | Self::Unpriced
            | Self::NeverMatched
            | Self::OtherBill
            | Self::NotCorrected => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TableMissing => "table_missing",
            Self::SchemaDrift => "schema_drift",
            Self::FileMissing => "file_missing",
            Self::FileSizeMismatch => "file_size_mismatch",
            Self::FileDamaged => "file_damaged",
            Self::ForeignFile => "foreign_file",
            Self::DuplicateHour => "duplicate_hour",
            Self::UnreferencedFile => "unreferenced_file",
            Self::CheckpointDamaged => "checkpoint_damaged",
            Self::ArchiveFileMissing => "archive_file_missing",
            Self::TotalsMissing => "totals_missing",
            Self::HourMissing => "hour_missing",
            Self::Unbalanced => "unbalanced",
            Self::BillLineMissing => "bill_line_missing",
            Self::BillDiffers => "bill_differs",
            Self::NotInBill => "not_in_bill",
            Self::ManifestDamaged => "manifest_damaged",
            Self::ClosedFileDamaged => "closed_file_damaged",
            Self::ClosedFileNotLive => "closed_file_not_live",
            Self::NotPublished => "not_published",
            Self::Dirty => "dirty",
            Self::Incomplete => "incomplete",
            Self::Unpriced => "unpriced",
            Self::NeverMatched => "never_matched",
            Self::OtherBill => "other_bill",
            Self::NotCorrected => "not_corrected",
        }
    }

    /// Returns the fix for the problem.
    pub const fn fix(self) -> &'static str {
        match self {
            Self::TableMissing => "a worker or backfill creates it at its next publish",
            Self::SchemaDrift => "use the release that wrote it, or fold the events into a new root",
            Self::FileMissing | Self::FileSizeMismatch | Self::FileDamaged => {
                "write it again with prorata backfill --rewrite, with --from if the hour is more than 35 \
                 days old, or restore the object from a copy, such as an older version in the bucket"
            }
            Self::ForeignFile => "remove it from the table: only prorata may write here",
            Self::DuplicateHour | Self::UnreferencedFile => {
                "something else has changed the table's log: remove the file that the checkpoint does not \
                 name, or fold the events into a new root"
            }
            Self::CheckpointDamaged => "restore the object from a copy",
            Self::ArchiveFileMissing => {
                "restore it from a copy, or fold a copy of its events with prorata backfill --shards and \
                 --without-archive-file"
            }
            Self::TotalsMissing | Self::HourMissing | Self::Unbalanced => {
                "if other findings name files of this hour, fix them first; otherwise report a defect with \
                 the files of the hour"
            }
            Self::BillLineMissing => {
                "import the bill with prorata bills import, and wait until its hours are folded; an import \
                 leaves out lines without --all, and dead letters show which events were refused"
            }
            Self::BillDiffers => {
                "import the newest export of the bill; if it is imported, prorata explain --bill shows how \
                 the cost of an hour came about"
            }
            Self::NotInBill => {
                "name all files of the bill; if the provider has taken these lines back, retract them with \
                 prorata bills import --previous"
            }
            Self::ManifestDamaged | Self::ClosedFileDamaged => {
                "restore the object from a copy: it is what was issued, and cannot be computed again"
            }
            Self::ClosedFileNotLive => "run prorata close, which adds the files of manifests to the table",
            Self::NotPublished => {
                "a running worker publishes it, and the hour is compared from then on; otherwise run \
                 prorata backfill on the same root"
            }
            Self::Dirty => {
                "a running worker recomputes them; otherwise run prorata backfill on the same root"
            }
            Self::Incomplete => {
                "wait until the watermark has passed; for held organizations see /status and RUNBOOK.md"
            }
            Self::Unpriced => {
                "send what is missing: the node for unknown_node, the pool for unknown_pool, the price for \
                 no_qos_price, the rate for no_rate, the part of a GPU (gpus) for unknown_gpu_share, which \
                 the collector finds by collect.gpu_sharing; late events correct the hours"
            }
            Self::NeverMatched => {
                "compare its provider, region, family and GPU model with what it was bought for: RULES.md, \
                 section 12 says which spellings are one name"
            }
            Self::NotCorrected => "run prorata close, which writes the corrections",
            Self::OtherBill => "if these rows should be compared, too, name the files of their bills",
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Kind of the finding.
    pub problem: Problem,
    /// Location: an object, or an organization and hour.
    pub location: String,
    /// Description of the problem.
    pub what: String,
}

/// Findings by kind: the first findings of each kind, and the number of all findings of the kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    reported: Vec<Finding>,
    counts: BTreeMap<Problem, u64>,
}

impl Findings {
    /// Adds a finding.
    pub fn add(&mut self, problem: Problem, location: impl ToString, what: impl ToString) {
        self.add_many(problem, 1, location, what);
    }

    /// Adds a finding that stands for several.
    pub fn add_many(&mut self, problem: Problem, count: u64, location: impl ToString, what: impl ToString) {
        *self.counts.entry(problem).or_default() += count;
        if self.reported.iter().filter(|reported| reported.problem == problem).count() < REPORTED_MAX {
            self.reported.push(Finding { problem, location: location.to_string(), what: what.to_string() });
        }
    }

    /// Returns the number of findings of each kind.
    pub const fn counts(&self) -> &BTreeMap<Problem, u64> {
        &self.counts
    }

    /// Returns the first findings of each kind, ordered by kind.
    pub fn reported(&self) -> Vec<&Finding> {
        let mut reported: Vec<&Finding> = self.reported.iter().collect();
        reported.sort_by_key(|finding| finding.problem);
        reported
    }

    /// Returns the worst severity.
    pub fn worst(&self) -> Option<Severity> {
        self.counts.keys().map(|problem| problem.severity()).min()
    }
}
