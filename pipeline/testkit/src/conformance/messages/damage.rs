//! Checks of bytes that are not a message, or only a part of a message.

use prorata_schemas::body::EventRecordRef;
use prorata_schemas::event::EventRecord;
use prorata_schemas::reject::Reason;
use prorata_worker::source::{DecodeFailure, MessageDecoder};

use super::{Checked, MessageStage, Written, decoded, rejected};

/// Checks that a message that is cut at any byte is malformed, whether or not its schema is known. The
/// decoder does not ask the registry.
pub(super) async fn cut(stage: &MessageStage) -> Checked {
    let (decoder, ignorant) = (stage.place.decoder()?, stage.place.decoder()?);
    for record in &stage.all_events() {
        for written in [Written::Newest, Written::Evolved] {
            let Some(message) = stage.message(record, written).await? else { continue };
            let whole = needed(&*ignorant, &message);
            decoded(&*decoder, &message).await?.map_err(|reject| reject.to_string())?;
            for at in 0..message.len() {
                let (what, cut) = (format!("{:?} cut at {at}", record.event), &message[..at]);
                let needed = needed(&*ignorant, cut);
                if needed.is_some() && needed != whole {
                    return Err(format!("{what} asks for schema {needed:?} instead of {whole:?}"));
                }
                rejected(&what, decoded(&*decoder, cut).await?, Reason::Malformed)?;
            }
        }
    }
    Ok(())
}

fn needed(decoder: &dyn MessageDecoder, value: &[u8]) -> Option<u32> {
    match decoder.decode(value) {
        Err(DecodeFailure::NeedsSchema(id)) => Some(id),
        _ => None,
    }
}

pub(super) async fn longer(stage: &MessageStage) -> Checked {
    let decoder = stage.place.decoder()?;
    for record in &stage.all_events() {
        for written in [Written::Newest, Written::Evolved] {
            let Some(message) = stage.message(record, written).await? else { continue };
            for tail in [&[0][..], b"x", &message] {
                let what = format!("{:?} and {} bytes more", record.event, tail.len());
                let longer = [&message[..], tail].concat();
                rejected(&what, decoded(&*decoder, &longer).await?, Reason::Malformed)?;
            }
        }
    }
    Ok(())
}

pub(super) fn strange(stage: &MessageStage) -> Checked {
    let decoder = stage.place.decoder()?;
    let mut strange = stage.place.strange();
    strange.push(Vec::new());
    for value in strange {
        let what = format!("the value {value:02x?}");
        match decoder.decode(&value) {
            Err(DecodeFailure::NeedsSchema(id)) => return Err(format!("{what} needs schema {id}")),
            Err(DecodeFailure::Reject(reject)) => rejected(&what, Err(reject), Reason::Malformed)?,
            Ok(record) => rejected(&what, Ok(record.into_owned()), Reason::Malformed)?,
        }
    }
    Ok(())
}

/// Checks messages with one wrong bit. The message may become another event, but never half an event, and the
/// body of the event is canonical.
pub(super) async fn bent(stage: &MessageStage) -> Checked {
    let decoder = stage.place.decoder()?;
    for record in &stage.all_events() {
        for written in [Written::Newest, Written::Evolved] {
            let Some(message) = stage.message(record, written).await? else { continue };
            decoded(&*decoder, &message).await?.map_err(|reject| reject.to_string())?;
            for bit in 0..message.len() * 8 {
                let mut bent = message.clone();
                bent.iter_mut().skip(bit / 8).take(1).for_each(|byte| *byte ^= 1 << (bit % 8));
                let found = decoder.decode(&bent).map(EventRecordRef::into_owned);
                judge(&format!("{:?} with bit {bit} wrong", record.event), found)?;
            }
        }
    }
    Ok(())
}

fn judge(what: &str, found: Result<EventRecord, DecodeFailure>) -> Checked {
    match found {
        Ok(record) if record == EventRecord::new(record.event.clone()) => Ok(()),
        Ok(record) => Err(format!("{what} became {:?}, and not its canonical body", record.event)),
        Err(DecodeFailure::Reject(reject)) if reject.message.trim().is_empty() => {
            Err(format!("{what} is rejected without a message"))
        }
        Err(DecodeFailure::Reject(_) | DecodeFailure::NeedsSchema(_)) => Ok(()),
    }
}
