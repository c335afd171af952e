//! Finds the workload of a pod from the pod alone.

use prorata_schemas::Text;

use crate::object::ObjectMeta;

/// Returns the kind and the name of a pod's workload: the controller of the pod, or the owner of the
/// controller. Returns `None` if the pod has no controller.
///
/// A ReplicaSet `N-H` of a pod with the label `pod-template-hash: H` was created by Deployment `N`. A Job
/// `N-T` was created by CronJob `N` if two conditions hold: `T` is the scheduled minute, counted from 1970,
/// and the pod was created in the week after it. Nobody chooses such names by hand, so neither ReplicaSets
/// nor Jobs need to be watched, and the answer never changes.
pub fn of(meta: &ObjectMeta) -> Option<(Text, Text)> {
    let owner = meta.owner_references.iter().find(|owner| owner.controller == Some(true))?;
    let name = owner.name.as_str();
    let made_by = match owner.kind.as_str() {
        "ReplicaSet" => deployment(meta, name).map(|name| ("Deployment", name)),
        "Job" => cron_job(meta, name).map(|name| ("CronJob", name)),
        _ => None,
    };
    let (kind, name) = made_by.unwrap_or((owner.kind.as_str(), name));
    Some((kind.into(), name.into()))
}

fn deployment<'n>(meta: &ObjectMeta, name: &'n str) -> Option<&'n str> {
    let hash = meta.labels.get("pod-template-hash")?;
    name.strip_suffix(&**hash)?.strip_suffix('-').filter(|name| !name.is_empty())
}

fn cron_job<'n>(meta: &ObjectMeta, name: &'n str) -> Option<&'n str> {
    const MINUTE_SECONDS: i64 = 60;
    const WEEK_MINUTES: i64 = 7 * 24 * 60;
    let (name, minute) = name.rsplit_once('-').filter(|(name, _)| !name.is_empty())?;
    let plain = minute.len() == 8 && minute.bytes().all(|byte| byte.is_ascii_digit());
    let minute: i64 = if plain { minute.parse().ok()? } else { return None };
    let created = meta.creation_timestamp?.0.seconds();
    let delay = created / MINUTE_SECONDS - minute;
    (0..=WEEK_MINUTES).contains(&delay).then_some(name)
}
