//! When an alarm begins and ends: [`AlarmWatch`].

use sluicegate_core::store::Alarm;

use super::sample::MINUTE;

/// The slots in a row that are unusual before an alarm begins.
const BEGINS: u32 = 2;
/// The slots in a row that are usual before it ends: five minutes.
const ENDS: u32 = 5 * MINUTE;
/// The slots between two alarms of one cause: ten minutes.
const APART: u32 = 10 * MINUTE;

/// One cause of alarms.
#[derive(Default)]
pub(super) struct AlarmWatch {
    /// The alarm, while it lasts.
    alarm: Option<Alarm>,
    /// The slot in which it was last reported.
    told: Option<u32>,
    /// Whether an alarm was reported, so that its end has to be reported too.
    is_open: bool,
    /// Slots in a row that contradict the current state.
    slots: u32,
}

/// The verdict on a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotVerdict {
    Unusual,
    /// Neither: an alarm goes on, and none begins.
    Between,
    AsUsual,
}

impl AlarmWatch {
    /// The current alarm.
    pub(super) fn alarm(&self) -> Option<&Alarm> {
        self.alarm.as_ref()
    }

    /// Ends a slot, and returns the alarm to report, if any.
    pub(super) fn turn(
        &mut self,
        slot: u32,
        found: SlotVerdict,
        alarm: impl FnOnce() -> Alarm,
    ) -> Option<Alarm> {
        let lasts = self.alarm.is_some();
        let (against, enough) =
            if lasts { (SlotVerdict::AsUsual, ENDS) } else { (SlotVerdict::Unusual, BEGINS) };
        self.slots = if found == against { self.slots + 1 } else { 0 };
        if let Some(lasting) = self.alarm.as_mut().filter(|_| found == SlotVerdict::Unusual) {
            let since_us = lasting.since_us;
            *lasting = alarm();
            lasting.since_us = since_us;
        } else if self.slots >= enough {
            self.slots = 0;
            if lasts {
                self.alarm = None;
                let is_told = std::mem::take(&mut self.is_open);
                return is_told.then(|| {
                    let mut over = alarm();
                    over.is_over = true;
                    over
                });
            }
            self.alarm = Some(alarm());
        }
        let is_due = self.told.is_none_or(|told| slot.saturating_sub(told) >= APART);
        if self.alarm.is_none() || self.is_open || !is_due {
            return None;
        }
        (self.told, self.is_open) = (Some(slot), true);
        self.alarm.clone()
    }
}
