//! Conformance of object stores and table logs.

use std::collections::BTreeMap;

use bytes::Bytes;
use prorata_schemas::tables::Table;
use prorata_worker::names;
use prorata_worker::ports::FileEntry;
use prorata_worker::ports::{CommitOutcome, LiveFile, ObjectStore, PutOutcome, TableCommit, TableCommitter};

use super::{Checked, equal};

/// Checks an empty object store.
///
/// # Errors
/// Returns the first promise that is not kept.
pub async fn object_store(store: &dyn ObjectStore) -> Checked {
    let text = |error: prorata_worker::ports::StoreError| error.to_string();
    let (path, other) = ("state/shard=0000/checkpoint-0000000001.json", "state/shard=0001/x.json");
    equal("reading what is not there", store.get(path).await.map_err(text)?, None)?;
    equal("an empty list", store.list("state/").await.map_err(text)?.len(), 0)?;
    let first = Bytes::from_static(b"first");
    equal("creating", store.put_if_absent(path, first.clone()).await.map_err(text)?, PutOutcome::Created)?;
    let again = store.put_if_absent(path, Bytes::from_static(b"second")).await.map_err(text)?;
    equal("creating again", again, PutOutcome::Exists)?;
    equal("the first stays", store.get(path).await.map_err(text)?, Some(first))?;
    store.put_if_absent(other, Bytes::from_static(b"x")).await.map_err(text)?;
    let listed = store.list("state/").await.map_err(text)?;
    let listed: Vec<(&str, u64)> = listed.iter().map(|object| (object.path.as_str(), object.bytes)).collect();
    equal("the list ascends", listed, vec![(path, 5), (other, 1)])?;
    let folder = store.list("state/shard=0001/").await.map_err(text)?;
    equal("the list of one folder", folder.len(), 1)?;
    race(store).await?;
    for path in [other, path, path] {
        store.delete(path).await.map_err(text)?;
    }
    equal("deleted", store.get(path).await.map_err(text)?, None)?;
    let empty = "state/empty";
    store.put_if_absent(empty, Bytes::new()).await.map_err(text)?;
    equal("an empty object", store.get(empty).await.map_err(text)?, Some(Bytes::new()))
}

/// Checks that exactly one of several concurrent writers creates the object, and that the object has the
/// bytes of this writer.
async fn race(store: &dyn ObjectStore) -> Checked {
    for round in 0..8_u32 {
        let path = format!("state/race-{round}");
        let writers = (0..8_u32).map(|writer| {
            let (path, bytes) = (path.clone(), Bytes::from(format!("writer {writer}").repeat(1000)));
            async move { store.put_if_absent(&path, bytes.clone()).await.map(|put| (put, bytes)) }
        });
        let answers = futures::future::join_all(writers).await;
        let mut created = Vec::new();
        for answer in answers {
            let (put, bytes) = answer.map_err(|error| error.to_string())?;
            created.extend((put == PutOutcome::Created).then_some(bytes));
        }
        equal("winners of a race", created.len(), 1)?;
        let found = store.get(&path).await.map_err(|error| error.to_string())?;
        equal("what the winner wrote", found, created.pop())?;
    }
    Ok(())
}

/// Checks the logs of a root without tables.
///
/// # Errors
/// Returns the first promise that is not kept.
pub async fn table_committer(tables: &dyn TableCommitter) -> Checked {
    let text = |error: prorata_worker::ports::TableError| error.to_string();
    let table = Table::QuotaUsage;
    let (ours, other) = (names::transaction(3), names::transaction(4));
    let both = [ours.clone(), other.clone()];
    let empty = tables.load(table).await.map_err(text)?;
    equal("files of a new table", empty.files.len(), 0)?;
    let none = tables.transactions(table, empty.version, &both).await.map_err(text)?;
    equal("transactions of a new table", none, BTreeMap::new())?;

    let add = |name: &str| FileEntry {
        path: format!("date=2026-11-20/{name}.parquet"),
        bytes: 10,
        digest: String::new(),
        stats: Some(r#"{"numRecords":1}"#.into()),
        last_organization: None,
    };
    let commit = |adds: Vec<FileEntry>, removes: Vec<String>, seq| TableCommit {
        adds,
        removes,
        transactions: [(ours.clone(), seq)].into(),
        id: "contract".into(),
        same_rows: false,
    };
    let adds = commit(vec![add("a"), add("b")], vec![], 1);
    let outcome = tables.commit(table, empty.version, &adds).await.map_err(text)?;
    equal("a commit to a new table", outcome, CommitOutcome::Committed)?;
    let first = tables.load(table).await.map_err(text)?;
    let live = |name: &str| LiveFile { path: add(name).path, bytes: 10 };
    equal("files after a commit", first.files.clone(), vec![live("a"), live("b")])?;
    let known = tables.transactions(table, first.version, &both).await.map_err(text)?;
    equal("transactions after a commit", known, [(ours.clone(), 1)].into())?;

    let stale = tables.commit(table, empty.version, &commit(vec![add("c")], vec![], 2)).await;
    equal("a commit from an old version conflicts", stale.map_err(text)?, CommitOutcome::Conflict)?;
    let replace = commit(vec![add("d")], vec![add("a").path], 7);
    let outcome = tables.commit(table, first.version, &replace).await.map_err(text)?;
    equal("a replacement", outcome, CommitOutcome::Committed)?;
    let second = tables.load(table).await.map_err(text)?;
    equal("files after a replacement", second.files.clone(), vec![live("b"), live("d")])?;
    let known = tables.transactions(table, second.version, &both).await.map_err(text)?;
    equal("transactions after it", known, [(ours.clone(), 7)].into())?;
    equal("versions ascend", second.version > first.version, true)?;

    let asked = tables.transactions(table, second.version, &[other]).await.map_err(text)?;
    equal("only transactions asked for", asked, BTreeMap::new())?;
    let untouched = tables.load(Table::Hours).await.map_err(text)?;
    equal("another table", untouched.files.len(), 0)
}

#[cfg(test)]
mod tests {
    use crate::fakes::{FakeStore, FakeTables};

    #[tokio::test]
    async fn the_fake_of_the_object_store_keeps_its_promises() {
        super::object_store(&FakeStore::default()).await.unwrap();
    }

    #[tokio::test]
    async fn the_fake_of_the_table_logs_keeps_its_promises() {
        super::table_committer(&FakeTables::default()).await.unwrap();
    }
}
