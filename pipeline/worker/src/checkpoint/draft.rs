//! The life of a checkpoint: drafted, sealed, decided.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use prorata_schemas::Text;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, HourRange, WallTime};

use super::model::{ArchivedFile, Checkpoint, HourEntry, Owner, OwnerKind, RulesFrom, TableFiles};
use super::offsets::TopicOffsets;
use super::retention::Retention;
use crate::names::{ObjectId, Shard};

/// A checkpoint in the log, or the empty start of a shard that nobody has owned. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided(Arc<Checkpoint>);

impl Deref for Decided {
    type Target = Checkpoint;

    fn deref(&self) -> &Checkpoint {
        &self.0
    }
}

impl Decided {
    /// Wraps a decided checkpoint. Only the log may do so, because only the log knows which checkpoints are
    /// decided.
    pub(super) fn new(checkpoint: impl Into<Arc<Checkpoint>>) -> Self {
        Self(checkpoint.into())
    }

    /// Returns the checkpoint of a shard that nobody has owned.
    pub fn unowned(shard: Shard) -> Self {
        Self(Arc::new(Checkpoint::unowned(shard)))
    }

    /// Returns the sequence number of the next checkpoint.
    pub fn next_seq(&self) -> u64 {
        self.0.seq + 1
    }

    /// Returns a draft of the next checkpoint, which begins with the content of this one. Hours are shared,
    /// not copied.
    pub fn next_draft(&self) -> Draft {
        let mut next = Checkpoint::clone(&self.0);
        next.seq = self.next_seq();
        Draft {
            next,
            changed: false,
            objects: Vec::new(),
            archived: BTreeSet::new(),
            unarchived: BTreeSet::new(),
            replaced: Vec::new(),
        }
    }
}

/// The next checkpoint of a shard while it is built. It can be read like a checkpoint, and changes only
/// through its own methods.
#[derive(Debug)]
pub struct Draft {
    next: Checkpoint,
    changed: bool,
    objects: Vec<(String, Bytes)>,
    /// Hours with archive files that are new in this checkpoint.
    archived: BTreeSet<Hour>,
    /// Archive files that no longer count although a part still names them.
    unarchived: BTreeSet<ArchivedFile>,
    replaced: Vec<String>,
}

impl Deref for Draft {
    type Target = Checkpoint;

    fn deref(&self) -> &Checkpoint {
        &self.next
    }
}

impl Draft {
    /// Returns whether the draft differs enough from the previous checkpoint to be worth an object.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// Requires that the checkpoint be decided even if its content is unchanged, for example because objects
    /// wait for its sequence number.
    pub fn touch(&mut self) {
        self.changed = true;
    }

    /// Returns a namer for objects that wait for this checkpoint.
    pub fn namer(&self, owner: &Text, counter: &Arc<AtomicU64>) -> ObjectNamer {
        ObjectNamer { seq: self.next.seq, owner: owner.clone(), counter: Arc::clone(counter) }
    }

    /// Sets the owner whose claim this checkpoint records.
    pub fn set_owner(&mut self, id: Text, kind: OwnerKind) {
        self.next.owner = Some(Owner { id, kind, released: false });
        self.next.had_worker |= kind == OwnerKind::Worker;
        self.changed = true;
    }

    /// Sets whether the owner releases the shard with this checkpoint.
    pub fn set_released(&mut self, released: bool) {
        if let Some(owner) = &mut self.next.owner {
            owner.released = released;
        }
    }

    /// Sets the offsets up to which topics are read.
    pub fn set_offsets(&mut self, offsets: BTreeMap<Text, TopicOffsets>) {
        self.next.offsets = offsets;
    }

    /// Adds rules that are in force from an hour on. This alone does not require a checkpoint, because rules
    /// matter only once an hour is folded.
    pub fn list_rules(&mut self, from: Hour, version: Text) {
        self.next.rules.push(RulesFrom { from, version });
    }

    /// Replaces the list of rules.
    pub fn set_rules(&mut self, rules: Vec<RulesFrom>) {
        self.changed |= self.next.rules != rules;
        self.next.rules = rules;
    }

    /// Adds an object to be stored before the checkpoint is decided.
    pub fn add_object(&mut self, path: String, bytes: Bytes) {
        self.objects.push((path, bytes));
        self.changed = true;
    }

    /// Adds an archive file to be stored before the checkpoint is decided.
    pub fn add_archive_file(&mut self, hour: Hour, object_id: ObjectId, bytes: Bytes) {
        let file = ArchivedFile { hour, object_id, bytes: bytes.len() as u64 };
        self.add_object(file.path(self.next.shard), bytes);
        self.name_archive_file(file);
    }

    /// Names an archive file that is stored already.
    pub fn name_archive_file(&mut self, file: ArchivedFile) {
        if self.next.archive_from.is_none_or(|first| file.hour < first) {
            self.next.archive_from = Some(file.hour);
        }
        self.archived.insert(file.hour);
        self.next.archive.insert(file);
        self.changed = true;
    }

    /// Adds an archive file that holds all events of `files`, which belong to the same hour. These files are
    /// no longer needed once the checkpoint is decided.
    pub fn merge_archive_files(
        &mut self,
        hour: Hour,
        object_id: ObjectId,
        bytes: Bytes,
        files: impl IntoIterator<Item = ArchivedFile>,
    ) {
        for file in files {
            self.replaced.push(file.path(self.next.shard));
            self.drop_archive_file(file);
        }
        self.add_archive_file(hour, object_id, bytes);
    }

    /// Removes an archive file from the checkpoint, because its events are in another file or are given up.
    pub fn drop_archive_file(&mut self, file: ArchivedFile) {
        if !self.next.archive.remove(&file) {
            self.unarchived.insert(file);
        }
        self.changed = true;
    }

    /// Returns the hours with archive files that are new in this checkpoint.
    pub fn archived(&self) -> &BTreeSet<Hour> {
        &self.archived
    }

    /// Names a stored file of dead letters. `unsent` says whether the file must still be sent to the
    /// dead-letter topic.
    pub fn name_dead_letters(&mut self, path: String, unsent: bool) {
        if unsent {
            self.next.unsent_dead_letters.push(path.clone());
        }
        self.next.dead_letters.insert(path);
        self.changed = true;
    }

    /// Records that a file of dead letters has reached the dead-letter topic.
    pub fn remove_dead_letters(&mut self, path: &str) {
        self.next.unsent_dead_letters.retain(|waiting| waiting != path);
        self.changed = true;
    }

    /// Adds the hours whose budgets have changed since checkpoint `before` to the unsent budgets, because
    /// their topic may need messages.
    pub fn list_budgets(&mut self, before: &Checkpoint) {
        for (hour, entry) in &self.next.hours {
            let known = before.hours.get(hour);
            let is_same = known.is_some_and(|known| Arc::ptr_eq(known, entry) || same_budgets(known, entry));
            if !is_same && !entry.files_of(Table::PoolUsage).is_empty() {
                self.next.unsent_budgets.insert(*hour);
            }
        }
    }

    /// Records that the exceeded budgets of an hour have reached their topic, unless the budgets have changed
    /// since `entry`.
    pub fn remove_budgets(&mut self, hour: Hour, entry: &HourEntry) {
        if self.next.hours.get(&hour).is_none_or(|now| same_budgets(now, entry)) {
            self.next.unsent_budgets.clear(hour, hour);
            self.changed = true;
        }
    }

    /// Marks an hour to be recomputed.
    pub fn mark_dirty(&mut self, hour: Hour) {
        self.next.dirty.insert(hour);
        self.changed = true;
    }

    /// Marks an hour of one organization to be recomputed.
    pub fn mark_dirty_of(&mut self, organization_id: &OrganizationId, hour: Hour) {
        self.mark_dirty_of_all([organization_id], hour);
    }

    /// Marks an hour of some organizations to be recomputed.
    pub fn mark_dirty_of_all<'a>(
        &mut self,
        organizations: impl IntoIterator<Item = &'a OrganizationId>,
        hour: Hour,
    ) {
        for organization_id in organizations {
            self.next.dirty.insert_of(organization_id, hour);
            self.changed = true;
        }
        self.next.dirty.bound();
    }

    /// Marks every hour that is dirty for some organizations as dirty for all organizations.
    pub fn widen_marks(&mut self) {
        self.next.dirty.forget_organizations();
        self.changed = true;
    }

    /// Marks an hour to be recomputed for the organizations in `late`, and counts their late events. If
    /// `late` is empty, the hour is marked for all organizations.
    pub fn mark_late(&mut self, hour: Hour, late: BTreeMap<OrganizationId, i64>) {
        if late.is_empty() {
            return self.mark_dirty(hour);
        }
        late.keys().for_each(|organization_id| self.next.dirty.insert_of(organization_id, hour));
        self.next.dirty.bound();
        self.changed = true;
        let Some(entry) = self.next.hours.get_mut(&hour) else { return };
        let entry = Arc::make_mut(entry);
        for (organization, events) in late {
            *entry.late_events.entry(organization).or_default() += events;
        }
    }

    /// Marks the hours from the first to the last, both inclusive, to be recomputed in this run. This alone
    /// does not require a checkpoint, but the results do.
    pub fn mark_dirty_range(&mut self, first: Hour, last: Hour) {
        self.next.dirty.insert_range(first, last);
    }

    /// Records that hours were recomputed. The recomputation continues at the hour `continues_at`; `None` if
    /// the recomputation is done. Marks of earlier hours stay, because they were added meanwhile.
    pub fn recomputed(&mut self, HourRange { first, last }: HourRange, continues_at: Option<Hour>) {
        self.next.dirty.clear(first, last);
        if let Some(hour) = continues_at {
            self.next.dirty.insert(hour);
        }
    }

    /// Records that hours of one organization were recomputed; see [`Self::recomputed`].
    pub fn recomputed_of(
        &mut self,
        organization_id: &OrganizationId,
        HourRange { first, last }: HourRange,
        continues_at: Option<Hour>,
    ) {
        self.next.dirty.clear_of(organization_id, first, last);
        if let Some(hour) = continues_at {
            self.next.dirty.insert_of(organization_id, hour);
        }
        self.changed = true;
    }

    /// Sets the entry of an hour.
    pub fn set_hour(&mut self, hour: Hour, entry: HourEntry) {
        let named: BTreeSet<String> = entry.snapshot_objects().cloned().collect();
        if let Some(before) = self.next.hours.insert(hour, Arc::new(entry)) {
            self.replaced.extend(before.snapshot_objects().filter(|old| !named.contains(*old)).cloned());
        }
        self.changed = true;
    }

    /// Sets the snapshot of an hour, whose files stay. The hour was folded only to reach a later hour, and
    /// its state equals the recorded state.
    pub fn set_snapshot(&mut self, hour: Hour, path: String, bytes: Bytes) {
        let Some(entry) = self.next.hours.get_mut(&hour) else { return };
        let entry = Arc::make_mut(entry);
        self.replaced.extend(entry.take_snapshot());
        entry.snapshot = Some(path.clone());
        self.add_object(path, bytes);
    }

    /// Drops the snapshots of these hours, because they cannot be used. New snapshots are written when the
    /// hours are folded again.
    pub fn drop_snapshots(&mut self, hours: &[Hour]) {
        for hour in hours {
            let entry = self.next.hours.get_mut(hour).filter(|entry| entry.snapshot.is_some());
            let Some(entry) = entry else { continue };
            self.replaced.extend(Arc::make_mut(entry).take_snapshot());
            self.changed = true;
        }
    }

    /// Closes all hours up to and including this one.
    pub fn close_through(&mut self, hour: Hour) {
        if self.next.closed_through < Some(hour) {
            self.next.closed_through = Some(hour);
            self.changed = true;
        }
    }

    /// Records that all tables equal a decided checkpoint of this shard. Hours with the same table files in
    /// that checkpoint no longer need statistics, and may leave the next checkpoint when they are old.
    pub fn note_published(&mut self, published: &Decided) {
        for (hour, entry) in self.next.hours.iter_mut().filter(|(_, entry)| !entry.published) {
            let of = |entry: &HourEntry| -> Vec<String> {
                entry.files().map(|(_, file)| file.path.clone()).collect()
            };
            if published.hours.get(hour).is_some_and(|published| of(published) == of(entry)) {
                let entry = Arc::make_mut(entry);
                entry.published = true;
                entry.tables.values_mut().for_each(TableFiles::forget_stats);
            }
        }
    }

    /// Drops all hours, snapshots and marks that need not be kept.
    pub fn prune(&mut self, retention: Retention) {
        self.replaced.extend(retention.prune(&mut self.next));
    }

    /// Freezes the draft: its present content is what will be decided.
    pub(super) fn seal(mut self, now: WallTime) -> Sealed {
        self.next.written_at = now;
        let Self { next, objects, unarchived, replaced, .. } = self;
        Sealed { checkpoint: Arc::new(next), objects, unarchived, replaced }
    }
}

/// Returns whether two entries of an hour have the same files of `pool_usage`.
fn same_budgets(one: &HourEntry, other: &HourEntry) -> bool {
    let paths = |entry: &HourEntry| -> Vec<String> {
        entry.files_of(Table::PoolUsage).iter().map(|file| file.path.clone()).collect()
    };
    paths(one) == paths(other)
}

/// A checkpoint to be decided. It no longer changes, so every retry sends exactly the same content.
#[derive(Debug)]
pub struct Sealed {
    pub(super) checkpoint: Arc<Checkpoint>,
    pub(super) objects: Vec<(String, Bytes)>,
    pub(super) unarchived: BTreeSet<ArchivedFile>,
    replaced: Vec<String>,
}

impl Deref for Sealed {
    type Target = Checkpoint;

    fn deref(&self) -> &Checkpoint {
        &self.checkpoint
    }
}

impl Sealed {
    /// Returns the objects that nothing needs once this checkpoint is decided: replaced snapshots and merged
    /// archive files.
    pub fn replaced(&self) -> &[String] {
        &self.replaced
    }
}

/// A source of names for new objects of one shard that wait for one checkpoint.
#[derive(Clone, Debug)]
pub struct ObjectNamer {
    seq: u64,
    owner: Text,
    counter: Arc<AtomicU64>,
}

impl ObjectNamer {
    /// Returns the next name. A counter distinguishes the name from all other names of this owner, over all
    /// shards.
    pub fn next(&self) -> ObjectId {
        let n = self.counter.fetch_add(1, Ordering::Relaxed);
        ObjectId { seq: self.seq, owner: Arc::clone(&self.owner), n }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::FileEntry;

    fn entry(path: &str, snapshot: Option<&str>) -> HourEntry {
        let stats = Some("{}".to_owned());
        let file =
            FileEntry { path: path.into(), bytes: 1, digest: "d".into(), stats, last_organization: None };
        let snapshot = snapshot.map(str::to_owned);
        HourEntry { tables: [(Table::Hours, file.into())].into(), snapshot, ..HourEntry::default() }
    }

    #[test]
    fn only_hours_of_a_published_checkpoint_count_as_published() {
        let mut draft = Decided::unowned(3).next_draft();
        draft.set_hour(Hour(1), entry("a", None));
        draft.set_hour(Hour(2), entry("b", None));
        let decided = Decided::new(draft.seal(WallTime(0)).checkpoint);
        let mut draft = decided.next_draft();
        assert_eq!((draft.seq, draft.is_changed()), (2, false));
        draft.set_hour(Hour(2), entry("c", None));
        draft.set_hour(Hour(3), entry("d", None));
        draft.note_published(&decided);
        let published: Vec<bool> = draft.hours.values().map(|entry| entry.published).collect();
        assert_eq!(published, [true, false, false], "hour 2 has changed since, hour 3 is new");
        assert_eq!(draft.hours[&Hour(1)].tables[&Table::Hours][0].stats, None);
        assert!(draft.hours[&Hour(2)].tables[&Table::Hours][0].stats.is_some());
        assert!(!decided.hours[&Hour(1)].published, "what is decided never changes");
    }

    #[test]
    fn a_replaced_snapshot_is_reported_and_a_kept_one_is_not() {
        let mut draft = Decided::unowned(3).next_draft();
        draft.set_hour(Hour(1), entry("a", Some("s1")));
        draft.set_hour(Hour(2), entry("b", Some("s2")));
        draft.set_hour(Hour(1), entry("c", Some("s1")));
        draft.set_hour(Hour(2), entry("d", None));
        assert_eq!(draft.seal(WallTime(0)).replaced(), ["s2"]);
    }
}
