//! Checks of the events that several members receive about each other.

use std::collections::BTreeSet;

use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::source::Start;

use super::listener::Listener;
use super::{Checked, SourceStage};

/// Number of shards in these checks.
const SHARDS: Shard = 4;

/// Returns whether exactly one member holds each shard, and every member holds at least one shard.
fn shared(members: &[&mut Listener]) -> bool {
    let held: usize = members.iter().map(|member| member.held.len()).sum();
    let all: BTreeSet<Shard> = members.iter().flat_map(|member| &member.held).copied().collect();
    held == usize::from(SHARDS) && all.len() == held && members.iter().all(|member| !member.held.is_empty())
}

impl SourceStage {
    /// Polls members, which release revoked shards, until the shards are shared.
    async fn share(&self, members: &mut [&mut Listener]) -> Checked {
        let mut bound = self.bound();
        loop {
            if shared(members) {
                // Events of the last member to join may still be on the way.
                self.listen(members).await?;
            }
            if shared(members) && members.iter().all(|member| member.revoked.is_empty()) {
                return Ok(());
            }
            if bound.next().is_err() {
                let held: Vec<_> = members.iter().map(|member| &member.held).collect();
                return Err(format!("the shards do not get shared: {held:?}"));
            }
            for member in &mut *members {
                member.poll().await?;
                member.release_revoked().await;
            }
        }
    }
}

/// Checks that the members read all topics of all their shards, from the beginning to this end offset.
async fn all_is_read(
    stage: &SourceStage,
    members: &mut [&mut Listener],
    topics: &[Text],
    end: i64,
) -> Checked {
    for member in &mut *members {
        member.start_all(topics).await?;
    }
    let read = |members: &[&mut Listener]| {
        members.iter().all(|member| {
            let parts = member.held.iter().flat_map(|shard| topics.iter().map(move |topic| (topic, *shard)));
            parts.into_iter().all(|(topic, shard)| member.ends(topic, shard, end) > 0)
        })
    };
    stage.until(members, "the ends of all topics of the shards that are held", read).await?;
    for member in members {
        for (topic, shard) in member.readings.keys() {
            let found = member.offsets(topic, *shard);
            if found != (0..end).collect::<Vec<i64>>() {
                return Err(format!(
                    "of {end} messages of {topic}, partition {shard}, {found:?} were reported"
                ));
            }
        }
    }
    Ok(())
}

/// Produces one more message in every topic partition.
async fn one_more(stage: &SourceStage, topics: &[Text], number: u32) -> Checked {
    for topic in topics {
        for partition in 0..SHARDS {
            stage.produce(topic, partition, number..number + 1).await?;
        }
    }
    Ok(())
}

pub(super) async fn moves(stage: &mut SourceStage) -> Checked {
    let topics = stage.topics(SHARDS, 5).await?;
    let mut one = stage.sole_listener("worker-0", &topics, SHARDS).await?;
    all_is_read(stage, &mut [&mut one], &topics, 5).await?;

    // The second member gets no shard before the first member has released it. After the revocation, the
    // first member gets nothing more of the shard.
    let mut two = stage.listener("worker-1", &topics).await?;
    let revoked = |members: &[&mut Listener]| members.iter().any(|member| !member.revoked.is_empty());
    stage.until(&mut [&mut one, &mut two], "shards are revoked when a member joins", revoked).await?;
    one_more(stage, &topics, 5).await?;
    stage.listen(&mut [&mut one, &mut two]).await?;
    if !two.held.is_empty() {
        return Err(format!("shards {:?} were assigned before they were released", two.held));
    }
    stage.share(&mut [&mut one, &mut two]).await?;

    for shard in 0..SHARDS {
        for member in [&mut one, &mut two] {
            let held = member.held.contains(&shard);
            if member.assigned(shard, stage.bound()).await? != held {
                return Err(format!(
                    "shard {shard}: {held} was reported, but the group, asked again, disagrees"
                ));
            }
        }
    }
    all_is_read(stage, &mut [&mut one, &mut two], &topics, 6).await?;
    // A shard of another member cannot be read.
    for shard in two.held.clone() {
        let from = topics.iter().map(|topic| (topic.clone(), Start::Earliest)).collect();
        // The source may refuse the start at once, or report nothing.
        let _refused = one.source.start(shard, from).await;
    }
    stage.listen(&mut [&mut one, &mut two]).await?;

    // A member that leaves gives its shards to the others.
    one.source.close().await;
    stage.share(&mut [&mut two]).await?;
    one_more(stage, &topics, 6).await?;
    all_is_read(stage, &mut [&mut two], &topics, 7).await?;
    two.source.close().await;
    Ok(())
}

pub(super) async fn expiry(stage: &mut SourceStage) -> Checked {
    let topics = stage.topics(SHARDS, 5).await?;
    let mut one = stage.sole_listener("worker-0", &topics, SHARDS).await?;
    let mut two = stage.listener("worker-1", &topics).await?;
    stage.share(&mut [&mut one, &mut two]).await?;
    all_is_read(stage, &mut [&mut one, &mut two], &topics, 5).await?;

    if !stage.place.expire("worker-0").await? {
        stage.left_out.push("members whose session ends");
        one.source.close().await;
        two.source.close().await;
        return Ok(());
    }
    stage.share(&mut [&mut two]).await?;
    one_more(stage, &topics, 5).await?;
    all_is_read(stage, &mut [&mut two], &topics, 6).await?;
    let held = one.held.clone();
    for shard in &held {
        if one.assigned(*shard, stage.bound()).await? {
            return Err(format!(
                "the group, asked again, still assigns shard {shard} to who was taken for dead"
            ));
        }
    }
    let lost = |members: &[&mut Listener]| members.iter().all(|member| member.lost == held);
    stage.until(&mut [&mut one], "all shards are lost of who was taken for dead", lost).await?;
    // The first member joins again, and the two members share the shards.
    stage.share(&mut [&mut one, &mut two]).await?;
    all_is_read(stage, &mut [&mut one, &mut two], &topics, 6).await?;
    one.source.close().await;
    two.source.close().await;
    Ok(())
}

pub(super) async fn fencing(stage: &mut SourceStage) -> Checked {
    let topics = stage.topics(SHARDS, 5).await?;
    let mut one = stage.sole_listener("worker-0", &topics, SHARDS).await?;
    all_is_read(stage, &mut [&mut one], &topics, 5).await?;
    let mut two = stage.listener("worker-0", &topics).await?;
    let fenced = |members: &[&mut Listener]| members.iter().any(|member| member.fenced);
    stage.until(&mut [&mut one, &mut two], "one of two members of one name is fenced", fenced).await?;
    if two.fenced {
        return Err("the member that came later is fenced".into());
    }
    stage.share(&mut [&mut two]).await?;
    all_is_read(stage, &mut [&mut two], &topics, 5).await?;
    one.source.close().await;
    two.source.close().await;
    Ok(())
}
