//! Reading many messages by one call. The client library has such a call, its Rust wrapper has not: this is the one
//! place where it is called, and the one place with unsafe code. Half the time per message goes otherwise into taking
//! them one by one.
//!
//! Partitions' queues are forwarded to one queue of ours, so that messages never come among the consumer's own events
//! (rebalances, errors), which the call would swallow. Assigning ends the forwarding of a partition some time later,
//! when its fetcher has stopped; until we forward it anew its messages wait in its own queue, in order.
//!
//! The rules that make this sound:
//! - the library's handles live no longer than the consumer, which is borrowed as long as they live;
//! - no reference is made to a message as a whole: its error is a number that a broker sent, and perhaps no value of the
//!   bindings' enumeration;
//! - a message's memory is the library's until it is destroyed: what is lent to the callback lives no longer than the
//!   call, and the guard destroys each message once, also when the callback panics;
//! - one thread reads, assigns and polls: `Batch` is neither `Send` nor `Sync`.

#![expect(unsafe_code, reason = "the client library's call for many messages has no safe wrapper")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;
use std::time::Duration;

use prorata_worker::source::Header;
use rdkafka::bindings as library;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::RDKafkaErrorCode;

/// Most messages of one call.
const BATCH: usize = 2_048;

/// What was read: messages of one topic partition in their order, or what happened to it.
pub(super) enum Read<'b> {
    /// Messages, at least one.
    Messages(&'b [Raw<'b>]),
    /// Its end was reached, or reading failed.
    Event {
        /// What happened.
        code: RDKafkaErrorCode,
        /// The offset at which.
        offset: i64,
        /// The library's words.
        reason: String,
    },
}

/// A message in the library's memory.
#[repr(transparent)]
pub(super) struct Raw<'b> {
    message: NonNull<library::rd_kafka_message_t>,
    memory: PhantomData<&'b library::rd_kafka_message_t>,
}

impl Raw<'_> {
    /// What happened, where it is no message of a topic.
    fn error(&self) -> Option<RDKafkaErrorCode> {
        // SAFETY: the guard destroys the message only after the lifetime of `self` has ended; the enumeration is
        // declared with the size of this number.
        let code = unsafe { (&raw const (*self.message.as_ptr()).err).cast::<i32>().read() };
        if code == library::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR as i32 {
            return None;
        }
        let known = library::rd_kafka_resp_err_t::try_from(code);
        Some(known.map_or(RDKafkaErrorCode::Unknown, RDKafkaErrorCode::from))
    }

    /// Its offset.
    pub(super) fn offset(&self) -> i64 {
        // SAFETY: the message is alive.
        unsafe { (*self.message.as_ptr()).offset }
    }

    /// Its topic, which may be null where there was an error, and its partition.
    fn place(&self) -> (*mut library::rd_kafka_topic_t, i32) {
        let message = self.message.as_ptr();
        // SAFETY: the message is alive.
        unsafe { ((*message).rkt, (*message).partition) }
    }

    /// Its timestamp in milliseconds since the epoch; -1 without one.
    pub(super) fn timestamp_millis(&self) -> i64 {
        let mut kind = library::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is alive, and `kind` outlives the call.
        unsafe { library::rd_kafka_message_timestamp(self.message.as_ptr(), &raw mut kind) }
    }

    /// A copy of its key.
    pub(super) fn key(&self) -> Option<Vec<u8>> {
        let message = self.message.as_ptr();
        // SAFETY: the message is alive; the library says that `key` is null, or points to `key_len` bytes that live as
        // long as the message.
        unsafe { copy((*message).key, (*message).key_len) }
    }

    /// A copy of its value.
    pub(super) fn value(&self) -> Option<Vec<u8>> {
        let message = self.message.as_ptr();
        // SAFETY: as for the key. Of a message without error the payload is its value.
        unsafe { copy((*message).payload, (*message).len) }
    }

    /// Copies of its headers, in their order.
    pub(super) fn headers(&self) -> Vec<Header> {
        let mut headers = ptr::null_mut();
        // SAFETY: the message is alive; the headers stay the message's own.
        let code = unsafe { library::rd_kafka_message_headers(self.message.as_ptr(), &raw mut headers) };
        let mut found = Vec::new();
        if code != library::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR || headers.is_null() {
            return found;
        }
        let (mut name, mut value, mut size): (*const c_char, *const c_void, usize) =
            (ptr::null(), ptr::null(), 0);
        loop {
            // SAFETY: the headers live as long as the message; an index past the last one is answered by an error, and
            // then nothing is written.
            let code = unsafe {
                let (name, value, size) = (&raw mut name, &raw mut value, &raw mut size);
                library::rd_kafka_header_get_all(headers, found.len(), name, value, size)
            };
            if code != library::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR || name.is_null() {
                return found;
            }
            // SAFETY: names end with a null; a value is null, or points to `size` bytes; both live as the message does.
            let header = unsafe { (CStr::from_ptr(name).to_string_lossy().into_owned(), copy(value, size)) };
            found.push(header);
        }
    }
}

/// # Safety
/// `bytes` is null, or points to `length` bytes that nobody writes to meanwhile.
unsafe fn copy(bytes: *const c_void, length: usize) -> Option<Vec<u8>> {
    // SAFETY: what the caller promises.
    (!bytes.is_null()).then(|| unsafe { slice::from_raw_parts(bytes.cast::<u8>(), length) }.to_vec())
}

/// A handle on one of the library's queues.
struct Handle(NonNull<library::rd_kafka_queue_t>);

impl Handle {
    /// Forwards another queue to this one; where that is so already, nothing changes.
    fn take(&self, other: &Self) {
        // SAFETY: both handles are alive.
        unsafe { library::rd_kafka_queue_forward(other.0.as_ptr(), self.0.as_ptr()) };
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and the client outlives it.
        unsafe { library::rd_kafka_queue_destroy(self.0.as_ptr()) };
    }
}

/// Reads what a consumer is assigned.
pub(super) struct Batch<'c, C: ConsumerContext> {
    /// Partitions' queues, which are destroyed before the one they are forwarded to.
    partitions: BTreeMap<(CString, i32), Handle>,
    queue: Handle,
    slots: Vec<*mut library::rd_kafka_message_t>,
    consumer: &'c BaseConsumer<C>,
}

impl<'c, C: ConsumerContext> Batch<'c, C> {
    /// Prepares reading of a consumer; none when the library has no memory.
    pub(super) fn new(consumer: &'c BaseConsumer<C>) -> Option<Self> {
        // SAFETY: the client is alive.
        let queue = NonNull::new(unsafe { library::rd_kafka_queue_new(consumer.client().native_ptr()) })?;
        let slots = vec![ptr::null_mut(); BATCH];
        Some(Self { partitions: BTreeMap::new(), queue: Handle(queue), slots, consumer })
    }

    /// Makes a partition's messages come here: called before it is assigned.
    pub(super) fn include(&mut self, topic: &str, partition: i32) {
        let Ok(topic) = CString::new(topic) else { return };
        let key = (topic, partition);
        if self.partitions.contains_key(&key) {
            return;
        }
        // SAFETY: the client is alive, and the name ends with a null. The partition's queue lives as long as its handle.
        let queue = unsafe {
            library::rd_kafka_queue_get_partition(
                self.consumer.client().native_ptr(),
                key.0.as_ptr(),
                partition,
            )
        };
        if let Some(queue) = NonNull::new(queue) {
            let queue = Handle(queue);
            self.queue.take(&queue);
            self.partitions.insert(key, queue);
        }
    }

    /// Forgets all partitions.
    pub(super) fn clear(&mut self) {
        self.partitions.clear();
    }

    /// Forwards partitions' queues here, where that has ended.
    pub(super) fn forward(&self) {
        for partition in self.partitions.values() {
            self.queue.take(partition);
        }
    }

    /// Waits for messages, and hands over what has come by topic and partition. Answers how much it was.
    pub(super) fn read(&mut self, wait: Duration, each: &mut dyn FnMut(&str, i32, Read<'_>)) -> usize {
        let wait = c_int::try_from(wait.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: the queue is alive, and there are as many slots as we say.
        let count = unsafe {
            let (slots, size) = (self.slots.as_mut_ptr(), self.slots.len());
            library::rd_kafka_consume_batch_queue(self.queue.0.as_ptr(), wait, slots, size)
        };
        let count = usize::try_from(count).unwrap_or(0);
        let guard = Guard(self.slots.get_mut(..count).unwrap_or_default());
        let messages = guard.messages();
        let same = |one: &Raw<'_>, next: &Raw<'_>| {
            one.place() == next.place() && one.error().is_some() == next.error().is_some()
        };
        for run in messages.chunk_by(same) {
            let Some(first) = run.first() else { continue };
            let (topic, partition) = first.place();
            // SAFETY: a message of a partition, or of an event that concerns one, has a topic; the name lives with it.
            let topic =
                (!topic.is_null()).then(|| unsafe { CStr::from_ptr(library::rd_kafka_topic_name(topic)) });
            let topic = topic.map(CStr::to_string_lossy).unwrap_or_default();
            if first.error().is_none() {
                each(&topic, partition, Read::Messages(run));
            }
            for event in run {
                let Some(code) = event.error() else { break };
                // SAFETY: the message is alive; of one with an error the words end with a null, and live with it.
                let reason = unsafe { library::rd_kafka_message_errstr(event.message.as_ptr()) };
                let reason = if reason.is_null() {
                    String::new()
                } else {
                    // SAFETY: as above.
                    unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned()
                };
                each(&topic, partition, Read::Event { code, offset: event.offset(), reason });
            }
        }
        count
    }
}

/// Destroys messages when it is dropped.
struct Guard<'b>(&'b mut [*mut library::rd_kafka_message_t]);

impl Guard<'_> {
    fn messages(&self) -> &[Raw<'_>] {
        // SAFETY: `Raw` is a non-null pointer without more, the library fills slots with such, and the guard destroys
        // what they point to only after the borrow has ended.
        unsafe { slice::from_raw_parts(self.0.as_ptr().cast::<Raw<'_>>(), self.0.len()) }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        for message in self.0.iter() {
            // SAFETY: the library gave us the message, and nobody destroys it but us, here, once.
            unsafe { library::rd_kafka_message_destroy(*message) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    #[test]
    fn an_error_is_any_number_that_a_broker_sends() {
        for (number, expected) in [
            (0, None),
            (1, Some(RDKafkaErrorCode::OffsetOutOfRange)),
            (-191, Some(RDKafkaErrorCode::PartitionEOF)),
            (-1, Some(RDKafkaErrorCode::Unknown)),
            (12_345, Some(RDKafkaErrorCode::Unknown)),
            (i32::MIN, Some(RDKafkaErrorCode::Unknown)),
        ] {
            let mut memory = MaybeUninit::<library::rd_kafka_message_t>::zeroed();
            let message = NonNull::new(memory.as_mut_ptr()).unwrap();
            // SAFETY: the memory is ours, and all zero.
            unsafe { (&raw mut (*message.as_ptr()).err).cast::<i32>().write(number) };
            let raw = Raw { message, memory: PhantomData };
            assert_eq!((raw.error(), raw.offset()), (expected, 0), "{number}");
        }
    }
}
