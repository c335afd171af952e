//! The annotations of HAMi and Volcano: the devices of a node, and the parts of devices that a pod holds.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ratio::Ratio;

/// The devices of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Register {
    /// Memory in MiB by uuid.
    memory: BTreeMap<String, u128>,
    /// Memory of the first device.
    first: Option<u128>,
}

/// A device of the register in JSON, as newer releases of HAMi write it.
#[derive(Deserialize)]
struct Device {
    id: String,
    #[serde(default)]
    devmem: u64,
}

impl Register {
    /// Reads devices separated by colons, each `uuid,split count,memory,..`, or a JSON array. `None` if a
    /// device cannot be read.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let devices: Vec<(String, u128)> = if text.starts_with('[') {
            let devices: Vec<Device> = serde_json::from_str(text).ok()?;
            devices.into_iter().map(|device| (device.id, device.devmem.into())).collect()
        } else {
            let devices = text.split(':').filter(|device| !device.trim().is_empty());
            let device = |text: &str| {
                let mut fields = text.split(',').map(str::trim);
                let (uuid, memory) = (fields.next()?, fields.nth(1)?);
                Some((uuid.to_owned(), memory.parse::<u32>().ok()?.into()))
            };
            devices.map(device).collect::<Option<_>>()?
        };
        let first = devices.first().map(|(_, memory)| *memory).filter(|memory| *memory > 0);
        Some(Self { memory: devices.into_iter().collect(), first })
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> usize {
        self.memory.len()
    }

    /// Returns the memory of the first device, in MiB; `None` if there is no device. All devices of a node
    /// are alike.
    pub const fn memory(&self) -> Option<u128> {
        self.first
    }

    /// Returns the parts of cards that a pod holds: for each device, the larger of the parts of memory and
    /// cores. Containers are separated by semicolons, and devices by colons. Each device is
    /// `uuid,type,memory,cores`. `None` if the text cannot be read, or names a device that the node does not
    /// have.
    pub fn allocated(&self, text: &str) -> Option<Vec<Ratio>> {
        let devices = text.split([';', ':']).filter(|device| !device.trim().is_empty());
        let part = |device: &str| {
            let mut fields = device.split(',').map(str::trim);
            let (uuid, memory, cores) = (fields.next()?, fields.nth(1)?, fields.next()?);
            let whole = *self.memory.get(uuid)?;
            let memory = Ratio::new(memory.parse::<u32>().ok()?.into(), whole)?;
            memory.larger(Ratio::new(cores.parse::<u32>().ok()?.into(), 100)?)
        };
        devices.map(part).collect()
    }
}
