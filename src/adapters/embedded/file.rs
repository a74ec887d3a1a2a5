//! The file: opening, reading all of it, and writing one batch of rows.

use std::fs::{self, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use redb::{Builder, Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable};
use redb::{TableDefinition, TableError, WriteTransaction};

use super::format::{self, Key, SCHEMA_ROW, Table};
use crate::store::deployment::SCHEMA;

const FILE_NAME: &str = "headcount.redb";
const LOCK_NAME: &str = "headcount.lock";

/// redb's page cache. All rows are in memory already, so it only serves the inner pages of the trees that commits walk;
/// its default, 1 GiB, would hold everything twice.
const CACHE_BYTES: usize = 32 << 20;

/// So many rows of a removed pool one commit deletes, so that others do not wait long for it.
const CLEARED_MAX: usize = 4096;

/// Why a folder cannot be opened. Each says what to do: the text is the program's last line.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the data folder {} cannot be used: {cause}; make it a folder that this user may write to, or choose another one",
        dir.display()
    )]
    Folder { dir: PathBuf, cause: io::Error },
    #[error(
        "the data folder {} is in use by another Headcount process (pid {holder}); stop that one first, or give this one \
         a data folder of its own; several processes can only share a Redis",
        dir.display()
    )]
    InUse { dir: PathBuf, holder: String },
    #[error(
        "{} was written by a newer Headcount (schema {found}, this one knows {SCHEMA}); start that version, or move the \
         file away to begin with nothing",
        path.display()
    )]
    Newer { path: PathBuf, found: u32 },
    #[error(
        "{} is not a file that Headcount can read: {cause}; put a copy of it back, or move it away to begin with nothing",
        path.display()
    )]
    Unreadable { path: PathBuf, cause: String },
    #[error("the thread that writes to disk cannot be started: {0}; allow this process more threads or more memory")]
    Thread(io::Error),
}

/// A data folder that this process has for itself.
pub struct Folder {
    dir: PathBuf,
    /// The lock ends with this handle. redb locks its file too, but must let go of it to recover from an I/O error.
    _lock: fs::File,
}

impl Folder {
    /// Takes the folder, making it where it is missing.
    pub fn lock(dir: &Path) -> Result<Self, OpenError> {
        let unusable = |cause| OpenError::Folder { dir: dir.to_owned(), cause };
        fs::create_dir_all(dir).map_err(unusable)?;
        let mut options = fs::OpenOptions::new();
        let mut lock =
            options.read(true).write(true).create(true).truncate(false).open(dir.join(LOCK_NAME)).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let known = lock.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
                let holder = if known { holder.trim().to_owned() } else { "unknown".to_owned() };
                return Err(OpenError::InUse { dir: dir.to_owned(), holder });
            }
            Err(TryLockError::Error(cause)) => return Err(unusable(cause)),
        }
        note_holder(&mut lock).map_err(unusable)?;
        Ok(Self { dir: dir.to_owned(), _lock: lock })
    }

    fn file_path(&self) -> PathBuf {
        self.dir.join(FILE_NAME)
    }
}

fn note_holder(lock: &mut fs::File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}

/// Makes the database; a parameter so that tests can put a disk under it that fails.
type Opener = Box<dyn Fn() -> Result<Database, redb::DatabaseError> + Send>;

/// The file and, while the disk works, the open database in it.
pub struct File {
    opener: Opener,
    database: Open,
    _folder: Option<Folder>,
}

/// None after an I/O error: redb refuses everything then, until it is opened again. Only `File` opens and closes it;
/// commits and readers use it side by side.
type Open = Arc<RwLock<Option<Database>>>;

fn shared(open: &Open) -> RwLockReadGuard<'_, Option<Database>> {
    open.read().unwrap_or_else(PoisonError::into_inner)
}

fn exclusive(open: &Open) -> RwLockWriteGuard<'_, Option<Database>> {
    open.write().unwrap_or_else(PoisonError::into_inner)
}

/// Reads rows that are not kept in memory, as of the last commit.
pub struct Reader(Open);

impl Reader {
    /// None while the file is closed, or is being opened: it does not wait for a disk that hangs.
    pub fn read<T>(&self, look: impl FnOnce(&Snapshot) -> Result<T, redb::Error>) -> Option<Result<T, redb::Error>> {
        let open = self.0.try_read().ok()?;
        let snapshot = open.as_ref()?.begin_read().map(Snapshot);
        Some(snapshot.map_err(redb::Error::from).and_then(|snapshot| look(&snapshot)))
    }
}

/// All rows as one commit left them.
pub struct Snapshot(ReadTransaction);

impl Snapshot {
    pub fn row(&self, key: &Key) -> Result<Option<Bytes>, redb::Error> {
        let Some(table) = self.table(key.table)? else { return Ok(None) };
        Ok(table.get(&*key.text)?.map(|value| Bytes::copy_from_slice(value.value())))
    }

    /// The first rows from this key on, up to the text `end`.
    pub fn rows(&self, from: &Key, end: &str, limit: usize) -> Result<Vec<(Key, Bytes)>, redb::Error> {
        let Some(table) = self.table(from.table)? else { return Ok(Vec::new()) };
        let mut rows = Vec::new();
        for row in table.range(&*from.text..end)?.take(limit) {
            let (text, value) = row?;
            let key = Key { table: from.table, text: text.value().into() };
            rows.push((key, Bytes::copy_from_slice(value.value())));
        }
        Ok(rows)
    }

    /// None: nothing was ever written to it.
    fn table(&self, table: Table) -> Result<Option<ReadOnlyTable<&'static str, &'static [u8]>>, redb::Error> {
        match self.0.open_table(definition(table)) {
            Ok(opened) => Ok(Some(opened)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl File {
    /// Opens the file of a folder, or begins one; refuses what this program did not write.
    /// Answers its rows too.
    pub fn open(folder: Folder) -> Result<(Self, Vec<(Key, Bytes)>), OpenError> {
        let path = folder.file_path();
        let of_path = path.clone();
        let opener = Box::new(move || Builder::new().set_cache_size(CACHE_BYTES).create(&of_path));
        let mut file = Self { opener, database: Open::default(), _folder: Some(folder) };
        let unreadable = |cause: redb::Error| OpenError::Unreadable { path: path.clone(), cause: cause.to_string() };
        match file.schema().map_err(unreadable)? {
            None => file.begin().map_err(unreadable)?,
            Some(bytes) => match bytes[..].try_into().map(u32::from_le_bytes) {
                Ok(SCHEMA) => {}
                Ok(found) if found > SCHEMA => return Err(OpenError::Newer { path, found }),
                _ => {
                    let cause = format!("its schema number reads {bytes:?}");
                    return Err(OpenError::Unreadable { path, cause });
                }
            },
        }
        let rows = file.read_all().map_err(unreadable)?;
        Ok((file, rows))
    }

    #[cfg(test)]
    pub fn with_opener(opener: Opener) -> Self {
        Self { opener, database: Open::default(), _folder: None }
    }

    /// For rows that `read_all` leaves out.
    pub fn reader(&self) -> Reader {
        Reader(self.database.clone())
    }

    /// Every row but the schema's and the entries of outboxes, which nobody needs in memory. An error names the file's
    /// fault, not a row's: rows are judged when they are used.
    pub fn read_all(&mut self) -> Result<Vec<(Key, Bytes)>, redb::Error> {
        self.read(Table::ALL.into_iter().filter(|table| *table != Table::PoolLog))
    }

    pub fn read(&mut self, tables: impl IntoIterator<Item = Table>) -> Result<Vec<(Key, Bytes)>, redb::Error> {
        let snapshot = self.using(|database| Ok(Snapshot(database.begin_read()?)))?;
        let mut rows = Vec::new();
        for table in tables {
            let Some(opened) = snapshot.table(table)? else { continue };
            for row in opened.iter()? {
                let (text, value) = row?;
                if (table, text.value()) != (Table::Deployment, SCHEMA_ROW) {
                    let key = Key { table, text: text.value().into() };
                    rows.push((key, Bytes::copy_from_slice(value.value())));
                }
            }
        }
        Ok(rows)
    }

    /// Writes a batch and returns when the disk has it: all of it or nothing. None deletes a row. After an error the
    /// batch may be on disk or not, and the next call opens the file again.
    pub fn write(&mut self, batch: &[(Key, Option<Bytes>)]) -> Result<(), redb::Error> {
        self.write_and_clear(batch, &[], &[]).map(drop)
    }

    /// As `write`. Deletes all rows of claims and packets of emptied pools before, and after it some rows of pools that
    /// are going: the head with the last of them. Answers for each of these whether nothing is left.
    pub fn write_and_clear(
        &mut self,
        batch: &[(Key, Option<Bytes>)],
        emptied: &[Box<str>],
        going: &[&str],
    ) -> Result<Vec<bool>, redb::Error> {
        let written = self.using(|database| try_write(database, batch, emptied, going));
        if written.is_err() {
            exclusive(&self.database).take();
        }
        written
    }

    fn schema(&mut self) -> Result<Option<Vec<u8>>, redb::Error> {
        let snapshot = self.using(|database| Ok(Snapshot(database.begin_read()?)))?;
        let key = Key { table: Table::Deployment, text: SCHEMA_ROW.into() };
        Ok(snapshot.row(&key)?.map(|value| value.to_vec()))
    }

    fn begin(&mut self) -> Result<(), redb::Error> {
        let key = Key { table: Table::Deployment, text: SCHEMA_ROW.into() };
        self.write(&[(key, Some(Bytes::copy_from_slice(&SCHEMA.to_le_bytes())))])
    }

    /// Opens the database where it is closed.
    fn using<T>(&mut self, act: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, redb::Error> {
        loop {
            if let Some(database) = &*shared(&self.database) {
                return act(database);
            }
            *exclusive(&self.database) = Some((self.opener)()?);
        }
    }
}

/// Readers may outlive it, the open file must not.
impl Drop for File {
    fn drop(&mut self) {
        exclusive(&self.database).take();
    }
}

fn try_write(
    database: &Database,
    batch: &[(Key, Option<Bytes>)],
    emptied: &[Box<str>],
    going: &[&str],
) -> Result<Vec<bool>, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    emptied.iter().try_for_each(|pool| empty(&transaction, pool))?;
    for table in Table::ALL {
        let mut rows = batch.iter().filter(|(key, _)| key.table == table).peekable();
        if rows.peek().is_none() {
            continue;
        }
        let mut opened = transaction.open_table(definition(table))?;
        for (key, value) in rows {
            match value {
                Some(value) => opened.insert(&*key.text, &value[..])?,
                None => opened.remove(&*key.text)?,
            };
        }
    }
    let gone = going.iter().map(|pool| clear(&transaction, pool)).collect::<Result<_, redb::Error>>()?;
    transaction.commit()?;
    Ok(gone)
}

/// All at once, for the pool must not be there by half: some 100 ms for 100,000 claims.
fn empty(transaction: &WriteTransaction, pool: &str) -> Result<(), redb::Error> {
    let range = format::pool_range(pool);
    for table in [Table::Claims, Table::Packets] {
        transaction.open_table(definition(table))?.retain_in(&*range.start..&*range.end, |_, _| false)?;
    }
    Ok(())
}

fn clear(transaction: &WriteTransaction, pool: &str) -> Result<bool, redb::Error> {
    let mut left = CLEARED_MAX;
    let range = format::pool_range(pool);
    for table in [Table::Claims, Table::Packets, Table::PoolLog] {
        let mut opened = transaction.open_table(definition(table))?;
        let found = opened.extract_from_if(&*range.start..&*range.end, |_, _| true)?.take(left);
        left -= found.map(|row| row.map(drop)).collect::<Result<Vec<()>, _>>()?.len();
    }
    if left > 0 {
        transaction.open_table(definition(Table::Pools))?.remove(pool)?;
    }
    Ok(left > 0)
}

fn definition(table: Table) -> TableDefinition<'static, &'static str, &'static [u8]> {
    TableDefinition::new(table.name())
}
