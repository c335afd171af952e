//! A reader that takes many messages with one call. The client library has such a call, but its Rust wrapper
//! does not. This is the only file that makes the call, and the only file with unsafe code. The call halves
//! the processor time. It takes 0.29 to 0.32 µs per message, against 0.56 to 0.74 µs one by one
//! (`benches/kafka.rs` measures both).
//!
//! The queues of partitions are forwarded to one queue of ours. So messages never mix with the consumer's own
//! events (rebalances, errors), which the call would swallow. Some time after an assignment, when a
//! partition's fetcher has stopped, its forwarding ends. Until we forward it again, its messages wait in its
//! own queue, in order.
//!
//! Why this is sound:
//! - The library's handles borrow the consumer, so they do not outlive it.
//! - No reference to a whole message is created. The message's error code comes from a broker, and may not be
//!   a value of the bindings' enumeration.
//! - A message's memory belongs to the library until the message is destroyed. The callback's borrow ends
//!   with the call, and the guard destroys each message once, even if the callback panics.
//! - One thread reads, assigns and polls: `Batch` is neither `Send` nor `Sync`.

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

/// Maximum number of messages of one call. With 1,000 and with 4,096, the measured cost per message is the
/// same.
const BATCH: usize = 2_048;

/// The result of a read: messages of one topic partition in their order, or an event of the partition.
pub(crate) enum Read<'b> {
    /// At least one message.
    Messages(&'b [Raw<'b>]),
    /// The end was reached, or reading failed.
    Event {
        /// The kind of event.
        code: RDKafkaErrorCode,
        /// The offset of the event.
        offset: i64,
        /// The library's description.
        reason: String,
    },
}

/// A message in the library's memory.
#[repr(transparent)]
pub(crate) struct Raw<'b> {
    message: NonNull<library::rd_kafka_message_t>,
    memory: PhantomData<&'b library::rd_kafka_message_t>,
}

impl Raw<'_> {
    /// Returns the code of an event; `None` if this is a message.
    fn error(&self) -> Option<RDKafkaErrorCode> {
        // SAFETY: the guard destroys the message only after the lifetime of `self` has ended; the enumeration
        // is declared with the size of this number.
        let code = unsafe { (&raw const (*self.message.as_ptr()).err).cast::<i32>().read() };
        if code == library::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR as i32 {
            return None;
        }
        let known = library::rd_kafka_resp_err_t::try_from(code);
        Some(known.map_or(RDKafkaErrorCode::Unknown, RDKafkaErrorCode::from))
    }

    /// Returns the message's offset.
    pub(crate) fn offset(&self) -> i64 {
        // SAFETY: the message is alive.
        unsafe { (*self.message.as_ptr()).offset }
    }

    /// Returns the message's topic, which may be null for an event, and its partition.
    fn place(&self) -> (*mut library::rd_kafka_topic_t, i32) {
        let message = self.message.as_ptr();
        // SAFETY: the message is alive.
        unsafe { ((*message).rkt, (*message).partition) }
    }

    /// Returns the message's timestamp in milliseconds since the epoch; -1 if it has none.
    pub(crate) fn timestamp_millis(&self) -> i64 {
        let mut kind = library::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is alive, and `kind` outlives the call.
        unsafe { library::rd_kafka_message_timestamp(self.message.as_ptr(), &raw mut kind) }
    }

    /// Returns the message's key; `None` if it has no key.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        let message = self.message.as_ptr();
        // SAFETY: the message is alive; the library says that `key` is null, or points to `key_len` bytes
        // that live as long as the message, which `self` does not outlive.
        unsafe { bytes((*message).key, (*message).key_len) }
    }

    /// Returns the message's value; `None` if it has no value.
    pub(crate) fn value(&self) -> Option<&[u8]> {
        let message = self.message.as_ptr();
        // SAFETY: as for the key. Without an error, the payload is the message's value.
        unsafe { bytes((*message).payload, (*message).len) }
    }

    /// Returns copies of the message's headers, in their order.
    pub(crate) fn headers(&self) -> Vec<Header> {
        let mut headers = ptr::null_mut();
        // SAFETY: the message is alive; the headers remain its property.
        let code = unsafe { library::rd_kafka_message_headers(self.message.as_ptr(), &raw mut headers) };
        let mut found = Vec::new();
        if code != library::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR || headers.is_null() {
            return found;
        }
        let (mut name, mut value, mut size): (*const c_char, *const c_void, usize) =
            (ptr::null(), ptr::null(), 0);
        loop {
            // SAFETY: the headers live as long as the message; for an index past the last one the library
            // returns an error and writes nothing.
            let code = unsafe {
                let (name, value, size) = (&raw mut name, &raw mut value, &raw mut size);
                library::rd_kafka_header_get_all(headers, found.len(), name, value, size)
            };
            if code != library::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR || name.is_null() {
                return found;
            }
            // SAFETY: a name ends with a null; a value is null or points to `size` bytes; both live as long
            // as the message.
            let (name, value) = unsafe { (CStr::from_ptr(name), bytes(value, size)) };
            found.push((name.to_string_lossy().into_owned(), value.map(<[u8]>::to_vec)));
        }
    }
}

/// # Safety
/// `bytes` is null, or points to `length` bytes that live for `'a` and that nobody writes to until then.
unsafe fn bytes<'a>(bytes: *const c_void, length: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!bytes.is_null()).then(|| unsafe { slice::from_raw_parts(bytes.cast::<u8>(), length) })
}

/// A handle to one of the library's queues.
struct Handle(NonNull<library::rd_kafka_queue_t>);

impl Handle {
    /// Forwards another queue to this one. Has no effect if the other queue is already forwarded.
    fn forward(&self, other: &Self) {
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

/// A reader of the partitions that are assigned to a consumer.
pub(crate) struct Batch<'c, C: ConsumerContext> {
    /// Queues of partitions. They are destroyed before the queue they are forwarded to.
    partitions: BTreeMap<(CString, i32), Handle>,
    queue: Handle,
    slots: Vec<*mut library::rd_kafka_message_t>,
    consumer: &'c BaseConsumer<C>,
}

impl<'c, C: ConsumerContext> Batch<'c, C> {
    /// Prepares to read from a consumer; `None` if the library is out of memory.
    pub(crate) fn new(consumer: &'c BaseConsumer<C>) -> Option<Self> {
        // SAFETY: the client is alive.
        let queue = NonNull::new(unsafe { library::rd_kafka_queue_new(consumer.client().native_ptr()) })?;
        let slots = vec![ptr::null_mut(); BATCH];
        Some(Self { partitions: BTreeMap::new(), queue: Handle(queue), slots, consumer })
    }

    /// Directs a partition's messages to this reader's queue. Call this before the partition is assigned.
    pub(crate) fn include(&mut self, topic: &str, partition: i32) {
        let Ok(topic) = CString::new(topic) else { return };
        let key = (topic, partition);
        if self.partitions.contains_key(&key) {
            return;
        }
        // SAFETY: the client is alive, and the name ends with a null. The partition's queue lives as long as
        // its handle.
        let queue = unsafe {
            library::rd_kafka_queue_get_partition(
                self.consumer.client().native_ptr(),
                key.0.as_ptr(),
                partition,
            )
        };
        if let Some(queue) = NonNull::new(queue) {
            let queue = Handle(queue);
            self.queue.forward(&queue);
            self.partitions.insert(key, queue);
        }
    }

    /// Forgets all partitions.
    pub(crate) fn clear(&mut self) {
        self.partitions.clear();
    }

    /// Forwards the queues of partitions again if their forwarding has ended.
    pub(crate) fn forward(&self) {
        for partition in self.partitions.values() {
            self.queue.forward(partition);
        }
    }

    /// Waits for messages, and passes the messages and events that have arrived to `each`, with their topic
    /// and partition. Returns their number.
    pub(crate) fn read(&mut self, wait: Duration, each: &mut dyn FnMut(&str, i32, Read<'_>)) -> usize {
        let wait = c_int::try_from(wait.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: the queue is alive, and there are as many slots as stated.
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
            // SAFETY: a message or event of a partition has a topic; the name lives as long as the message.
            let topic =
                (!topic.is_null()).then(|| unsafe { CStr::from_ptr(library::rd_kafka_topic_name(topic)) });
            let topic = topic.map(CStr::to_string_lossy).unwrap_or_default();
            if first.error().is_none() {
                each(&topic, partition, Read::Messages(run));
            }
            for event in run {
                let Some(code) = event.error() else { break };
                // SAFETY: the message is alive; the text of its error ends with a null and lives as long.
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
        // SAFETY: `Raw` is a non-null pointer and nothing else, the library fills the slots with such
        // pointers, and the guard destroys what they point to only after the borrow has ended.
        unsafe { slice::from_raw_parts(self.0.as_ptr().cast::<Raw<'_>>(), self.0.len()) }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        for message in self.0.iter() {
            // SAFETY: the library gave us the message, and only we destroy it, here, once.
            unsafe { library::rd_kafka_message_destroy(*message) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    #[test]
    fn an_error_may_be_any_number_a_broker_sends() {
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
