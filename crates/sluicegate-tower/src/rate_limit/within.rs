//! The inner layers that a layer knows: [`LayersWithin`].
//!
//! A service is ready when its inner services are. So the layers that are polled while a layer polls its inner service are
//! the layers that each of its requests reaches. A router, which is ready whatever its routes are, hides its inner layers. A service
//! that polls several at once, such as `tower::steer::Steer`, chooses one of them for a request: then nothing inside it is known.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::task::Poll;

use crate::limits::LimitsHandle;

thread_local! {
    /// The limits that were polled so far, while an outer layer collects them.
    static ASKED: RefCell<Option<AskedLayers>> = const { RefCell::new(None) };
}

/// The limits of the inner layers, from outside to inside, once they are known.
#[derive(Default)]
pub(super) struct LayersWithin(OnceLock<Box<[LimitsHandle]>>);

/// The layers that were asked whether they are ready.
#[derive(Default)]
struct AskedLayers {
    /// From the outside to the inside.
    layers: Vec<LimitsHandle>,
    /// Whether two were polled and neither is inside the other.
    is_a_choice: bool,
}

impl LayersWithin {
    pub(super) fn limits(&self) -> &[LimitsHandle] {
        self.0.get().map_or(&[], |known| known)
    }

    /// Polls whether the inner service is ready, for the layer with these limits.
    #[inline]
    pub(super) fn ask<T>(&self, own: &LimitsHandle, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        if self.0.get().is_some() && ASKED.with_borrow(Option::is_none) {
            poll()
        } else {
            self.find(own, poll)
        }
    }

    #[cold]
    fn find<T>(&self, own: &LimitsHandle, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        let around = OuterAsk(ASKED.replace(Some(AskedLayers::default())));
        let polled = poll();
        let asked = around.end();
        let layers = if asked.is_a_choice { &[][..] } else { &asked.layers };
        ASKED.with_borrow_mut(|around| {
            if let Some(around) = around {
                around.add(own, layers);
            }
        });
        // Until it is ready, some layers may not have been polled yet.
        if polled.is_ready() || asked.is_a_choice {
            self.0.get_or_init(|| layers.into());
        }
        polled
    }
}

impl AskedLayers {
    fn add(&mut self, layer: &LimitsHandle, within: &[LimitsHandle]) {
        self.is_a_choice |= self.layers.first().is_some_and(|first| !first.is_same(layer));
        if self.layers.is_empty() {
            self.layers.push(layer.clone());
            self.layers.extend(within.iter().cloned());
        }
    }
}

/// The limits that an outer layer has collected so far, restored even if a poll panics.
struct OuterAsk(Option<AskedLayers>);

impl OuterAsk {
    /// The limits that were polled meanwhile.
    fn end(mut self) -> AskedLayers {
        ASKED.replace(self.0.take()).unwrap_or_default()
    }
}

impl Drop for OuterAsk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            ASKED.set(self.0.take());
        }
    }
}
