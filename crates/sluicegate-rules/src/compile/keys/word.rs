//! A word of a file that names a key.

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderName;
use sluicegate_core::Key;
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::key::{BearerJwt, HeaderKey, RequestView};
use sluicegate_tower::request_fields::FieldKey;

use super::api_keys::ApiKeys;
use crate::compile::descriptor::DescriptorKey;

/// A compiled word.
#[derive(Clone)]
pub(in crate::compile) enum Word {
    Everybody,
    /// A key that operators may read: the address of the client or of the peer, or a part of the request.
    Plain(Arc<dyn KeyExtractor>),
    /// Several keys, which are one together.
    Each(Vec<Self>),
    Header(HeaderName, HeaderKey),
    /// An unverified API key, or a cookie.
    Secret(Arc<dyn KeyExtractor>),
    /// A header field or an API key that a proxy in front has verified.
    VerifiedBefore(Box<Self>),
    /// A listed API key.
    Listed(ApiKeys),
    /// A claim of a verified token.
    Claim(Arc<BearerJwt>, String),
    /// A field of the JSON body.
    Field(FieldKey),
    /// A descriptor of Envoy's protocol, or an entry of it.
    Descriptor(DescriptorKey),
}

impl Word {
    /// The extractor that finds the key in requests.
    pub(super) fn extractor(&self) -> Arc<dyn KeyExtractor> {
        match self {
            Self::Everybody => Arc::new(Key::from("everybody")),
            Self::Plain(plain) => Arc::clone(plain),
            Self::Each(words) => {
                let mut extractors = words.iter().map(Self::extractor);
                let first = extractors.next().unwrap_or_else(|| Arc::new(Key::from("everybody")));
                extractors.fold(first, |one, next| Arc::new((one, next)))
            }
            Self::Header(_, header) => Arc::new(header.clone()),
            Self::Secret(secret) => Arc::clone(secret),
            Self::VerifiedBefore(word) => Arc::new(word.extractor().verified_before()),
            Self::Listed(listed) => Arc::new(listed.clone()),
            Self::Claim(claim, _) => Arc::clone(claim) as _,
            Self::Field(key) => Arc::new(key.clone()),
            Self::Descriptor(key) => Arc::new(key.clone()),
        }
    }

    /// The operators' name of a request's key, if the request has one.
    pub(super) fn name(&self, request: RequestView<'_>) -> Option<String> {
        match self {
            Self::Everybody => Some("everybody".to_owned()),
            Self::Plain(plain) => Some(plain.extract(request).now().ok()?.ok()?.plain()),
            Self::Each(words) => {
                let names: Option<Vec<String>> = words.iter().map(|word| word.name(request)).collect();
                names.map(|names| names.join(" + "))
            }
            Self::Header(name, _) => {
                let value = request.headers.get(name)?.to_str().ok()?.trim_ascii();
                (!value.is_empty()).then(|| value.to_owned())
            }
            Self::Secret(secret) => secret.extract(request).now().ok()?.ok().map(|_| String::new()),
            Self::VerifiedBefore(word) => word.name(request),
            Self::Listed(listed) => listed.name(request),
            Self::Claim(jwt, claim) => jwt.verify(request).ok()?.text(claim).map(str::to_owned),
            Self::Field(key) => key.value(request).map(Cow::into_owned),
            Self::Descriptor(key) => key.name(request),
        }
    }
}
