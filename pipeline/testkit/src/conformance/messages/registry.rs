//! Checks of the requests to the registry and of the meaning of its responses.

use std::time::Duration;

use futures::future::join_all;
use prorata_schemas::body::EventRecordRef;
use prorata_schemas::event::EventRecord;
use prorata_schemas::reject::Reason;
use prorata_worker::source::{DecodeFailure, MessageDecoder};
use tokio::time::sleep;

use super::{
    Answering, Checked, Judged, MessageStage, Written, decoded, equal, node_stopped, quota_deleted, rejected,
};
use crate::wait::Deadline;

/// Pause after an error before the registry is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Returns the schema that a message needs, from a decoder that does not know it.
fn needed(decoder: &dyn MessageDecoder, value: &[u8]) -> Result<u32, String> {
    match decoder.decode(value) {
        Err(DecodeFailure::NeedsSchema(id)) => Ok(id),
        other => Err(format!("a message whose schema was never fetched became {other:?}")),
    }
}

/// Decodes a message into an event that owns its texts.
fn owned(decoder: &dyn MessageDecoder, value: &[u8]) -> Result<EventRecord, DecodeFailure> {
    decoder.decode(value).map(EventRecordRef::into_owned)
}

/// Fetches a schema that the registry may not know. Requests the schema again for a while, until the result
/// is certain.
async fn settle(stage: &MessageStage, decoder: &dyn MessageDecoder, schema_id: u32) -> Checked {
    let deadline = Deadline::after(stage.place.settles_within());
    loop {
        match fetch(decoder, schema_id).await {
            Err(_) if !deadline.passed() => sleep(ASK_AGAIN).await,
            settled => return settled,
        }
    }
}

/// Decodes a message whose schema the registry may not know.
async fn settled(stage: &MessageStage, decoder: &dyn MessageDecoder, value: &[u8]) -> Result<Judged, String> {
    if let Err(DecodeFailure::NeedsSchema(id)) = decoder.decode(value) {
        settle(stage, decoder, id).await?;
    }
    decoded(decoder, value).await
}

async fn fetch(decoder: &dyn MessageDecoder, schema_id: u32) -> Checked {
    decoder.fetch(schema_id).await.map_err(|error| error.to_string())
}

pub(super) async fn unknown(stage: &mut MessageStage) -> Checked {
    let record = EventRecord::new(node_stopped("n"));
    let Some(message) = stage.message(&record, Written::Unknown).await? else {
        stage.left_out.push("schemas that nobody knows");
        return Ok(());
    };
    let decoder = stage.place.decoder()?;
    for round in ["first", "second"] {
        let what = format!("a schema that nobody knows, the {round} time");
        rejected(&what, settled(stage, &*decoder, &message).await?, Reason::UnknownSchema)?;
    }
    // Messages of known schemas are decoded meanwhile.
    let known = stage.newest(&record).await?;
    equal("a schema that is known", decoded(&*decoder, &known).await?.as_ref(), Ok(&record))?;
    if stage.place.register_unknown().await? {
        let later = decoded(&*stage.place.decoder()?, &message).await?;
        return equal("a schema that is registered by now", later.as_ref(), Ok(&record));
    }
    stage.left_out.push("schemas that are registered later");
    Ok(())
}

pub(super) async fn asking(stage: &mut MessageStage) -> Checked {
    let record = EventRecord::new(node_stopped("n"));
    let (message, decoder) = (stage.newest(&record).await?, stage.place.decoder()?);
    // No id, whatever its number, makes the registry fail for long.
    for id in [0, u32::MAX] {
        settle(stage, &*stage.place.decoder()?, id).await?;
    }
    if !stage.place.has_registry() {
        stage.left_out.push("registries");
        return equal("a message without a registry", owned(&*decoder, &message), Ok(record));
    }
    let asked = stage.place.asked();
    let more = |count: u64| asked.map(|asked| asked + count);
    let id = needed(&*decoder, &message)?;
    equal("decoding again", needed(&*decoder, &message)?, id)?;
    equal("questions to the registry by decoding", stage.place.asked(), asked)?;
    fetch(&*decoder, id).await?;
    equal("questions to the registry by fetching", stage.place.asked(), more(1))?;
    for _ in 0..3 {
        equal("a message of a schema that was fetched", owned(&*decoder, &message), Ok(record.clone()))?;
    }
    equal("questions to the registry afterwards", stage.place.asked(), more(1))?;
    equal("what one process knows another one does not", needed(&*stage.place.decoder()?, &message)?, id)?;
    if asked.is_none() {
        stage.left_out.push("how often the registry is asked");
    }
    all_at_once(stage).await
}

/// Checks that several schemas can be fetched at the same time, some of them twice.
async fn all_at_once(stage: &MessageStage) -> Checked {
    let decoder = stage.place.decoder()?;
    let (events, mut messages) = (stage.all_events(), Vec::new());
    for record in &events {
        messages.push((stage.newest(record).await?, record));
    }
    let ids = messages.iter().map(|(message, _)| needed(&*decoder, message));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    let fetched = join_all(ids.iter().chain(&ids).map(|id| decoder.fetch(*id))).await;
    fetched.into_iter().collect::<Result<Vec<()>, _>>().map_err(|error| error.to_string())?;
    messages.iter().try_for_each(|(message, record)| {
        equal("what was fetched at the same time", owned(&*decoder, message).as_ref(), Ok(*record))
    })
}

pub(super) async fn unavailable(stage: &mut MessageStage) -> Checked {
    let (known, record) = (&EventRecord::new(node_stopped("n")), &EventRecord::new(quota_deleted()));
    let (known_message, message) = (stage.newest(known).await?, stage.newest(record).await?);
    let unknown = stage.message(known, Written::Unknown).await?;
    for how in [Answering::Failing, Answering::Silent] {
        let decoder = stage.place.decoder()?;
        equal("while it answers", decoded(&*decoder, &known_message).await?.as_ref(), Ok(known))?;
        if !stage.place.answer(how).await? {
            stage.left_out.push(match how {
                Answering::Silent => "registries that never answer",
                Answering::Failing | Answering::Well => "registries that fail",
            });
            continue;
        }
        for message in std::iter::once(&message).chain(&unknown) {
            fails(how, &*decoder, message).await?;
        }
        equal("a schema that is known already", owned(&*decoder, &known_message).as_ref(), Ok(known))?;
        stage.place.answer(Answering::Well).await?;
        equal("when it answers again", decoded(&*decoder, &message).await?.as_ref(), Ok(record))?;
        if let Some(unknown) = &unknown {
            let found = settled(stage, &*decoder, unknown).await?;
            rejected("a schema that nobody knows, once it answers", found, Reason::UnknownSchema)?;
        }
    }
    Ok(())
}

/// Checks that fetching reports the registry as unavailable, even if it never responds. The message still
/// needs its schema afterwards.
async fn fails(how: Answering, decoder: &dyn MessageDecoder, message: &[u8]) -> Checked {
    let id = needed(decoder, message)?;
    for _ in 0..2 {
        match decoder.fetch(id).await {
            Ok(()) => return Err(format!("{how:?}: no error, and then {:?}", decoder.decode(message))),
            Err(error) if error.message.trim().is_empty() => {
                return Err(format!("{how:?}: an error without words"));
            }
            Err(_) => equal("what is needed after an error", needed(decoder, message)?, id)?,
        }
    }
    Ok(())
}
