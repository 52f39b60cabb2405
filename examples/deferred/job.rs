//! The request that is kept for later: [`Job`].

use std::error::Error;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderName};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// Bytes that the head of a job may have: method, path and the fields that are kept.
const LONGEST_HEAD: usize = 8 * 1024;

/// Work for later: a request with the header fields that are on the list, and its body.
#[derive(Debug)]
pub(crate) struct Job {
    /// The same for each attempt: the system behind can tell by it that it has done this already.
    pub(crate) id: String,
    /// From 1 on. Above 1, an attempt before this one may have been carried out.
    pub(crate) attempt: u64,
    /// What the client asked for.
    pub(crate) request: Request<Bytes>,
}

/// A refusal before anything is stored.
pub(crate) type Refused = (StatusCode, String);

/// Reads a request, and keeps the header fields that are on the list. A body that says that it is longer than `most` is refused
/// before it is read, any other one as soon as it is longer.
pub(crate) async fn read<B>(
    request: Request<B>,
    most: usize,
    kept: &[HeaderName],
) -> Result<Request<Bytes>, Refused>
where
    B: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let too_large = || (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {most} bytes"));
    let (mut parts, body) = request.into_parts();
    let said = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|said| said > most as u64) {
        return Err(too_large());
    }
    let all = std::mem::take(&mut parts.headers);
    let mut head = parts.method.as_str().len() + target(&parts.uri).len();
    for name in kept {
        for value in all.get_all(name) {
            head += name.as_str().len() + value.len();
            parts.headers.append(name, value.clone());
        }
    }
    if head > LONGEST_HEAD {
        let problem = format!("path and kept headers have {head} bytes, and may have {LONGEST_HEAD}");
        return Err((StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, problem));
    }
    match Limited::new(body, most).collect().await {
        Ok(body) => {
            let mut request = Request::new(body.to_bytes());
            *request.method_mut() = parts.method;
            *request.uri_mut() = target(&parts.uri).parse().expect("a part of a URI is one");
            *request.headers_mut() = parts.headers;
            Ok(request)
        }
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => Err((StatusCode::BAD_REQUEST, "the body ended early".to_owned())),
    }
}

fn target(uri: &http::Uri) -> &str {
    uri.path_and_query().map_or("/", |target| target.as_str())
}

/// Method, path, names and values of fields, and last the body; the length goes before each.
pub(crate) fn encode(request: &Request<Bytes>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256 + request.body().len());
    let mut push = |part: &[u8]| {
        let length = u32::try_from(part.len()).expect("bodies are bounded");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(part);
    };
    push(request.method().as_str().as_bytes());
    push(target(request.uri()).as_bytes());
    for (name, value) in request.headers() {
        push(name.as_str().as_bytes());
        push(value.as_bytes());
    }
    push(request.body());
    bytes
}

/// What was encoded; none if that was something else.
pub(crate) fn decode(bytes: &[u8]) -> Option<Request<Bytes>> {
    let (mut parts, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk()?;
        let (part, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        parts.push(part);
        rest = after;
    }
    let [method, target, fields @ .., body] = &parts[..] else { return None };
    let (fields, []) = fields.as_chunks::<2>() else { return None };
    let request = Request::builder().method(*method).uri(*target);
    let request = fields.iter().fold(request, |request, [name, value]| request.header(*name, *value));
    request.body(Bytes::copy_from_slice(body)).ok()
}
