//! Shows the archive files of one hour and their events as JSON lines. Each file and each event has a line,
//! so that an hour of any size can be streamed.

use prorata_schemas::body::EventRecordRef;
use prorata_schemas::event::{Event, Payload};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::Hour;
use prorata_worker::WorkerError;
use prorata_worker::names::{self, ArchivePath, Shard};
use prorata_worker::ports::{ObjectMeta, Ports};
use prorata_worker::root::look;
use serde::Serialize;

use super::{ShowError, damaged, newest};

/// The events to show.
#[derive(Clone, Debug)]
pub struct ArchiveQuestion {
    /// The shard.
    pub shard: Shard,
    /// The hour; `None` for the newest hour with files.
    pub hour: Option<Hour>,
    /// The organization; `None` for all.
    pub organization: Option<OrganizationId>,
}

/// An archive file. Its events follow.
#[derive(Serialize)]
struct FileLine<'a> {
    file: &'a str,
    bytes: u64,
    hour: String,
    /// Whether the checkpoint counts the file; `None` if the checkpoint cannot be read.
    counts: Option<bool>,
}

/// An event of a file.
#[derive(Serialize)]
struct EventLine<'a> {
    file: &'a str,
    organization_id: &'a OrganizationId,
    event_time: String,
    recorded_at: Option<String>,
    is_retraction: bool,
    event: &'a Payload,
}

/// A record, or a file, that cannot be read.
#[derive(Serialize)]
struct FaultLine<'a> {
    file: &'a str,
    fault: &'a str,
}

/// Passes a line for each archive file of the hour and for each of its events to `each`, which returns
/// whether it wants more. Returns a message for each object that could not be read; each fault of a file has
/// its own line.
///
/// # Errors
/// If the shard has no checkpoint or no files in the hour, or storage is unavailable.
pub async fn archive(
    ports: &Ports,
    question: &ArchiveQuestion,
    each: &mut dyn FnMut(&str) -> bool,
) -> Result<Vec<String>, ShowError> {
    let (shard, store) = (question.shard, &*ports.store);
    let mut faults = Vec::new();
    let checkpoint = newest(store, shard).await?.or_fault(&mut faults);
    let (hour, files) = files(ports, question).await?;
    let counted = match &checkpoint {
        Some(checkpoint) => Some(look::archive_files(store, checkpoint, hour).await?),
        None => None,
    };
    for file in files {
        let counts = counted.as_ref().map(|counted| counted.contains(&file.path));
        let line = FileLine { file: &file.path, bytes: file.bytes, hour: hour.to_string(), counts };
        if !each(&serde_json::to_string(&line)?)
            || !read(ports, question, &file.path, &mut faults, each).await?
        {
            break;
        }
    }
    Ok(faults)
}

/// Returns the files of the hour, whether or not they count. The newest hour is found by a listing of the
/// shard's whole archive.
async fn files(ports: &Ports, question: &ArchiveQuestion) -> Result<(Hour, Vec<ObjectMeta>), ShowError> {
    let shard = question.shard;
    let folder = match question.hour {
        Some(hour) => names::archive_date(shard, hour),
        None => names::archive_folder(shard),
    };
    let listed = ports.store.list(&folder).await.map_err(WorkerError::Store)?;
    let hour_of = |file: &ObjectMeta| ArchivePath::parse(&file.path).map(|path| path.hour);
    let Some(hour) = question.hour.or_else(|| listed.iter().filter_map(hour_of).max()) else {
        return Err(ShowError::NotFound(format!("the archive of shard {shard} is empty")));
    };
    let files: Vec<_> = listed.into_iter().filter(|file| hour_of(file) == Some(hour)).collect();
    if files.is_empty() {
        let message = format!(
            "the archive of shard {shard} has no file of hour {hour}; leave out --hour for the newest hour"
        );
        return Err(ShowError::NotFound(message));
    }
    Ok((hour, files))
}

/// Passes a line for each wanted event and each fault of one file to `each`. Returns whether `each` wants
/// more.
async fn read(
    ports: &Ports,
    question: &ArchiveQuestion,
    file: &str,
    faults: &mut Vec<String>,
    each: &mut dyn FnMut(&str) -> bool,
) -> Result<bool, ShowError> {
    let bytes = ports.store.get(file).await.map_err(WorkerError::Store)?;
    let (mut continues, mut failure) = (true, None);
    let mut line = |line: Result<String, serde_json::Error>| match line {
        Ok(line) if continues => continues = each(&line),
        Ok(_) => {}
        Err(error) => drop(failure.get_or_insert(error)),
    };
    let mut first_fault = None;
    let mut fault = |cause: String, line: &mut dyn FnMut(_)| {
        line(serde_json::to_string(&FaultLine { file, fault: &cause }));
        first_fault.get_or_insert(cause);
    };
    match &bytes {
        None => fault("it is gone; a worker may have merged it".to_owned(), &mut line),
        Some(bytes) => {
            let read = ports.archive.read(&mut &**bytes, &mut |position, record| match record {
                Ok(EventRecordRef { event, .. }) => {
                    let wanted = question.organization.as_ref();
                    if wanted.is_none_or(|wanted| **wanted == *event.organization_id()) {
                        line(event_line(file, &event.into_owned()));
                    }
                }
                Err(rejected) => fault(rejected.at(position), &mut line),
            });
            if let Err(error) = read {
                fault(error.to_string(), &mut line);
            }
        }
    }
    faults.extend(first_fault.map(|cause| damaged(file, cause)));
    failure.map_or(Ok(continues), |error| Err(error.into()))
}

fn event_line(file: &str, event: &Event) -> Result<String, serde_json::Error> {
    serde_json::to_string(&EventLine {
        file,
        organization_id: &event.organization_id,
        event_time: event.event_time.to_string(),
        recorded_at: event.recording.recorded_at().map(|at| at.to_string()),
        is_retraction: event.recording.is_retraction(),
        event: &event.payload,
    })
}
