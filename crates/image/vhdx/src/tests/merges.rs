//! A child becomes part of its parent, or gets another one, with power cuts at every write.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability, UnmapBehavior};
use file_store::OpenFile;
use shard_runtime::{Entropy, SeededEntropy};
use sim::{Dice, Pace, Power, SimDisk, SimSpec, Survival, on_shard};

use super::sim_file::SimStorage;
use super::{MIB, put};
use crate::{
    CreateOptions, Image, ImageError, ImageErrorKind, Kind, Mode, Opening, ParentLocator, Progress, create,
};

const SIZE: u64 = 5 * MIB + MIB / 2;

fn quiet() -> Progress {
    Box::new(|_, _| {})
}

/// A parent and its child on two simulated disks, which lose their power together.
struct Pair {
    parent: SimStorage,
    child: SimStorage,
    power: Arc<Power>,
    entropy: Arc<dyn Entropy>,
    /// What the child shows.
    shows: Vec<u8>,
}

async fn content(image: &Image) -> Vec<u8> {
    image.read(0, IoBuf::new(image.size() as usize)).await.expect("read").to_vec()
}

impl Pair {
    async fn new(seed: u64, parents: (u64, Kind)) -> Self {
        let dice = Dice::new(seed);
        let power = Power::new(dice.fork());
        let spec = SimSpec {
            size: 48 << 20,
            block_size: 512,
            unmap: UnmapBehavior::Zeroes,
            pace: Pace { turns: 2, ..Pace::default() },
        };
        let storage = || SimStorage::new(power.clone(), SimDisk::new(&power, &spec));
        let (parent, child) = (storage(), storage());
        let entropy: Arc<dyn Entropy> = Arc::new(SeededEntropy::new(seed));
        let mut pair = Self { parent, child, power: power.clone(), entropy, shows: Vec::new() };
        let (size, kind) = parents;
        let options = CreateOptions { block_size: Some(2 << 20), ..CreateOptions::new(size, kind) };
        create(&pair.parent.file(), &options, &*pair.entropy).await.expect("made");
        let image = pair.alone(Mode::Write).await.expect("opened");
        put(&image, 0, 3 * MIB, 1).await;
        put(&image, 4 * MIB, 4096, 1).await;
        image.close().await.expect("closed");
        let id = image.data_write_guid().await;
        let kind = Kind::Differencing(ParentLocator::new(id, "parent", None));
        let options = CreateOptions { block_size: Some(1 << 20), ..CreateOptions::new(SIZE, kind) };
        create(&pair.child.file(), &options, &*pair.entropy).await.expect("made");
        let image = pair.over(Mode::Write).await.expect("opened");
        put(&image, 512, 1024, 2).await;
        put(&image, MIB, MIB, 2).await;
        image.unmap(2 * MIB, MIB).await.expect("unmapped");
        put(&image, SIZE - 512, 512, 2).await;
        image.close().await.expect("closed");
        pair.shows = content(&image).await;
        pair
    }

    fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.entropy
    }

    /// The parent by itself.
    async fn alone(&self, mode: Mode) -> Result<Image, ImageError> {
        Opening::read(self.parent.file(), mode, self.entropy()).await?.finish(None).await
    }

    /// The child over its parent.
    async fn over(&self, mode: Mode) -> Result<Image, ImageError> {
        let parent = self.alone(Mode::Read).await?;
        Opening::read(self.child.file(), mode, self.entropy()).await?.finish(Some(parent)).await
    }

    async fn merge(&self) -> Result<(), ImageError> {
        let child = Opening::read(self.child.file(), Mode::Write, self.entropy()).await?;
        child.merge_into(self.alone(Mode::Write).await?, quiet()).await
    }

    fn recover(&self, dice: &Dice) {
        self.parent.recover(dice);
        self.child.recover(dice);
    }
}

async fn is_sound(file: &Arc<dyn OpenFile>) {
    let report = crate::check(file).await.expect("an image");
    assert_eq!((report.error_count, &report.warnings), (0, &vec![]), "{report:?}");
}

/// One merge, whose power goes at an event; how many there were, and whether it went.
fn merge_cut(seed: u64, parents: (u64, Kind), cut: Option<u64>) -> (u64, bool) {
    on_shard(async {
        let pair = Pair::new(seed, parents).await;
        let before = pair.power.events();
        let survival = Survival::any(&Dice::new(seed * 1000 + cut.unwrap_or(0)));
        if let Some(cut) = cut {
            pair.power.cut_after(cut, survival);
        }
        let merged = pair.merge().await;
        let (events, went) = (pair.power.events() - before, !pair.power.is_on());
        assert!(merged.is_ok() || went, "{merged:?}");
        pair.power.cut(survival);
        pair.recover(&Dice::new(seed + cut.unwrap_or(0)));
        for mode in [Mode::Read, Mode::Write] {
            let child = pair.over(mode).await;
            let child = child.unwrap_or_else(|error| panic!("cut at {cut:?} of {events}, {mode:?}: {error}"));
            assert!(content(&child).await == pair.shows, "cut at {cut:?} of {events}, {mode:?}");
        }
        if merged.is_err() {
            pair.merge().await.unwrap_or_else(|error| panic!("again after {cut:?} of {events}: {error}"));
        }
        let parent = pair.alone(Mode::Read).await.expect("opened");
        assert_eq!(parent.size(), SIZE);
        assert!(content(&parent).await == pair.shows, "the parent, after a cut at {cut:?} of {events}");
        is_sound(&pair.parent.file()).await;
        is_sound(&pair.child.file()).await;
        (events, went)
    })
    .expect("an event loop")
}

#[test]
fn a_merge_survives_a_cut_at_every_write() {
    for (seed, parents) in
        [(SIZE, Kind::Dynamic), (4 * MIB + 512 * 16, Kind::Dynamic), (8 * MIB, Kind::Fixed)]
            .into_iter()
            .enumerate()
    {
        let seed = seed as u64 + 1;
        let (events, _) = merge_cut(seed, parents.clone(), None);
        // The first of them at every event, the others at some.
        let step = if seed == 1 { 1 } else { 7 };
        let cuts =
            (0..events).step_by(step).filter(|cut| merge_cut(seed, parents.clone(), Some(*cut)).1).count();
        assert!(cuts > 5, "{cuts} of {events}");
    }
}

#[test]
fn only_the_parent_is_merged_into_and_other_children_are_none_then() {
    super::run(async {
        let pair = Pair::new(9, (SIZE, Kind::Dynamic)).await;
        let (other, _) = super::image(&super::dynamic(SIZE, MIB)).await;
        put(&other, 0, 512, 9).await;
        let child = Opening::read(pair.child.file(), Mode::Write, pair.entropy()).await.expect("read");
        let refused = child.merge_into(other, quiet()).await.expect_err("another one");
        assert_eq!(refused.kind(), ImageErrorKind::Parent);
        let read = pair.alone(Mode::Read).await.expect("opened");
        let child = Opening::read(pair.child.file(), Mode::Write, pair.entropy()).await.expect("read");
        let refused = child.merge_into(read, quiet()).await.expect_err("it is read only");
        assert_eq!(refused.kind(), ImageErrorKind::ReadOnly);
        let id = pair.alone(Mode::Read).await.expect("opened").data_write_guid().await;
        pair.merge().await.expect("merged");
        let after = pair.alone(Mode::Read).await.expect("opened").data_write_guid().await;
        assert_ne!(id, after, "children that are not merged know it by this");
        assert!(pair.merge().await.is_ok(), "once more changes nothing");
        assert!(content(&pair.alone(Mode::Read).await.expect("opened")).await == pair.shows);
    });
}

/// A child gets a longer locator of another parent: it has the one or the other.
fn reparent_cut(cut: Option<u64>) -> (u64, bool) {
    on_shard(async {
        let pair = Pair::new(5, (SIZE, Kind::Dynamic)).await;
        let before = pair.power.events();
        let survival = Survival::any(&Dice::new(cut.unwrap_or(0)));
        if let Some(cut) = cut {
            pair.power.cut_after(cut, survival);
        }
        let id = pair.alone(Mode::Read).await.expect("opened").data_write_guid().await;
        let path = format!(".\\{}", "a".repeat(3000));
        let child = Opening::read(pair.child.file(), Mode::Write, pair.entropy()).await;
        let done = match child {
            Ok(child) => child.reparent(ParentLocator::new(id, &path, None), false).await,
            Err(error) => Err(error),
        };
        let (events, went) = (pair.power.events() - before, !pair.power.is_on());
        assert!(done.is_ok() || went, "{done:?}");
        pair.power.cut(survival);
        pair.recover(&Dice::new(cut.unwrap_or(0)));
        let opening = Opening::read(pair.child.file(), Mode::Read, pair.entropy()).await.expect("read");
        let says =
            opening.parent_locator().and_then(|locator| locator.paths().next()).expect("a path").to_owned();
        assert!(says == path || done.is_err() && says == "parent", "cut at {cut:?} of {events}: {says}");
        let child = pair.over(Mode::Write).await.expect("opened");
        assert!(content(&child).await == pair.shows);
        child.close().await.expect("closed");
        is_sound(&pair.child.file()).await;
        (events, went)
    })
    .expect("an event loop")
}

#[test]
fn another_parent_survives_a_cut_at_every_write() {
    let (events, _) = reparent_cut(None);
    let cuts = (0..events).filter(|cut| reparent_cut(Some(*cut)).1).count();
    assert!(cuts > 5, "{cuts} of {events}");
}

#[test]
fn what_does_not_fit_or_has_no_parent_is_refused() {
    super::run(async {
        let pair = Pair::new(6, (SIZE, Kind::Dynamic)).await;
        let id = pair.alone(Mode::Read).await.expect("opened").data_write_guid().await;
        for (file, len) in [(pair.parent.file(), 10), (pair.child.file(), 40_000)] {
            let locator = ParentLocator::new(id, &"a".repeat(len), None);
            let opening = Opening::read(file, Mode::Write, pair.entropy()).await.expect("read");
            let refused = opening.reparent(locator, false).await.expect_err("refused");
            assert_eq!(refused.kind(), ImageErrorKind::InvalidArgument);
        }
        // Shorter and longer ones follow each other; the place behind the items does not run out.
        for round in 0..2000 {
            let locator = ParentLocator::new(id, &"b".repeat(1 + round % 2 * 500), None);
            let opening = Opening::read(pair.child.file(), Mode::Write, pair.entropy()).await.expect("read");
            opening.reparent(locator, round % 5 == 0).await.expect("it has room");
        }
        assert!(content(&pair.over(Mode::Read).await.expect("opened")).await == pair.shows);
        let data = IoBuf::copy_from(&[3; 512]).freeze();
        let child = pair.over(Mode::Write).await.expect("opened");
        child.write(0, data, Durability::Durable).await.expect("written");
    });
}
