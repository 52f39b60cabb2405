//! Reports that a file needs more of requests and responses than its rules get: [`Unread`].

use std::sync::Mutex;

use sluicegate_core::support::lock;

use crate::compile::Compiled;

/// Whether the file in force needs bodies of requests, and whether a layer that neither reads nor delays them is in use: the log says so
/// once. Also whether it needs responses, and whether a server without responses decides: the log says so for each such file.
#[derive(Debug, Default)]
pub(crate) struct Unread(Mutex<UnreadNeeds>);

#[derive(Debug, Default)]
struct UnreadNeeds {
    /// The parts of requests that the file needs, in words.
    needs: Option<String>,
    /// Whether a layer without bodies is in use.
    serves: bool,
    is_said: bool,
    /// The rules that need responses.
    of_responses: Vec<String>,
    /// Whether a server decides for other processes.
    decides_apart: bool,
}

impl Unread {
    /// Notes the file in force.
    pub(crate) fn follow(&self, file: &Compiled) {
        let fields = (!file.body_fields.is_empty()).then(|| {
            let fields: Vec<String> = file.body_fields.iter().map(|field| format!("{field:?}")).collect();
            format!("the fields {} of requests' bodies", fields.join(", "))
        });
        let uploads = file.holds_requests().then(|| "the bandwidth of requests' bodies".to_owned());
        let needs: Vec<String> = fields.into_iter().chain(uploads).collect();
        self.change(|state| {
            state.needs = (!needs.is_empty()).then(|| needs.join(" and "));
            state.of_responses = file.needs_of_responses();
        });
    }

    /// Notes a server that decides by the rules without responses and connections of the requests.
    pub(crate) fn decide_apart(&self) {
        self.change(|state| state.decides_apart = true);
    }

    /// Notes a layer in front of a service that neither reads nor delays bodies of requests.
    pub(crate) fn serve(&self) {
        self.change(|state| state.serves = true);
    }

    fn change(&self, change: impl FnOnce(&mut UnreadNeeds)) {
        let mut state = lock(&self.0);
        change(&mut state);
        if let UnreadNeeds { needs: Some(needs), serves: true, is_said: false, .. } = &*state {
            tracing::warn!(
                "the rules look at {needs}, and the layer in front of the service does not: for it no request has such a field, and no \
                 upload is held; make the layer by `rules.layer().reading_requests()`; this is said once"
            );
            state.is_said = true;
        }
        if state.decides_apart && !state.of_responses.is_empty() {
            let rules = std::mem::take(&mut state.of_responses).join("; ");
            tracing::warn!(
                "{rules}: without effect, because this server decides before a request goes on, and has neither its response nor its \
                 connection; put the rules into a layer, or let the caller settle by /v1/reserve and /v1/settle"
            );
        }
    }
}
