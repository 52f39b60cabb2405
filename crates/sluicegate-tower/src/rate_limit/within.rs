//! The layers that a layer knows further in: [`LayersWithin`].
//!
//! A service is ready when those inside of it are. So the layers that are asked while a layer asks whether the service inside is ready are
//! those that each of its requests comes to. A router, which is ready whatever its routes are, hides what is behind it. A service
//! that asks several at once, such as `tower::steer::Steer`, chooses one of them for a request: then nothing behind it is known.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::task::Poll;

use crate::limits::LimitsHandle;

thread_local! {
    /// The limits that were asked so far, while a layer around wants to know them.
    static ASKED: RefCell<Option<AskedLayers>> = const { RefCell::new(None) };
}

/// The limits of the layers further in, from the outside to the inside, once they are known.
#[derive(Default)]
pub(super) struct LayersWithin(OnceLock<Box<[LimitsHandle]>>);

/// The layers that were asked whether they are ready.
#[derive(Default)]
struct AskedLayers {
    /// From the outside to the inside.
    layers: Vec<LimitsHandle>,
    /// Whether two were asked of which none is within the other.
    is_a_choice: bool,
}

impl LayersWithin {
    pub(super) fn limits(&self) -> &[LimitsHandle] {
        self.0.get().map_or(&[], |known| known)
    }

    /// Asks whether the service inside is ready, for the layer with these limits.
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
        // Until it is ready there may be some that were not asked yet.
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

/// The limits that a layer around has asked so far, put back even where a poll panics.
struct OuterAsk(Option<AskedLayers>);

impl OuterAsk {
    /// The limits that were asked meanwhile.
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
