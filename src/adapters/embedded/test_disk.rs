//! A disk in memory for tests: it can be full, and shows what a process or a machine that stops would leave behind.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use redb::{Builder, StorageBackend};

use super::batch::Content;
use super::file::File;
use super::format::{Key, Table};
use super::{EmbeddedConfig, EmbeddedStore};
use crate::runtime::clock::Clock;
use crate::runtime::tasks::Tasks;

#[derive(Clone, Debug, Default)]
pub struct Disk {
    plate: Arc<Mutex<Plate>>,
    full: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Plate {
    /// As the operating system shows it.
    bytes: Vec<u8>,
    /// As of the last sync, and what was done since.
    synced: Vec<u8>,
    since: Vec<Op>,
    syncs: u64,
    written: u64,
}

#[derive(Clone, Debug)]
enum Op {
    Length(usize),
    Write(usize, Vec<u8>),
}

impl Op {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Op::Length(length) => bytes.resize(*length, 0),
            Op::Write(start, data) => {
                let end = start + data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*start..end].copy_from_slice(data);
            }
        }
    }
}

impl Disk {
    fn of(bytes: Vec<u8>) -> Self {
        let plate = Plate { synced: bytes.clone(), bytes, ..Plate::default() };
        Self { plate: Arc::new(Mutex::new(plate)), full: Arc::default() }
    }

    pub fn fill(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }

    /// What a kill -9 at this instant leaves: all that was written, synced or not.
    pub fn after_kill(&self) -> Self {
        Self::of(self.plate().bytes.clone())
    }

    /// What a power cut at this instant may leave: all that was synced, and of later writes those that `kept` says.
    pub fn after_power_cut(&self, mut kept: impl FnMut() -> bool) -> Self {
        let plate = self.plate();
        let mut bytes = plate.synced.clone();
        plate.since.iter().filter(|_| kept()).for_each(|op| op.apply(&mut bytes));
        Self::of(bytes)
    }

    /// How often it was synced, and how many bytes were written.
    pub fn work(&self) -> (u64, u64) {
        let plate = self.plate();
        (plate.syncs, plate.written)
    }

    /// A store on this disk, with what is on it.
    pub fn store(&self, clock: &Clock, waiters_max: usize) -> Arc<EmbeddedStore> {
        let mut file = self.file();
        let content = if self.plate().bytes.is_empty() { Vec::new() } else { file.read_all().unwrap() };
        let config = EmbeddedConfig { waiters_max, ..EmbeddedConfig::new("memory") };
        EmbeddedStore::start(file, Content::new(content), config, clock.clone(), &Tasks::new()).unwrap()
    }

    pub fn file(&self) -> File {
        let disk = self.clone();
        File::with_opener(Box::new(move || Builder::new().create_with_backend(disk.clone())))
    }

    pub fn rows(&self) -> Vec<(Key, Bytes)> {
        self.file().read_all().unwrap()
    }

    pub fn rows_of(&self, table: Table) -> Vec<(Key, Bytes)> {
        self.file().read([table]).unwrap()
    }

    fn plate(&self) -> MutexGuard<'_, Plate> {
        self.plate.lock().unwrap()
    }

    fn room(&self) -> Result<(), io::Error> {
        let full = self.full.load(Ordering::SeqCst);
        if full { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(()) }
    }

    fn take(&self, op: Op) -> Result<(), io::Error> {
        self.room()?;
        let mut plate = self.plate();
        op.apply(&mut plate.bytes);
        plate.written += if let Op::Write(_, data) = &op { data.len() as u64 } else { 0 };
        plate.since.push(op);
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.plate().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let start = offset as usize;
        out.copy_from_slice(&self.plate().bytes[start..start + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.take(Op::Length(len as usize))
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.room()?;
        let plate = &mut *self.plate();
        plate.since.drain(..).for_each(|op| op.apply(&mut plate.synced));
        plate.syncs += 1;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.take(Op::Write(offset as usize, data.to_vec()))
    }
}
