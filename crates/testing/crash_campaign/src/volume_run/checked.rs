//! How a verification ends early, and whether names are those that are seen.

use std::collections::BTreeMap;
use std::rc::Rc;

use file_store::StoreError;

use super::Run;
use super::model::{FileModel, Names};

/// Ends a verification that found a broken promise, or was cut off.
pub(super) struct Ended;

pub(super) type Checked<T = ()> = Result<T, Ended>;

pub(super) fn ended<T>(run: &Run, what: &str, result: Result<T, StoreError>) -> Checked<T> {
    result.map_err(|error| {
        if !run.excuses(&error, &run.mark()) {
            run.rig.broken(format!("after the opening {what} fails: {error}"));
        }
        Ended
    })
}

pub(super) fn broken<T>(run: &Run, what: String) -> Checked<T> {
    run.rig.broken(what);
    Err(Ended)
}

pub(super) fn matches(names: &Names, there: &BTreeMap<String, u64>) -> bool {
    let same = |(name, file): (&String, &Rc<FileModel>)| {
        there.get(name).is_some_and(|id| file.id.get().is_none_or(|known| known == *id))
    };
    names.len() == there.len() && names.iter().all(same)
}
