//! Avro object container files as they are stored: header, blocks, sync markers.
//!
//! As little as possible of a cut or damaged file is lost. If a block does not end in the sync marker,
//! reading continues after the next marker. The bytes in between are returned as they are.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Bound;
use std::sync::Arc;

use prorata_schemas::body::wire::{Wire, put_bytes, put_long};
use prorata_worker::ports::Wanted;
use sha2::{Digest, Sha256};
use zstd::bulk::Compressor;

use super::codec::{BLOCK_BYTES_MAX, Codec};
use super::error::{BlockFault, FileError, FileFault};
use super::source::Source;

/// Key of the schema's SHA-256 in the header of our own files. The value is hexadecimal, because readers such
/// as fastavro read all metadata as UTF-8.
const SCHEMA_DIGEST: &[u8] = b"prorata.schema.sha256.hex";

/// Key of the index in the header of our own files: a JSON list with the first organization of each block. A
/// file has an index only if its organizations ascend.
const ORGANIZATIONS: &[u8] = b"prorata.organizations";

/// Key of the index's SHA-256 in the header, in hexadecimal. An index that does not match its checksum is
/// ignored.
const ORGANIZATIONS_DIGEST: &[u8] = b"prorata.organizations.sha256.hex";

const MAGIC: &[u8; 4] = b"Obj\x01";
const SYNC: usize = 16;
/// Maximum size of a header, in bytes: enough for the longest schema and other metadata.
const HEADER_BYTES_MAX: usize = 2 << 20;
/// The approximate size limit of a piece of damaged bytes.
const LOST_BYTES_MAX: usize = 16 << 20;
/// Maximum size of a block's record count and byte count, in bytes.
const BLOCK_HEAD_MAX: usize = 20;

/// A file with its header read.
pub(super) struct Container<R> {
    source: Source<R>,
    codec: Codec,
    schema: String,
    sync: [u8; SYNC],
    blocks: u64,
    damage: Option<Arc<BlockFault>>,
    /// The first organization of each block; empty if the file has no valid index.
    organizations: Vec<String>,
}

/// The next part of a file.
pub(super) enum Next {
    /// A block, unpacked into the caller's buffer.
    Block(Block),
    /// Bytes that are not a whole block.
    Lost(Lost),
}

/// The location of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The block's number in the file, from 0.
    pub(super) number: u64,
    /// The offset of the block's first byte in the file.
    pub(super) byte: u64,
    /// The number of records that the block claims to hold.
    pub(super) records: u64,
}

/// Bytes that are not a whole block.
pub(super) struct Lost {
    pub(super) block: Block,
    pub(super) bytes: Vec<u8>,
    pub(super) why: Arc<BlockFault>,
    /// The offset of the records in `bytes`, if these are an uncompressed block that the end of the file cuts
    /// off.
    pub(super) cut_at: Option<usize>,
}

enum Framing {
    Whole { records: u64, head: usize, size: usize },
    Damaged { why: BlockFault, records: u64, cut_at: Option<usize> },
}

impl<R: Read> Container<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// See [`FileError`].
    pub(super) fn open(reader: R) -> Result<Self, FileError> {
        let mut source = Source::new(reader);
        source.fill(MAGIC.len())?;
        if source.at_hand().is_empty() {
            return Err(FileFault::Empty.into());
        }
        if !source.at_hand().starts_with(MAGIC) {
            return Err(FileFault::NoMagic.into());
        }
        source.fill(HEADER_BYTES_MAX)?;
        let header = source.at_hand();
        let mut wire = Wire::new(header.get(MAGIC.len()..).unwrap_or_default());
        let (metadata, sync) = read_header(&mut wire)?;
        let length = header.len() - wire.rest().len();
        source.consume(length);
        let codec = metadata.get(&b"avro.codec"[..]).map_or(&b"null"[..], Vec::as_slice);
        let codec = Codec::named(codec).ok_or_else(|| {
            FileError::Codec(String::from_utf8_lossy(codec.get(..64).unwrap_or(codec)).into_owned())
        })?;
        let schema = metadata.get(&b"avro.schema"[..]).cloned();
        let schema = schema.ok_or(FileFault::NoSchema)?;
        // Only our own files have the digest. Without it, a flipped bit in the schema would turn good blocks
        // into other events.
        let digest = format!("{:x}", Sha256::digest(&schema));
        if metadata.get(SCHEMA_DIGEST).is_some_and(|found| *found != digest.as_bytes()) {
            return Err(FileFault::SchemaChecksum.into());
        }
        let schema = String::from_utf8(schema).map_err(|_| FileFault::SchemaNotUtf8)?;
        let organizations = read_organizations(&metadata);
        Ok(Self { source, codec, schema, sync, blocks: 0, damage: None, organizations })
    }

    /// Returns the writer's schema.
    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    /// Unpacks the next block into `out` and returns the block, or returns damaged bytes. Returns `None` at
    /// the end of the file.
    ///
    /// # Errors
    /// If reading fails.
    pub(super) fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<Next>, io::Error> {
        self.next_of(Wanted::default(), out)
    }

    /// Like [`Self::next`], but skips blocks without wanted organizations if the file has an index. Skipped
    /// blocks are not unpacked.
    ///
    /// # Errors
    /// If reading fails.
    pub(super) fn next_of(
        &mut self,
        wanted: Wanted<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Next>, io::Error> {
        while self.is_unwanted(wanted) && self.damage.is_none() && self.source.fill(1)? {
            let Framing::Whole { records, head, size } = self.framing()? else { break };
            self.block(records);
            self.source.consume(head + size + SYNC);
        }
        self.next_any(out)
    }

    /// Returns whether the next block is known to hold none of these organizations.
    fn is_unwanted(&self, wanted: Wanted<'_>) -> bool {
        let next = usize::try_from(self.blocks).unwrap_or(usize::MAX);
        let (Some(wanted), Some(first)) = (wanted.organizations, self.organizations.get(next)) else {
            return false;
        };
        // The first organization of the following block may begin in this one.
        let last = self.organizations.get(next + 1).map_or(Bound::Unbounded, |last| Bound::Included(&**last));
        wanted.range::<str, _>((Bound::Included(&**first), last)).next().is_none()
    }

    fn next_any(&mut self, out: &mut Vec<u8>) -> Result<Option<Next>, io::Error> {
        if !self.source.fill(1)? {
            return Ok(None);
        }
        if let Some(why) = self.damage.take() {
            return self.lose(why, 0, None).map(Some);
        }
        match self.framing()? {
            Framing::Damaged { why, records, cut_at } => self.lose(why.into(), records, cut_at).map(Some),
            Framing::Whole { records, head, size } => {
                let block = self.block(records);
                let packed = self.source.at_hand().get(head..head + size).unwrap_or_default();
                let unpacked = self.codec.unpack(packed, out);
                let next = match unpacked {
                    Ok(()) => Next::Block(block),
                    Err(error) => {
                        let why = Arc::new(BlockFault::Unpack(error));
                        Next::Lost(Lost { block, bytes: packed.to_vec(), why, cut_at: None })
                    }
                };
                self.source.consume(head + size + SYNC);
                Ok(Some(next))
            }
        }
    }

    fn block(&mut self, records: u64) -> Block {
        let number = self.blocks;
        self.blocks += 1;
        Block { number, byte: self.source.offset(), records }
    }

    fn framing(&mut self) -> io::Result<Framing> {
        self.source.fill(BLOCK_HEAD_MAX)?;
        let at_hand = self.source.at_hand();
        let mut wire = Wire::new(at_hand.get(..BLOCK_HEAD_MAX).unwrap_or(at_hand));
        let window = wire.rest().len();
        let damaged = |why| Ok(Framing::Damaged { why, records: 0, cut_at: None });
        let (Ok(records), Ok(size)) = (wire.long(), wire.long()) else {
            return damaged(BlockFault::Head);
        };
        let head = window - wire.rest().len();
        let Ok(records) = u64::try_from(records) else { return damaged(BlockFault::Records(records)) };
        let size = match usize::try_from(size) {
            Ok(size) if size <= BLOCK_BYTES_MAX => size,
            _ => return damaged(BlockFault::Size(size)),
        };
        if !self.source.fill(head + size + SYNC)? {
            let cut_at = (self.codec == Codec::Null).then_some(head);
            return Ok(Framing::Damaged { why: BlockFault::CutOff, records, cut_at });
        }
        if self.source.at_hand().get(head + size..head + size + SYNC) != Some(&self.sync[..]) {
            return damaged(BlockFault::NoSyncMarker);
        }
        Ok(Framing::Whole { records, head, size })
    }

    /// Consumes and returns damaged bytes up to the end of the next sync marker or of the file. Longer damage
    /// is returned in pieces of about [`LOST_BYTES_MAX`].
    fn lose(&mut self, why: Arc<BlockFault>, records: u64, cut_at: Option<usize>) -> io::Result<Next> {
        let mut searched = 0;
        loop {
            let at_hand = self.source.at_hand();
            let found = at_hand.get(searched..).unwrap_or_default();
            if let Some(at) = found.windows(SYNC).position(|window| window == self.sync) {
                return Ok(self.lost(searched + at + SYNC, why, records, None));
            }
            // A marker may cross the end of the buffered bytes.
            searched = at_hand.len().saturating_sub(SYNC - 1);
            if searched >= LOST_BYTES_MAX {
                self.damage = Some(Arc::clone(&why));
                return Ok(self.lost(searched, why, records, None));
            }
            let length = at_hand.len();
            if !self.source.fill(length + 1)? {
                return Ok(self.lost(length, why, records, cut_at));
            }
        }
    }

    fn lost(&mut self, length: usize, why: Arc<BlockFault>, records: u64, cut_at: Option<usize>) -> Next {
        let block = self.block(records);
        let bytes = self.source.at_hand().get(..length).unwrap_or_default().to_vec();
        self.source.consume(length);
        Next::Lost(Lost { block, bytes, why, cut_at })
    }
}

/// Returns the first organization of each block; empty if the index is missing or damaged.
fn read_organizations(metadata: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<String> {
    let (Some(list), Some(digest)) = (metadata.get(ORGANIZATIONS), metadata.get(ORGANIZATIONS_DIGEST)) else {
        return Vec::new();
    };
    let is_whole = format!("{:x}", Sha256::digest(list)).as_bytes() == digest;
    let list: Option<Vec<String>> = is_whole.then(|| serde_json::from_slice(list).ok()).flatten();
    list.filter(|list| list.is_sorted()).unwrap_or_default()
}

type Header = (BTreeMap<Vec<u8>, Vec<u8>>, [u8; SYNC]);

fn read_header(wire: &mut Wire<'_>) -> Result<Header, FileFault> {
    let mut metadata = BTreeMap::new();
    loop {
        let entries = wire.block().map_err(FileFault::Header)?;
        if entries == 0 {
            break;
        }
        for _ in 0..entries {
            let key = wire.bytes().map_err(FileFault::Header)?.to_vec();
            metadata.insert(key, wire.bytes().map_err(FileFault::Header)?.to_vec());
        }
    }
    let sync = wire.take(SYNC).map_err(FileFault::Header)?;
    let sync = sync.first_chunk::<SYNC>().ok_or(FileFault::NoSyncMarker)?;
    Ok((metadata, *sync))
}

/// A writer of a container file, block by block, compressed with Zstandard.
pub(super) struct ContainerWriter {
    schema: String,
    zstd: Compressor<'static>,
    /// Finished blocks: the number of records, and the compressed bytes.
    blocks: Vec<(i64, Vec<u8>)>,
    block: Vec<u8>,
    records: i64,
    /// The first organization of each block; `None` once organizations do not ascend.
    organizations: Option<Vec<String>>,
    /// The organization of the previous record.
    last: Vec<u8>,
}

impl ContainerWriter {
    /// The approximate size of a block's records: small enough that damage to one block costs little.
    const BLOCK_BYTES: usize = 256 << 10;
    /// Zstandard's own default. Lower levels are not faster if a pod's samples are adjacent.
    const LEVEL: i32 = 3;

    /// Begins a file.
    ///
    /// # Errors
    /// If memory runs out.
    pub(super) fn new(schema: &str) -> io::Result<Self> {
        let mut zstd = Compressor::new(Self::LEVEL)?;
        // A flipped bit must not become another event.
        zstd.include_checksum(true)?;
        Ok(Self {
            schema: schema.to_owned(),
            zstd,
            blocks: Vec::new(),
            block: Vec::new(),
            records: 0,
            organizations: Some(Vec::new()),
            last: Vec::new(),
        })
    }

    /// Notes the organization of the record that is appended next. Within one file, the caller notes the
    /// organizations of all records or of none. If organizations do not ascend, the file has no index.
    pub(super) fn note_organization(&mut self, organization: &[u8]) {
        if self.last != organization {
            if *self.last > *organization {
                self.organizations = None;
            }
            self.last.clear();
            self.last.extend_from_slice(organization);
        }
        if self.records == 0
            && let Some(organizations) = &mut self.organizations
        {
            organizations.push(String::from_utf8_lossy(organization).into_owned());
        }
    }

    /// Appends one record, which `write` encodes.
    ///
    /// # Errors
    /// If compression fails because memory runs out.
    pub(super) fn record(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        write(&mut self.block);
        self.records += 1;
        if self.block.len() >= Self::BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }

    /// Ends the last block and returns the file. The caller derives the sync marker from the content, so that
    /// equal content gives equal bytes.
    ///
    /// # Errors
    /// If compression fails because memory runs out.
    pub(super) fn finish(mut self, sync: [u8; SYNC]) -> io::Result<Vec<u8>> {
        self.end_block()?;
        let mut file = self.header();
        file.extend_from_slice(&sync);
        for (records, bytes) in &self.blocks {
            put_long(&mut file, *records);
            put_bytes(&mut file, bytes);
            file.extend_from_slice(&sync);
        }
        Ok(file)
    }

    fn header(&self) -> Vec<u8> {
        let digest = |bytes: &[u8]| format!("{:x}", Sha256::digest(bytes)).into_bytes();
        let schema = self.schema.as_bytes();
        let mut metadata: Vec<(&[u8], Vec<u8>)> = vec![
            (b"avro.codec", b"zstandard".to_vec()),
            (b"avro.schema", schema.to_vec()),
            (SCHEMA_DIGEST, digest(schema)),
        ];
        let organizations = self.organizations.clone().unwrap_or_default();
        let blocks = organizations.len();
        let list = serde_json::Value::from(organizations).to_string().into_bytes();
        // A file with fewer than two blocks has nothing to skip, and the list must leave room in the header.
        if blocks > 1 && list.len() <= HEADER_BYTES_MAX / 2 {
            metadata.push((ORGANIZATIONS_DIGEST, digest(&list)));
            metadata.push((ORGANIZATIONS, list));
        }
        let mut out = MAGIC.to_vec();
        put_long(&mut out, metadata.len() as i64);
        for (key, value) in metadata {
            put_bytes(&mut out, key);
            put_bytes(&mut out, &value);
        }
        put_long(&mut out, 0);
        out
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.records > 0 {
            self.blocks.push((self.records, self.zstd.compress(&self.block)?));
            self.block.clear();
            self.records = 0;
        }
        Ok(())
    }
}
