//! Places in a request that give its tier, its class, or the quotas of its key.

use std::sync::Arc;

use http::HeaderName;
use sluicegate_core::ConfigError;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_in_flight::Class;
use sluicegate_tower::PeerIp;
use sluicegate_tower::key::{BearerJwt, RequestView};

use super::keys::{ApiKeys, Keys, call};
use super::quotas::KeyQuotas;
use super::value::{is_unknown, wrong};
use crate::at::At;
use crate::descriptor::RequestDescriptor;
use crate::error::Problems;
use crate::schema::OneOrMany;
use crate::shown::short;

/// A place in a request that names a tier, a class or quotas.
pub(super) enum AttributeSource {
    Claim(Arc<BearerJwt>, String),
    ApiKey(ApiKeys),
    Header(HeaderName, Writers),
    /// The limit that a proxy sends with a descriptor.
    Descriptor,
}

/// Whether a header field of this request is read: it depends on the possible writers.
type Writers = Box<dyn Fn(RequestView<'_>) -> bool + Send + Sync>;

impl AttributeSource {
    /// The place that tiers are read from. A client may write a header field, which is worth a warning.
    pub(super) fn of_tiers(word: &At<String>, keys: &Keys, problems: &mut Problems<'_>) -> Option<Self> {
        Self::of(word, "a tier is read: use jwt(claim), api_key or", keys, problems, |problems| {
            let text = "clients choose their tier freely by this header: let a proxy set it, or use jwt(claim) or api_key";
            problems.warning(word.place, text);
            Some(Box::new(|_| true))
        })
    }

    /// The place that quotas are read from. A header field counts only in requests of proxies that the file names.
    pub(super) fn of_quotas(word: &At<String>, keys: &Keys, problems: &mut Problems<'_>) -> Option<Self> {
        if word.value == "descriptor" {
            return Some(Self::Descriptor);
        }
        Self::of(word, "quotas are read: use jwt(claim), api_key or", keys, problems, |problems| {
            written_by_proxies(word, "quotas", "jwt(claim) or api_key", keys, problems)
        })
    }

    /// The place that classes are read from: a claim, or a header field in requests of proxies that the file names.
    pub(super) fn of_classes(word: &At<String>, keys: &Keys, problems: &mut Problems<'_>) -> Option<Self> {
        let by = Self::of(word, "a class is read: use jwt(claim) or", keys, problems, |problems| {
            written_by_proxies(word, "class", "jwt(claim)", keys, problems)
        });
        Some(match by? {
            Self::Header(name, writers) => {
                let field = name.clone();
                // Of two fields, the first may be the client's.
                let is_one =
                    move |request: RequestView<'_>| request.headers.get_all(&field).iter().count() == 1;
                Self::Header(name, Box::new(move |request| writers(request) && is_one(request)))
            }
            by => by,
        })
    }

    fn of<'p>(
        word: &At<String>,
        what: &str,
        keys: &Keys,
        problems: &mut Problems<'p>,
        writers: impl FnOnce(&mut Problems<'p>) -> Option<Writers>,
    ) -> Option<Self> {
        let wrong = match call(&word.value) {
            Some(("header", name)) => match name.parse() {
                Ok(name) => return writers(problems).map(|writers| Self::Header(name, writers)),
                Err(_) => format!("{:?} is not the name of a header field", short(name)),
            },
            Some(("jwt", claim)) => {
                return keys.claim(word, "sub", problems).map(|jwt| Self::Claim(jwt, claim.to_owned()));
            }
            None if word.value == "api_key" => return keys.listed(word, problems).cloned().map(Self::ApiKey),
            _ => format!("{:?} does not say where {what} header(name)", short(&word.value)),
        };
        problems.error(word.place, wrong);
        None
    }

    /// The name of the tier or class in the request, if it has one.
    pub(super) fn name(&self, request: RequestView<'_>) -> Option<String> {
        match self {
            Self::ApiKey(keys) => keys.line(request)?.tier.clone(),
            Self::Header(name, writers) => {
                let field = request.headers.get(name).filter(|_| writers(request));
                field?.to_str().ok().map(str::to_owned)
            }
            Self::Claim(jwt, claim) => jwt.verify(request).ok()?.text(claim).map(str::to_owned),
            Self::Descriptor => None,
        }
    }

    /// The quotas that the request brings for its key, if it brings some.
    pub(super) fn quotas(&self, request: RequestView<'_>) -> Option<Result<KeyQuotas, ConfigError>> {
        let wrong = |text: String| ConfigError::new(ConfigErrorKind::Policy, text);
        let (text, place) = match self {
            Self::ApiKey(keys) => return keys.line(request)?.quotas.clone().map(Ok),
            Self::Descriptor => {
                return RequestDescriptor::of(request)?
                    .limit()
                    .map(|quota| Ok(KeyQuotas::Quotas(quota.into())));
            }
            Self::Header(name, writers) => {
                let mut fields = request.headers.get_all(name).iter().filter(|_| writers(request));
                let field = fields.next()?;
                if fields.next().is_some() {
                    let text = format!(
                        "the header {name} is there twice: let the proxy replace what a client sends in it"
                    );
                    return Some(Err(wrong(text)));
                }
                (String::from_utf8_lossy(field.as_bytes()).into_owned(), format!("the header {name}"))
            }
            Self::Claim(jwt, claim) => {
                let claims = jwt.verify(request).ok()?;
                let number = || claims.number(claim).map(|number| number.to_string());
                let list = || claims.texts(claim).collect::<Vec<_>>().join(", ");
                let text = claims.text(claim).map(str::to_owned).or_else(number).unwrap_or_else(list);
                (text, format!("the claim {claim}"))
            }
        };
        let text = text.trim();
        let quotas = (!text.is_empty()).then(|| text.parse::<KeyQuotas>())?;
        Some(quotas.map_err(|error| wrong(format!("{place}: {}", error.problem()))))
    }
}

/// Whether a request comes from a proxy that the file names: only these may set the quotas or the class in this header field.
fn written_by_proxies(
    word: &At<String>,
    what: &str,
    instead: &str,
    keys: &Keys,
    problems: &mut Problems<'_>,
) -> Option<Writers> {
    if let Some(proxies) = keys.proxies() {
        return Some(Box::new(PeerIp::new().within(proxies.clone())));
    }
    let text = format!(
        "clients would choose their {what} by this header: name the networks of the proxies that set it, as clients: {{ proxies: 10.0.0.0/8 }}, or use {instead}"
    );
    problems.error(word.place, text);
    None
}

/// The class of the requests of a rule.
pub(super) struct Classes {
    /// The places that a class is read from; the first with a class counts.
    by: Vec<AttributeSource>,
    /// The class of a request without one.
    otherwise: Class,
}

impl Classes {
    /// The classes of these words; all mistakes in them are reported.
    pub(super) fn of(given: &At<OneOrMany>, keys: &Keys, problems: &mut Problems<'_>) -> Self {
        let mut classes = Self { by: Vec::new(), otherwise: Class::default() };
        let words = given.all();
        if words.is_empty() {
            problems.error(given.place, "an empty list says nothing: leave the word out");
        }
        for (place, word) in words.iter().enumerate() {
            if call(&word.value).is_some() {
                classes.by.extend(AttributeSource::of_classes(word, keys, problems));
                continue;
            }
            if place + 1 < words.len() {
                let text = format!(
                    "every request is of class {:?}, so the words behind it say nothing: put it last",
                    word.value
                );
                problems.error(word.place, text);
            }
            if !is_unknown(word, "the default", problems) {
                match word.value.parse() {
                    Ok(class) => classes.otherwise = class,
                    Err(error) => wrong(word, &error, problems),
                }
            }
        }
        classes
    }

    /// The class of a request.
    pub(super) fn class(&self, request: RequestView<'_>) -> Class {
        let said = |by: &AttributeSource| by.name(request)?.trim().parse().ok();
        self.by.iter().find_map(said).unwrap_or(self.otherwise)
    }
}

/// Reads the tier of a request, for limits and for conditions alike. Tiers are identified by their indices.
pub(super) struct TierPlan {
    /// Its index among the tiers of the file.
    pub place: usize,
    pub name: String,
    pub tiers: Vec<String>,
    pub default_tier: usize,
    /// The places that the tier is read from; the first one present counts.
    pub by: Vec<AttributeSource>,
}

impl TierPlan {
    /// The tier that a request names, if it is a tier of this plan.
    pub(super) fn said(&self, request: RequestView<'_>) -> Option<usize> {
        let said = self.by.iter().find_map(|by| by.name(request))?;
        self.tiers.iter().position(|tier| *tier == said)
    }

    /// The tier of a request, or the default one if it names none.
    pub(super) fn tier(&self, request: RequestView<'_>) -> usize {
        self.said(request).unwrap_or(self.default_tier)
    }
}
