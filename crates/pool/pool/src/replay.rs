//! Opening a parity space after a crash: what its journal holds is brought to its place.
//!
//! For each stripe that records name, block by block, from the newest record back:
//! * the new block is in the record: it is written in place (perhaps once more);
//! * only its checksum is, of a stripe that was zeros before: what lies in place is that new block if the checksum fits; if not, the
//!   next older record says what the block was, or it was zeros. Where no more blocks of a lane are missing than there is
//!   parity for, they are calculated from the rest first: a record stays for a while after its write was acknowledged, and
//!   a block that has rotted, or whose disk is lost, must not be taken for one that was never written.
//!
//! After that every block of data is an old or a new one. Where a whole stripe was being written some may be old and
//! some new, or torn between the two, so its parity is calculated anew. A column of data that is not here is
//! in the record, or is taken for what it was before where a block that has not been written, or not as a whole, proves that the write was never
//! acknowledged: a sector of it is enough. Where nothing does, and too much is damaged to calculate the column, it is lost ([`crate::given_up`]).

use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind, Durability};
use pool_format::{BLOCK, Guid, JOURNAL_ANCHORS, JOURNAL_ROW, JournalAnchor, JournalKind};
use pool_layout::parity;

use crate::at::At;
use crate::awaited;
use crate::careful::solve_block;
use crate::core::{Core, Space};
use crate::decisions::{ChainEnd, Decisions};
use crate::edit::Edit;
use crate::given_up::GivenUp;
use crate::journal::{Journal, Told};
use crate::journal_reader::Reader;
use crate::journal_slab::write_anchor;
use crate::row::{Place, Row};
use crate::write::write_copies;

const BYTES: usize = BLOCK as usize;
/// What a disk writes as a whole, at the least.
const SECTOR: usize = 512;

/// Brings everything that the space's journal holds to its place, and begins a new journal; or goes on with the old one, as far as
/// what it holds waits for disks ([`crate::awaited`]), unless `accept_loss` says that nobody waits for them any more.
pub(crate) async fn replay(
    core: &Arc<Core>,
    space: &Space,
    secret: Guid,
    accept_loss: bool,
) -> Result<Arc<Journal>, BlockError> {
    let gone = || BlockError::new(BlockErrorKind::Gone, "read the journal of a space");
    let journal = space.row(JOURNAL_ROW).ok_or_else(gone)?;
    let reader = Reader { core, space, row: &journal };
    let old = reader.anchor().await;
    if old.is_none() && space.rows().iter().any(|(number, _)| *number != JOURNAL_ROW) {
        // There was one before the first row: it cannot be read, and what it leads to is needed.
        return Err(gone());
    }
    let mut end = None;
    if let Some(anchor) = &old {
        let (stripes, last) = reader.walk(anchor).await;
        if let Some((block, record)) = &last {
            // Perhaps it reached one copy only before the power went. If that copy were lost after a part of it has been
            // brought to its place, nobody could tell what the rest must be.
            reader.spread(*block, record).await?;
        }
        let decisions = last.map(|(block, record)| {
            let head = block + record.head_blocks() + record.payload_blocks();
            Decisions::Chain(ChainEnd { anchor: *anchor, head, seq: record.seq + 1 })
        });
        let mut given_up = GivenUp::of(decisions);
        for ((number, stripe), told) in &stripes {
            let Some(row) = space.row(*number) else { continue };
            check_bounds(core, &row, told)?;
            let place = Place { space: space.id(), row: *number, column: 0 };
            let at = At::new(core, space, &row, place);
            if !awaited::waits(at, *stripe) {
                bring_in_place(at, *stripe, told, &reader, &mut given_up).await?;
            } else if accept_loss && awaited::give_up(at, *stripe, told).await? {
                bring_in_place(at, *stripe, told, &reader, &mut GivenUp::default()).await?;
            }
        }
        core.flush_disks().await?;
        given_up.settle(core, space).await?;
        // A disk that has gone since, with what it was given, is awaited, too.
        let waiting = awaited::mark(core, space, &stripes, accept_loss);
        end = given_up.end().filter(|_| waiting);
    }
    let number = old.map_or(0, |old| old.number + 1);
    let fresh = JournalAnchor {
        number,
        epoch: core.meta.epoch(),
        space: space.guid(),
        // Another one: what the old records say is void from now on.
        secret: secret.0,
        tail: JOURNAL_ANCHORS,
        seq: 1,
    };
    // The chain that is needed goes on where it ended.
    let needed = old.zip(end).map(|(old, end)| (JournalAnchor { number, epoch: fresh.epoch, ..old }, end));
    let (anchor, (head, next_seq)) = needed.unwrap_or((fresh, (fresh.tail, fresh.seq)));
    write_anchor(core, space, &anchor).await?;
    Ok(Journal::new(core.slab_size, anchor, head, next_seq))
}

fn check_bounds(core: &Core, row: &Row, told: &[Told]) -> Result<(), BlockError> {
    let fits = |told: &Told| {
        let end = u64::from(told.entry.first) + told.entry.sums.len() as u64;
        usize::from(told.entry.column) < row.columns.len() && end <= core.slab_size / BLOCK
    };
    match told.iter().all(fits) {
        true => Ok(()),
        false => Err(BlockError::new(
            BlockErrorKind::Media,
            "read the journal of a space: a record leads beyond its row",
        )),
    }
}

/// Brings what the journal of a space in use says of torn regions of a row to its place: their disks have been away with writes in
/// their caches. The caller holds the lock of the regions, to which nobody writes as long as they are torn, and the journal is kept until
/// they are not ([`Space::needs_journal`]), as is [`Journal::steady`]. `false` when that did not come to its end: too many disks are away still, one went meanwhile,
/// or too much is damaged besides.
///
/// # Errors
/// When the journal cannot be read, or a disk fails.
pub(crate) async fn bring_back(at: At<'_>, mask: u64) -> Result<bool, BlockError> {
    if at.row.lacking(mask) > at.row.shape.parity {
        return Ok(false);
    }
    let gone = || BlockError::new(BlockErrorKind::Gone, "read the journal of a space");
    let row = at.space.row(JOURNAL_ROW).ok_or_else(gone)?;
    let reader = Reader { core: at.core, space: at.space, row: &row };
    let journal = at.space.journal()?;
    let stripes = journal.read_torn(at.core, at.space).await?;
    // Where the whole stripe is in memory nothing has to be decided of it: that is written again after this.
    let in_memory = journal.stuck_stripes(at);
    let mut given_up = GivenUp::of(Some(Decisions::Journal(journal)));
    for ((_, stripe), told) in stripes.iter().filter(|((row, _), _)| *row == at.place.row) {
        if at.regions_of(*stripe) & mask != 0 && !in_memory.contains(stripe) {
            check_bounds(at.core, at.row, told)?;
            if !bring_in_place(at, *stripe, told, &reader, &mut given_up).await? {
                return Ok(false);
            }
        }
    }
    at.core.flush_disks().await?;
    // What is lost is settled by the next opening: that takes locks of regions, and until then nothing of these is read or calculated.
    Ok(!given_up.has_lost())
}

/// A block of a column: what it should be, as far as the journal knows.
struct Fate {
    /// From the journal, if that is what it must be.
    content: Option<Vec<u8>>,
    /// It will be what the newest record that names it says.
    newest: bool,
    /// The checksum of that, where the record has no more of it and no copy fits.
    wanted: Option<u32>,
    /// What lies in place fits an older record.
    fits_older: bool,
}

/// What lies in one place of a column.
struct InPlace {
    /// The block, as each good copy has it that can be read.
    blocks: Vec<Vec<u8>>,
    /// A copy is here whose disk cannot read it.
    unreadable: bool,
}

/// The blocks at one place of all columns.
type Lane = Vec<InPlace>;

impl Fate {
    /// `about`: what records say of the lane, oldest first; `present`: what lies in place, by copy.
    async fn of(
        column: usize,
        present: &[Vec<u8>],
        about: &[(&Told, usize)],
        reader: &Reader<'_>,
    ) -> Result<Self, BlockError> {
        let mut fate = Self { content: None, newest: true, wanted: None, fits_older: false };
        for (told, index) in about.iter().rev().filter(|(told, _)| usize::from(told.entry.column) == column) {
            let Some(sum) = told.entry.sums.get(*index) else { continue };
            if told.entry.kind == JournalKind::Zeroes {
                fate.content = Some(vec![0; BYTES]);
                break;
            }
            if told.entry.kind == JournalKind::Payload {
                let content = reader.payload(told.payload + *index as u64, *sum).await;
                // It was there when the chain was followed.
                let gone = || BlockError::new(BlockErrorKind::Gone, "read the journal of a space");
                fate.content = Some(content.ok_or_else(gone)?);
                break;
            }
            if let Some(found) = present.iter().find(|present| reader.space.checksum.of(present) == *sum) {
                // While a slab moves there are two copies: both get it.
                fate.content = present.iter().any(|other| other != found).then(|| found.clone());
                fate.fits_older = !fate.newest;
                break;
            }
            fate.wanted = fate.wanted.or(fate.newest.then_some(*sum));
            fate.newest = false;
        }
        Ok(fate)
    }

    /// How many of a block's sectors are what they were before the newest record.
    fn older_sectors(&self, block: &[u8]) -> usize {
        let zeros = [0; SECTOR];
        let sectors = block.chunks(SECTOR).enumerate();
        let is_older = |(index, sector): &(usize, &[u8])| match &self.content {
            Some(older) => older.get(index * SECTOR..(index + 1) * SECTOR) == Some(*sector),
            None => self.fits_older || *sector == zeros,
        };
        sectors.filter(is_older).count()
    }
}

/// Brings what the journal says of one stripe to its place; `false` when that did not come to its end (only of a space in use).
async fn bring_in_place(
    at: At<'_>,
    stripe: u64,
    told: &[Told],
    reader: &Reader<'_>,
    given_up: &mut GivenUp,
) -> Result<bool, BlockError> {
    let interleave = at.space.striping.interleave();
    let (start, columns) = (stripe * interleave, at.row.columns.len());
    let mask = at.regions(start, interleave);
    let first = start / BLOCK;
    for block in first..first + interleave / BLOCK {
        let about: Vec<(&Told, usize)> = told
            .iter()
            .filter_map(|told| {
                let index = block.checked_sub(u64::from(told.entry.first))? as usize;
                (index < told.entry.sums.len()).then_some((told, index))
            })
            .collect();
        if about.is_empty() {
            continue;
        }
        let mut lane: Lane = Vec::with_capacity(columns);
        for column in 0..columns {
            lane.push(in_place(at.other(column), block, mask).await);
        }
        let mut fates: Vec<Fate> = Vec::with_capacity(columns);
        for (column, present) in lane.iter().enumerate() {
            fates.push(Fate::of(column, &present.blocks, &about, reader).await?);
        }
        let whole = about
            .iter()
            .any(|(told, _)| matches!(told.entry.kind, JournalKind::Fresh | JournalKind::Derived));
        if whole {
            calculate(at, block, &lane, &mut fates);
        }
        if !make_good(at, (block, mask, whole), lane, fates, given_up).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Gives blocks that are not what the newest record says that content, where the rest of the lane has it and the checksum
/// proves it.
fn calculate(at: At<'_>, block: u64, lane: &Lane, fates: &mut [Fate]) {
    let missing: Vec<usize> = (0..fates.len()).filter(|column| !fates[*column].newest).collect();
    if missing.is_empty() || missing.len() > at.space.striping.parity() {
        return;
    }
    let known = fates.iter().zip(lane).map(|(fate, present)| {
        let content = fate.content.as_deref().or(present.blocks.first().map(Vec::as_slice));
        content.filter(|_| fate.newest)
    });
    let known: Vec<Option<&[u8]>> = known.collect();
    let solved = missing.iter().map(|column| {
        let found = solve_block(at.space, block * BLOCK, *column, &known)?;
        (Some(at.space.checksum.of(&found)) == fates[*column].wanted).then_some(found)
    });
    let Some(solved) = solved.collect::<Option<Vec<Vec<u8>>>>() else { return };
    for (column, content) in missing.into_iter().zip(solved) {
        fates[column] = Fate { content: Some(content), newest: true, wanted: None, fits_older: false };
    }
}

/// Whether blocks of a lane that are not what the newest record says, and cannot be calculated, are lost: some are not here or cannot
/// be read, and others are damaged in a way that no power cut explains. Where a sector is still what it was before, the write was
/// never acknowledged as durable, and those which are not here may be what they were before, too. (Damage in a block of which a
/// sector was written with what had been there before is taken for a torn write: the checksum that the journal has is of the
/// whole block.)
fn is_lost(lane: &Lane, fates: &[Fate]) -> bool {
    let (mut gone, mut damaged, mut unwritten) = (false, false, false);
    for (fate, present) in fates.iter().zip(lane).filter(|(fate, _)| !fate.newest) {
        let older = present.blocks.iter().map(|block| fate.older_sectors(block));
        gone |= present.blocks.is_empty();
        damaged |= present.unreadable || older.clone().any(|sectors| sectors < BYTES / SECTOR);
        unwritten |= older.clone().any(|sectors| sectors > 0);
    }
    gone && damaged && !unwritten
}

/// Writes what a lane must hold, and makes its parity agree; `false` when what has to be decided for that cannot be kept now.
async fn make_good(
    at: At<'_>,
    (block, mask, whole): (u64, u64, bool),
    lane: Lane,
    fates: Vec<Fate>,
    given_up: &mut GivenUp,
) -> Result<bool, BlockError> {
    let striping = &at.space.striping;
    let stripe = striping.stripe_at(block * BLOCK);
    // In a clean region everything was durable, and its checksums are on the disks: what differs is damage, which reads find.
    let clean = at.group().dirty_durable.load(Ordering::SeqCst) & mask == 0;
    let lost = whole && is_lost(&lane, &fates);
    let agrees = {
        let mut here = fates.iter().zip(&lane).filter(|(_, present)| !present.blocks.is_empty());
        !whole || here.all(|(fate, _)| fate.newest)
    };
    let mut contents: Vec<Option<Vec<u8>>> = Vec::with_capacity(lane.len());
    for (column, (fate, present)) in fates.into_iter().zip(lane).enumerate() {
        if lost && !clean {
            fate.wanted.iter().for_each(|sum| given_up.add(at.other(column), block, *sum));
        }
        if let Some(content) = &fate.content
            && !present.blocks.is_empty()
            && (fate.newest || !(lost || clean))
        {
            put(at.other(column), block, mask, content).await?;
        }
        // Known, even if its disk is not here: parity can be made to hold it.
        contents.push(fate.content.or_else(|| present.blocks.into_iter().next()));
    }
    if agrees || lost || clean {
        return Ok(true);
    }
    // Something here is still what it was before. Parity may be all that shows it, wholly unwritten or in part.
    let columns = (0..striping.data()).map(|unit| striping.column_of(stripe, unit));
    let missing: Vec<usize> = columns.filter(|column| contents[*column].is_none()).collect();
    if !given_up.add_torn(at, block, &missing).await? {
        return Ok(false);
    }
    let zeros = vec![0; BYTES];
    let unit = |unit: usize| contents[striping.column_of(stripe, unit)].as_deref().unwrap_or(&zeros);
    let data: Vec<&[u8]> = (0..striping.data()).map(unit).collect();
    let (mut p, mut q) = (vec![0; BYTES], vec![0; BYTES]);
    parity::generate(&data, &mut p, Some(&mut q));
    for (which, sum) in [p, q].iter().enumerate().take(striping.parity()) {
        let column = striping.column_of(stripe, striping.data() + which);
        put(at.other(column), block, mask, sum).await?;
    }
    Ok(true)
}

/// What lies in place, from each good copy that can be read.
async fn in_place(at: At<'_>, block: u64, mask: u64) -> InPlace {
    let mut found = InPlace { blocks: Vec::new(), unreadable: false };
    for copy in at.column().copies().iter().filter(|copy| copy.is_good(mask)) {
        match copy.disk.read(copy.start + block * BLOCK, IoBuf::new(BYTES)).await {
            Ok(data) => found.blocks.push(data.to_vec()),
            Err(_) => found.unreadable |= copy.disk.is_online(),
        }
    }
    found
}

async fn put(at: At<'_>, block: u64, mask: u64, content: &[u8]) -> Result<(), BlockError> {
    let edit = Edit::Data(IoBuf::copy_from(content).freeze());
    let copies = at.column().copies();
    let written =
        write_copies(&copies, (block * BLOCK, BLOCK), mask, from_ref(&edit), Durability::Volatile).await;
    // A disk that fails is offline now; its region is dirty, so that it counts as stale before anybody reads it. One that is
    // full goes on without what it has no room for, if the others of the row can do without that.
    for (copy, error) in copies.iter().zip(written).filter_map(|(copy, put)| Some((copy, put?.err()?))) {
        if error.kind() == BlockErrorKind::NoSpace
            && !at.core.mark_stale(at.place, at.row, copy, mask).await?
        {
            return Err(error);
        }
    }
    Ok(())
}
