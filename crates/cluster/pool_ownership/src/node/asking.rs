//! Promises that this node asks the others for.

use super::Node;
use crate::io::{Action, Message};
use crate::time::BootTime;

impl Node {
    /// Asks the others for promises while beats are missing and there is still a permit. Without one it asks no more: who is promised
    /// something that it cannot hear would keep the others from its pools for ever.
    pub(super) fn ask(&mut self, now: BootTime, actions: &mut Vec<Action>) {
        let Some(committed) = self.permit.last_committed() else { return };
        let overdue = committed.after(self.timings.beat_every + self.timings.beat_patience);
        if now < overdue {
            return self.wake_at(now, overdue);
        }
        if now >= self.permit() {
            return;
        }
        if now >= self.next_ask {
            self.next_ask = now.after(self.timings.ask_every);
            let round = self.permit.ask(now);
            let message = Message::Ask { incarnation: self.incarnation, round };
            actions.extend(self.others().map(|other| Action::Send(other, message)));
        }
        let next = self.next_ask;
        self.wake_at(now, next);
    }
}
