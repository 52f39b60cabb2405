//! Tells that a file looks at bodies of requests, and that a layer does not: [`Unread`].

use std::sync::{Mutex, PoisonError};

use crate::compile::Compiled;

/// Whether the file in force looks at bodies of requests, and whether a layer serves that neither reads nor holds them. The log says so once.
#[derive(Debug, Default)]
pub(crate) struct Unread(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The things that the file looks at, in words.
    needs: Option<String>,
    /// Whether a layer without bodies serves.
    serves: bool,
    is_said: bool,
}

impl Unread {
    /// This file is in force now.
    pub(crate) fn follow(&self, file: &Compiled) {
        let fields = (!file.body_fields.is_empty()).then(|| {
            let fields: Vec<String> = file.body_fields.iter().map(|field| format!("{field:?}")).collect();
            format!("the fields {} of requests' bodies", fields.join(", "))
        });
        let uploads = file.holds_requests().then(|| "the bandwidth of requests' bodies".to_owned());
        let needs: Vec<String> = fields.into_iter().chain(uploads).collect();
        self.change(|state| state.needs = (!needs.is_empty()).then(|| needs.join(" and ")));
    }

    /// A layer that neither reads nor holds bodies of requests is in front of a service.
    pub(crate) fn serve(&self) {
        self.change(|state| state.serves = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        if let State { needs: Some(needs), serves: true, is_said: false } = &*state {
            tracing::warn!(
                "the rules look at {needs}, and the layer in front of the service does not: for it no request has such a field, and no \
                 upload is held; make the layer by `rules.layer().reading_requests()`; this is said once"
            );
            state.is_said = true;
        }
    }
}
