//! What the metadata log has and the database does not: found at an opening, and brought into the database.

use block_device::Device;
use file_store::{StoreError, StoreErrorKind};
use redb::{Key, ReadableTable, TableHandle, Value, WriteTransaction};
use volume_format::{Change, DecodeError, Field, Superblock, Table};

use crate::backend::run;
use crate::database_error::{database_error, no_space};
use crate::metadata_log::{self, Damage, Mark, Newer};
use crate::rows::Rows;
use crate::tables::{
    COUNTERS, ENTRIES, EXTENTS, FREED, INODES, LINKS, LOG_CLOSED, LOG_EPOCH, LOG_NONCE, LOG_SEQUENCE, MAPS,
    ORPHANS, SECURITY, SHARES, SNAPSHOTS, STATE, USES, check_tables, tables_of,
};

fn corrupt(detail: String) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, detail)
}

/// What a damage in the middle of the log is, in words for people.
pub(crate) fn explain(damage: &Damage) -> String {
    let Damage { sequence, at, last } = damage;
    match last {
        Some(last) => format!(
            "batch {sequence} at byte {at} of the device is damaged, and sound ones up to {last} are behind it: what was changed from it on is lost"
        ),
        None => format!(
            "batch {sequence} should be at byte {at} of the device, which cannot be read: if there was one, what was changed from it on is lost"
        ),
    }
}

/// Which batches are newer than the database; `None` where it does not say, or says what cannot be.
///
/// # Errors
/// When the database cannot be read.
pub(crate) fn read_mark(txn: &WriteTransaction) -> Result<Option<Mark>, StoreError> {
    if !tables_of(txn)?.contains(COUNTERS.definition.name()) {
        return Ok(None);
    }
    let counters = txn.open_table(COUNTERS.definition).map_err(database_error)?;
    let read = |name| Ok::<_, StoreError>(counters.get(name).map_err(database_error)?.map(|row| row.value()));
    let (epoch, nonce, sequence) = (read(LOG_EPOCH)?, read(LOG_NONCE)?, read(LOG_SEQUENCE)?);
    let closed = read(LOG_CLOSED)?;
    let possible = |number: &u64| *number <= metadata_log::NUMBER_MAX;
    let (epoch, sequence) = (epoch.filter(possible), sequence.filter(possible));
    Ok(epoch.zip(nonce).zip(sequence).map(|((epoch, nonce), sequence)| Mark {
        epoch,
        nonce,
        sequence,
        closed: closed == Some(sequence),
    }))
}

/// Says in the database which batches are newer than it.
///
/// # Errors
/// When the database fails.
pub(crate) fn write_mark(txn: &WriteTransaction, mark: Mark) -> Result<(), StoreError> {
    let mut counters = txn.open_table(COUNTERS.definition).map_err(database_error)?;
    let values = [(LOG_EPOCH, mark.epoch), (LOG_NONCE, mark.nonce), (LOG_SEQUENCE, mark.sequence)];
    for (name, value) in values {
        counters.insert(name, value).map_err(database_error)?;
    }
    if mark.closed {
        counters.insert(LOG_CLOSED, mark.sequence).map_err(database_error)?;
    } else {
        counters.remove(LOG_CLOSED).map_err(database_error)?;
    }
    Ok(())
}

/// Reads what the log of a volume has that its database does not.
///
/// # Errors
/// When the log cannot be read, a newer release has written to it, or the database does not say which batches count.
pub(crate) fn find(
    txn: &WriteTransaction,
    device: &Device,
    superblock: &Superblock,
) -> Result<(Mark, Newer), StoreError> {
    let mark = read_mark(txn)?.ok_or_else(|| {
        corrupt("the metadata database does not say which part of the metadata log it has; `volume check` says more".into())
    })?;
    Ok((mark, Newer::read(device, superblock, mark)?))
}

/// As [`find`], where nothing is lost.
///
/// # Errors
/// [`StoreErrorKind::Corrupt`] as well when something in the middle of the log is damaged, or a table is missing.
fn find_sound(
    txn: &WriteTransaction,
    device: &Device,
    superblock: &Superblock,
) -> Result<(Mark, Newer), StoreError> {
    // What is missing is damage, and not made by what is brought in.
    check_tables(txn)?;
    let (mark, newer) = find(txn, device, superblock)?;
    match &newer.damage {
        None => Ok((mark, newer)),
        Some(damage) => Err(corrupt(format!(
            "the metadata log is damaged: {}; `volume check --repair` goes on without it",
            explain(damage)
        ))),
    }
}

/// Brings all sound batches into the database.
///
/// # Errors
/// When a batch says what none can say, or the database fails.
pub(crate) fn apply(txn: &WriteTransaction, newer: &Newer) -> Result<(), StoreError> {
    for batch in newer.batches() {
        let batch = batch.map_err(|error| corrupt(format!("a batch of the metadata log {error}")))?;
        let wrong =
            |error: DecodeError| corrupt(format!("batch {} of the metadata log {error}", batch.id.sequence));
        for change in batch.changes() {
            apply_change(txn, &change.map_err(wrong)?, &wrong)?;
        }
    }
    Ok(())
}

fn apply_change(
    txn: &WriteTransaction,
    change: &Change<'_>,
    wrong: &impl Fn(DecodeError) -> StoreError,
) -> Result<(), StoreError> {
    match change.table {
        Table::Inodes => row(txn, INODES, change, wrong),
        Table::Entries => row(txn, ENTRIES, change, wrong),
        Table::Extents => row(txn, EXTENTS, change, wrong),
        Table::Maps => row(txn, MAPS, change, wrong),
        Table::Links => row(txn, LINKS, change, wrong),
        Table::Uses => row(txn, USES, change, wrong),
        Table::Snapshots => row(txn, SNAPSHOTS, change, wrong),
        Table::Shares => row(txn, SHARES, change, wrong),
        Table::Freed => row(txn, FREED, change, wrong),
        Table::Orphans => row(txn, ORPHANS, change, wrong),
        Table::Security => row(txn, SECURITY, change, wrong),
        Table::State => row(txn, STATE, change, wrong),
        Table::Counters => row(txn, COUNTERS, change, wrong),
    }
}

fn row<K, V>(
    txn: &WriteTransaction,
    rows: Rows<K, V>,
    change: &Change<'_>,
    wrong: &impl Fn(DecodeError) -> StoreError,
) -> Result<(), StoreError>
where
    K: Key + 'static,
    V: Value + 'static,
    for<'x> K::SelfType<'x>: Field<'x>,
    for<'x> V::SelfType<'x>: Field<'x>,
{
    let mut table = txn.open_table(rows.definition).map_err(database_error)?;
    let key = K::SelfType::whole(change.key).map_err(wrong)?;
    match change.value {
        Some(value) => {
            let value = V::SelfType::whole(value).map_err(wrong)?;
            table.insert(key, value).map_err(database_error)?;
        }
        None => drop(table.remove(key).map_err(database_error)?),
    }
    Ok(())
}

/// Begins a new epoch of a volume's log, in a transaction that is still to be committed: with all that the log has and the
/// database lacks. `None` where there is no log. A `new` one is made first; where there is no space for it, the volume goes on
/// without.
///
/// # Errors
/// [`StoreErrorKind::Corrupt`] when something in the middle of the log is damaged: what follows is lost, and nothing is changed.
pub(crate) fn begin(
    txn: &WriteTransaction,
    device: &Device,
    superblock: &Superblock,
    (new, nonce): (bool, u64),
) -> Result<Option<Mark>, StoreError> {
    if superblock.metadata_log().is_none() {
        return Ok(None);
    }
    let mark = if new {
        match run(metadata_log::prepare(device, superblock)) {
            Ok(()) => Mark { epoch: 1, nonce, sequence: 0, closed: false },
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                tracing::warn!("there is no space for a volume's metadata log; it goes on without: {error}");
                return Ok(None);
            }
            Err(error) => {
                let detail = "the metadata log cannot be made";
                return Err(StoreError::new(StoreErrorKind::Io, detail).because(error));
            }
        }
    } else {
        let (mark, newer) = find_sound(txn, device, superblock)?;
        newer.mend(device);
        apply(txn, &newer)?;
        if !newer.is_empty() {
            tracing::debug!(from = mark.sequence, to = newer.sequence, "a metadata log is replayed");
        }
        next(mark, newer.sequence, nonce)
    };
    write_mark(txn, mark)?;
    Ok(Some(mark))
}

/// A transaction that is only read: it has what the log has, and cannot be committed.
pub(crate) struct Replayed {
    pub(crate) txn: WriteTransaction,
    /// The log has something that the database lacks.
    pub(crate) any: bool,
}

/// Brings what the log has into a transaction that is not committed: for a volume that has no space for that.
///
/// # Errors
/// [`StoreErrorKind::NoSpace`] when that needs more pages than the database has. As [`begin`] otherwise.
pub(crate) fn to_look_at(
    txn: WriteTransaction,
    device: &Device,
    superblock: &Superblock,
) -> Result<Replayed, StoreError> {
    if superblock.metadata_log().is_none() {
        return Ok(Replayed { txn, any: false });
    }
    let (_, newer) = find_sound(&txn, device, superblock)?;
    // A crash may have left the last batch in the caches of disks only: what is written by what it says must not outlive it.
    run(device.flush()).map_err(|error| {
        StoreError::new(StoreErrorKind::Io, "the metadata log cannot be made durable").because(error)
    })?;
    apply(&txn, &newer).map_err(|error| match error.kind() {
        StoreErrorKind::NoSpace => no_space(
            "there is no space to bring into the metadata database what the metadata log has, and nothing of that is lost",
        ),
        _ => error,
    })?;
    Ok(Replayed { txn, any: !newer.is_empty() })
}

/// The mark of an epoch after this one, in a database that has the batches up to this number, and whose log is about to be used.
pub(crate) fn next(mark: Mark, sequence: u64, nonce: u64) -> Mark {
    Mark { epoch: mark.epoch.saturating_add(1), nonce, sequence, closed: false }
}
