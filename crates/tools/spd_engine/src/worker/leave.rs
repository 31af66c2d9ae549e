//! What a thread leaves behind.

use spd_report::{OpenLoop, TargetOutcome, ThreadOutcome, VerifyOutcome};

use super::Worker;
use crate::pacing::Pacing;
use crate::shared::Left;
use crate::verify;

impl Worker<'_> {
    pub(super) fn leave(self) -> Left {
        let mut open: Option<OpenLoop> = None;
        let mut verified: Option<VerifyOutcome> = None;
        let now = self.clock.now().0;
        let longest_stall_ms = self.longest_stall as f64 / 1e6;
        let targets = self.streams.into_iter().map(|stream| {
            if let (Pacing::Open(schedule), Some((rate, _))) = (&stream.pacing, self.span.rate) {
                let never = schedule.never_begun(self.window.to.min(now));
                let sum = open.get_or_insert(OpenLoop { rate, ..OpenLoop::default() });
                sum.intended += schedule.intended + never;
                sum.late += schedule.late;
                sum.never_begun += never;
            }
            if let Some(replay) = stream.replay.as_ref().filter(|replay| !replay.fast) {
                let seconds = self.window.to.min(now).saturating_sub(self.window.from) as f64 / 1e9;
                let sum = open.get_or_insert_default();
                sum.rate += (replay.intended as f64 / seconds.max(1e-9) * 100.0).round() / 100.0;
                sum.intended += replay.intended;
                sum.late += replay.late;
            }
            if let Some(verifier) = stream.verifier {
                let sum =
                    verified.get_or_insert(VerifyOutcome { longest_stall_ms, ..VerifyOutcome::default() });
                verify::merge(sum, verifier.outcome());
            }
            TargetOutcome {
                path: stream.target.path.clone(),
                size: 0,
                distribution: stream.offsets.ranges().to_vec(),
                read: stream.read,
                write: stream.write,
            }
        });
        let outcome = ThreadOutcome { targets: targets.collect(), waits: self.waits };
        Left { outcome, open, verify: verified, broken: self.broken }
    }
}
