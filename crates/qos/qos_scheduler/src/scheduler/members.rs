//! Flows and classes: how they come, go and change.

use super::{Flow, FlowId, Scheduler};
use crate::class::{Class, ClassId};
use crate::counters::{FlowCounters, FlowState};
use crate::queue::Queue;
use crate::terms::Terms;

impl<T> Scheduler<T> {
    /// A new class.
    pub fn add_class(&mut self, now: u64, terms: Terms) -> ClassId {
        let time = self.time(now);
        if let Some(index) = self.free_classes.pop() {
            let slot = &mut self.classes[index as usize];
            let listed = slot.window.listed;
            *slot = Class::new(terms, time, slot.generation);
            slot.window.listed = listed;
            return ClassId { index, generation: slot.generation };
        }
        self.classes.push(Class::new(terms, time, 0));
        ClassId { index: self.classes.len() as u32 - 1, generation: 0 }
    }

    pub(super) fn class_index(&self, id: ClassId) -> Option<u32> {
        let class = self.classes.get(id.index as usize)?;
        (class.alive && class.generation == id.generation).then_some(id.index)
    }

    /// The terms of a class.
    #[must_use]
    pub fn terms(&self, class: ClassId) -> Option<Terms> {
        self.class_index(class).map(|index| self.classes[index as usize].terms)
    }

    /// When all that has started in a class will have been paid for by its limits, in nanoseconds; 0 without limits. One that is made anew before
    /// that gets again what this one has had.
    #[must_use]
    pub fn paid(&self, class: ClassId) -> u64 {
        let slot = self.class_index(class).map(|index| &self.classes[index as usize]);
        slot.map_or(0, |class| class.iops.paid().max(class.bandwidth.paid()))
    }

    /// Other terms from now on, also for what waits. Whether there is such a class.
    pub fn set_terms(&mut self, now: u64, class: ClassId, terms: Terms) -> bool {
        let Some(index) = self.class_index(class) else { return false };
        let time = self.time(now);
        let line = self.line(time);
        self.classes[index as usize].set_terms(terms, time, line);
        self.place(index, time);
        true
    }

    /// Removes a class that no flow belongs to. Whether that was so.
    pub fn remove_class(&mut self, class: ClassId) -> bool {
        let Some(index) = self.class_index(class) else { return false };
        let slot = &mut self.classes[index as usize];
        if slot.flows > 0 {
            return false;
        }
        slot.alive = false;
        // Its number may be another one's soon.
        self.keepers.retain(|keeper| keeper.class != index);
        slot.generation = slot.generation.wrapping_add(1);
        self.free_classes.push(index);
        true
    }

    /// A new flow of a class, with its weight among flows (at least 1). `None`: there is no such class.
    pub fn add_flow(&mut self, class: ClassId, weight: u32) -> Option<FlowId> {
        let class = self.class_index(class)?;
        self.belongs(class, 0);
        let mut flow = Flow {
            generation: 0,
            alive: true,
            class,
            weight: weight.max(1),
            start: 0,
            queue: Queue::default(),
            in_flight: 0,
            counters: FlowCounters::default(),
        };
        if let Some(index) = self.free_flows.pop() {
            flow.generation = self.flows[index as usize].generation;
            self.flows[index as usize] = flow;
            return Some(FlowId { index, generation: self.flows[index as usize].generation });
        }
        self.flows.push(flow);
        Some(FlowId { index: self.flows.len() as u32 - 1, generation: 0 })
    }

    /// A flow belongs to a class from now on, with what it has at the volume.
    fn belongs(&mut self, class: u32, in_flight: u32) {
        let class = &mut self.classes[class as usize];
        self.peopled += u32::from(class.flows == 0);
        class.flows += 1;
        class.in_flight += in_flight;
    }

    fn belongs_no_more(&mut self, class: u32, in_flight: u32) {
        let class = &mut self.classes[class as usize];
        class.flows -= 1;
        class.in_flight -= in_flight;
        self.peopled -= u32::from(class.flows == 0);
    }

    pub(super) fn flow_index(&self, id: FlowId) -> Option<u32> {
        let flow = self.flows.get(id.index as usize)?;
        (flow.alive && flow.generation == id.generation).then_some(id.index)
    }

    /// What a flow has done, and what it has under way.
    #[must_use]
    pub fn flow(&self, flow: FlowId) -> Option<FlowState> {
        let flow = &self.flows[self.flow_index(flow)? as usize];
        Some(FlowState { counters: flow.counters, waiting: flow.queue.len, in_flight: flow.in_flight })
    }

    /// Moves a flow, with what waits of it, to another class. Whether both are there.
    pub fn move_flow(&mut self, now: u64, flow: FlowId, class: ClassId) -> bool {
        let (Some(flow), Some(class)) = (self.flow_index(flow), self.class_index(class)) else {
            return false;
        };
        let time = self.time(now);
        let moved = &mut self.flows[flow as usize];
        let before = std::mem::replace(&mut moved.class, class);
        if before == class {
            return true;
        }
        self.classes[before as usize].leave(flow, moved.start, moved.weight);
        moved.start = 0;
        if moved.queue.len > 0 {
            moved.start = self.classes[class as usize].join(flow, 0, moved.weight);
        }
        let in_flight = moved.in_flight;
        self.belongs_no_more(before, in_flight);
        self.belongs(class, in_flight);
        self.place(before, time);
        self.place(class, time);
        true
    }

    /// Removes a flow. What waited of it comes back, first in first; what is at the volume still has to complete.
    pub fn remove_flow(&mut self, now: u64, flow: FlowId) -> Vec<T> {
        let Some(index) = self.flow_index(flow) else { return Vec::new() };
        let time = self.time(now);
        let flow = &mut self.flows[index as usize];
        let mut left = Vec::with_capacity(flow.queue.len as usize);
        while let Some((_, waiting)) = self.requests.pop(&mut flow.queue) {
            left.push(waiting.payload);
        }
        flow.alive = false;
        flow.generation = flow.generation.wrapping_add(1);
        let (class, in_flight) = (flow.class, flow.in_flight);
        self.classes[class as usize].leave(index, flow.start, flow.weight);
        self.belongs_no_more(class, in_flight);
        self.free_flows.push(index);
        self.place(class, time);
        left
    }
}
